"""Batch plans of a run: when they are refreshed and which vectors they compare."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bsc_core.batching import BatchPlan, build_plan, plan_collisions
from bsc_core.batching.plan_stats import plan_warnings
from bsc_core.config import make_config
from bsc_core.data.decisions import Decision, add_decisions
from bsc_core.encoders import encode
from bsc_core.errors import DataError
from bsc_core.pipeline import load_training_data, run_experiment
from bsc_core.runs import RunStore
from bsc_core.training.callbacks import Callback
from bsc_core.training.loop.trainer import Batches, Trainer
from bsc_core.training.run_logger import RunLogger
from bsc_core.training.sampler import PlanSampler

ROOT = Path(__file__).resolve().parents[2]


class Experiment:
    """A config and its run folder; `train` also stores the trainer."""

    def __init__(
        self,
        encoder: Path,
        folder: Path,
        batching: dict,
        loss: dict | None = None,
        training: dict | None = None,
        **data: object,
    ) -> None:
        self.config = make_config(
            {
                "data": {"train": str(ROOT / "sample_data" / "pairs.tsv"), **data},
                "encoder": {"name": str(encoder), "max_seq_length": 16},
                "batching": {"group_size": 4, "clusters": 10, **batching},
                "loss": loss or {"name": "bsc"},
                "training": {
                    **{"epochs": 3, "batch_size": 32, "learning_rate": 5e-2, "threads": 1, "precision": "fp32"},
                    **{"warmup_ratio": 0, **(training or {})},
                },
                "evaluation": {"each_epoch": False},
            }
        )
        self.run = RunStore(folder).create(self.config)
        self.data = load_training_data(self.config)
        self.rows = self.data.train

    def train(self, *callbacks: Callback) -> Trainer:
        trainers: list[Trainer] = []

        class Store(Callback):
            def on_train_begin(self, trainer: Trainer) -> None:
                trainers.append(trainer)

        assert run_experiment(self.config, self.run, [Store(), *callbacks])["state"] == "done"
        return trainers[0]

    def plans(self) -> list[BatchPlan]:
        return [BatchPlan.load(path) for path in sorted(self.run.plans_folder.glob("*.npz"))]


@pytest.mark.parametrize(
    ("refresh", "every", "changed"), [("encode", 1, [1, 2]), ("encode", 2, [2]), ("reuse", 1, [1, 2]), ("reuse", 4, [])]
)
def test_plans_use_new_vectors_when_they_are_refreshed(
    tiny_encoder: Path, tmp_path: Path, refresh: str, every: int, changed: list[int]
) -> None:
    batching = {"strategy": "nearest", "refresh": refresh, "refresh_epochs": every}
    experiment = Experiment(tiny_encoder, tmp_path, batching)
    experiment.train()
    before = np.load(experiment.run.folder / "embeddings_before.npy")
    for epoch, plan in enumerate(experiment.plans()):
        untouched = build_plan(experiment.config.batching, experiment.rows, before, seed=0, epoch=epoch)
        refreshed = [first for first in changed if first <= epoch]
        assert np.array_equal(plan.order, untouched.order) == (not refreshed)


def test_reused_vectors_are_those_of_the_steps(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "nearest", "refresh": "reuse"})
    memory = experiment.train().sampler.step_vectors
    before = np.load(experiment.run.folder / "embeddings_before.npy")
    assert memory is not None
    trained = np.unique(np.concatenate(experiment.rows.text_columns))
    others = np.setdiff1d(np.arange(len(before)), trained)
    moved = np.abs(memory - before).max(axis=1) > 1e-6
    assert moved[trained].mean() > 0.9
    assert not moved[others].any()


class CompareVectors(Callback):
    """Stores the vectors that the plans of a run compared, and the vectors of the model at that time."""

    def __init__(self) -> None:
        self.compared: list[np.ndarray] = []
        self.current: list[np.ndarray] = []

    def on_epoch_begin(self, trainer: Trainer, epoch: int, batches: Batches) -> None:
        self.compared.append(trainer.sampler.compared.copy())
        self.current.append(encode(trainer.model, trainer.sampler.tokens))


def equal_rows(one: np.ndarray, other: np.ndarray, texts: np.ndarray) -> np.ndarray:
    return np.isclose(one[texts], other[texts], rtol=0, atol=1e-6).all(axis=1)


def test_half_of_the_unmoved_texts_are_encoded_again_in_turns(tiny_encoder: Path, tmp_path: Path, capfd) -> None:
    training = {"learning_rate": 1e-4, "epochs": 4}
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "nearest"}, training=training)
    vectors = CompareVectors()
    experiment.train(vectors)
    texts = np.unique(experiment.rows.query)
    fresh = [equal_rows(now, right, texts) for now, right in zip(vectors.compared, vectors.current, strict=True)]
    unchanged = [equal_rows(now, before, texts) for before, now in pairwise(vectors.compared)]
    assert fresh[0].all()
    for encoded, left in zip(fresh[1:], unchanged, strict=True):
        assert abs(encoded.sum() - len(texts) / 2) <= 1
        assert np.array_equal(encoded, ~left)
    assert np.array_equal(fresh[1], ~fresh[2])
    assert np.array_equal(fresh[1], fresh[3])
    assert capfd.readouterr().err.count("were not re-encoded") == 3


def test_all_texts_are_encoded_again_when_they_have_moved(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "nearest"}, training={"epochs": 4})
    vectors = CompareVectors()
    experiment.train(vectors)
    compared, current = vectors.compared, vectors.current
    texts = np.unique(experiment.rows.query)
    assert all(equal_rows(now, right, texts).all() for now, right in zip(compared[:3], current[:3], strict=True))
    assert not equal_rows(compared[0], compared[1], texts).any()


def test_a_resumed_run_compares_the_saved_vectors(tiny_encoder: Path, tmp_path: Path) -> None:
    training = {"learning_rate": 1e-4, "epochs": 4}
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "nearest"}, training=training)
    trainer = experiment.train()
    with RunLogger(experiment.run, experiment.config) as log:
        for epoch in (2, 3):
            sampler = PlanSampler(experiment.config, experiment.rows, trainer.sampler.embeddings, log, planned=epoch)
            assert np.array_equal(sampler.compared, np.load(experiment.run.plans_folder / f"vectors-{epoch:03d}.npy"))
    saved = sorted(path.name for path in experiment.run.plans_folder.glob("vectors-*"))
    assert saved == [f"vectors-00{number}.npy" for number in (2, 3, 4)]


@pytest.mark.parametrize("strategy", ["words", "clusters", "neighbors", "premises"])
def test_a_run_trains_with_every_strategy(tiny_encoder: Path, tmp_path: Path, strategy: str) -> None:
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": strategy, "no_duplicates": strategy != "premises"})
    experiment.train()
    plans = experiment.plans()
    assert len(plans) == 3
    assert not np.array_equal(plans[0].order, plans[1].order)


def test_marked_pairs_are_excluded_from_the_loss_and_never_share_a_batch(tiny_encoder: Path, tmp_path: Path) -> None:
    plain = Experiment(tiny_encoder, tmp_path / "a", {"strategy": "sequential"})
    first, second = plain.rows.take([0]), plain.rows.take([9])
    query, document = first.texts[first.query[0]], second.texts[second.document[0]]
    add_decisions(tmp_path / "marks.tsv", [Decision(query, document)])
    options = {"strategy": "sequential", "no_duplicates": True}
    marked = Experiment(tiny_encoder, tmp_path / "b", options, false_negatives=str(tmp_path / "marks.tsv"))
    named = [(marked.rows.texts[q], marked.rows.texts[d]) for q, d in marked.rows.marked_pairs.tolist()]
    assert named == [(query, document)]
    plan = build_plan(marked.config.batching, marked.rows, seed=0, epoch=0)
    for batch in plan.batches(32):
        texts = [marked.rows.texts[text] for text in marked.rows.query[batch]]
        answers = [marked.rows.texts[text] for text in marked.rows.document[batch]]
        assert not (query in texts and document in answers)


def test_of_more_clusters_than_texts_a_fitting_number_is_used(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "clusters", "clusters": 5000})
    experiment.train()
    texts = len(np.unique(experiment.rows.query))
    assert experiment.plans()[0].facts["clusters"] == texts // 4
    [warning] = plan_warnings(experiment.config.batching, experiment.rows)
    assert warning == f"clusters is 5,000, and there are only {texts} texts, so it is {texts // 4}"


@pytest.mark.parametrize("name", ["mse", "contrastive", "online_contrastive", "pearson", "triplet"])
def test_every_loss_leaves_out_marked_pairs(tiny_encoder: Path, tmp_path: Path, name: str) -> None:
    loss = {"name": name}
    plain = Experiment(tiny_encoder, tmp_path / "a", {"strategy": "sequential"}, loss=loss)
    train = plain.rows
    wrong = train.negative if train.negative is not None else train.document
    row = 0 if train.negative is not None else int(np.flatnonzero(~train.positive)[0])
    query, document = train.texts[train.query[row]], train.texts[wrong[row]]
    add_decisions(tmp_path / "marks.tsv", [Decision(query, document)])
    options = {"false_negatives": str(tmp_path / "marks.tsv")}
    marked = Experiment(tiny_encoder, tmp_path / "b", {"strategy": "sequential"}, loss=loss, **options).rows
    wrong = marked.negative if marked.negative is not None else marked.document
    left = [
        (marked.texts[one], marked.texts[other])
        for one, other, right in zip(marked.query, wrong, marked.positive, strict=True)
        if marked.negative is not None or not right
    ]
    assert (query, document) not in left
    assert 0 < len(marked) < len(train)


def test_a_mark_on_a_negative_that_the_loss_does_not_take_is_accepted(tiny_encoder: Path, tmp_path: Path) -> None:
    rows = ["premise\thypothesis\tnegative\tlabel"]
    for number in range(24):
        word = ("entailment", "neutral", "contradiction")[number % 3]
        rows.append(f"premise {number // 3}\thypothesis {number}\twrong {number}\t{word}")
    (tmp_path / "nli.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    add_decisions(tmp_path / "marks.tsv", [Decision("premise 0", "wrong 0")])
    columns = {"query": "premise", "document": "hypothesis", "negative": "negative", "class_label": "label"}
    experiment = Experiment(
        tiny_encoder,
        tmp_path / "runs",
        {"strategy": "premises"},
        loss={"name": "supcon"},
        train=str(tmp_path / "nli.tsv"),
        columns=columns,
        false_negatives=str(tmp_path / "marks.tsv"),
    )
    experiment.train()


def test_training_texts_that_are_all_equal_are_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "same.tsv").write_text("query\tdocument\n" + "same\tsame\n" * 40, encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("query\tdocument\na\tb\nc\td\n", encoding="utf-8")
    files = {"train": str(tmp_path / "same.tsv"), "dev": str(tmp_path / "dev.tsv")}
    with pytest.raises(DataError, match="all texts of the training pairs are equal"):
        Experiment(tiny_encoder, tmp_path / "runs", {"strategy": "random"}, **files)


@pytest.mark.parametrize(
    ("loss", "word", "message"),
    [
        ({"name": "supcon"}, "neutral", "no training pair is of class 0"),
        ({"name": "softmax"}, "entailment", "all training pairs are of class 0"),
    ],
)
def test_a_single_class_is_refused(tiny_encoder: Path, tmp_path: Path, loss: dict, word: str, message: str) -> None:
    for name in ("train", "dev"):
        rows = [f"{name} premise {number}\thypothesis {number}\t{word}" for number in range(20)]
        text = "\n".join(["premise\thypothesis\tlabel", *rows]) + "\n"
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    with pytest.raises(DataError, match=message):
        Experiment(tiny_encoder, tmp_path / "runs", {"strategy": "random"}, loss=loss, **files)


def test_the_share_of_collisions_is_logged(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = Experiment(tiny_encoder, tmp_path, {"strategy": "sequential"})
    experiment.train()
    lines = [line for line in experiment.run.metrics()[0] if line["kind"] == "plan"]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    crossed, result = plan_collisions(experiment.rows, experiment.plans()[0].batches(32))
    assert (lines[0]["crossed_pairs"], lines[0]["collisions"]) == (crossed, result)
    assert lines[0]["collision_share"] == result / crossed > 0


def test_graph_strategies_encode_the_texts_of_both_sides(tiny_encoder: Path, tmp_path: Path) -> None:
    batching = {"strategy": "communities", "skip_ranks": 2, "graph_neighbors": 5}
    experiment = Experiment(tiny_encoder, tmp_path, batching, training={"epochs": 2})
    vectors = CompareVectors()
    experiment.train(vectors)
    texts = np.unique(np.concatenate(experiment.rows.text_columns))
    for compared, current in zip(vectors.compared, vectors.current, strict=True):
        assert equal_rows(compared, current, texts).all()
    assert not equal_rows(vectors.compared[0], vectors.compared[1], texts).any()


def test_batches_of_a_mixed_run_hold_rows_of_one_file(tiny_encoder: Path, tmp_path: Path) -> None:
    lines = (ROOT / "sample_data" / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    second = tmp_path / "second.tsv"
    second.write_text(
        "\n".join([lines[0], *(line.replace("\t", " again\t", 1) for line in lines[1:60])]), encoding="utf-8"
    )
    batching = {"strategy": "communities", "skip_ranks": 2, "single_source": True, "mixing": "round_robin"}
    experiment = Experiment(tiny_encoder, tmp_path / "runs", batching, training={"epochs": 2}, mix=[str(second)])
    experiment.train()
    source = experiment.rows.source
    assert source is not None
    for plan in experiment.plans():
        files = [set(source[rows].tolist()) for rows in plan.batches(32)]
        assert files[:2] == [{0}, {1}]
        assert all(len(one) == 1 for one in files)

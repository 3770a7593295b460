"""When the plans of a run look at the model again, and at which vectors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bsc_core.batching import BatchPlan, build_plan, plan_collisions
from bsc_core.config import make_config
from bsc_core.data.marks import add_mark
from bsc_core.encoders import encode
from bsc_core.errors import DataError
from bsc_core.pipeline import _Experiment
from bsc_core.runs import RunStore
from bsc_core.training.epoch_plans import EpochPlans
from bsc_core.training.journal import Journal

ROOT = Path(__file__).resolve().parents[2]


def experiment_of(encoder: Path, folder: Path, batching: dict, loss: dict | None = None, **data) -> _Experiment:
    config = make_config(
        {
            "data": {"train": str(ROOT / "sample_data" / "pairs.tsv"), **data},
            "encoder": {"name": str(encoder), "max_length": 16},
            "batching": {"group_size": 4, "clusters": 10, **batching},
            "loss": loss or {"name": "bsc"},
            "training": {
                **{"epochs": 3, "batch_size": 32, "learning_rate": 5e-2, "threads": 1, "precision": "fp32"},
                "warmup": 0,
            },
            "evaluation": {"each_epoch": False},
        }
    )
    run = RunStore(folder).create(config)
    return _Experiment(config, run, Journal(run))


def plans_of(experiment: _Experiment) -> list[BatchPlan]:
    return [BatchPlan.load(path) for path in sorted(experiment.run.plans_folder.glob("*.npz"))]


@pytest.mark.parametrize(
    ("refresh", "every", "changed"), [("encode", 1, [1, 2]), ("encode", 2, [2]), ("reuse", 1, [1, 2]), ("reuse", 4, [])]
)
def test_plans_look_at_new_vectors_when_they_should(
    tiny_encoder: Path, tmp_path: Path, refresh: str, every: int, changed: list[int]
) -> None:
    experiment = experiment_of(
        tiny_encoder, tmp_path, {"strategy": "examples", "refresh": refresh, "refresh_epochs": every}
    )
    experiment.conduct(None)
    before = np.load(experiment.run.folder / "embeddings_before.npy")
    for epoch, plan in enumerate(plans_of(experiment)):
        untouched = build_plan(experiment.config.batching, experiment.train, before, seed=0, epoch=epoch)
        looked_again = [first for first in changed if first <= epoch]
        assert np.array_equal(plan.order, untouched.order) == (not looked_again)


def test_reused_vectors_are_those_of_the_steps(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = experiment_of(tiny_encoder, tmp_path, {"strategy": "examples", "refresh": "reuse"})
    experiment.conduct(None)
    before = np.load(experiment.run.folder / "embeddings_before.npy")
    assert experiment.vectors.steps is not None
    trained = np.unique(np.concatenate(experiment.train.text_columns))
    others = np.setdiff1d(np.arange(len(before)), trained)
    moved = np.abs(experiment.vectors.steps - before).max(axis=1) > 1e-6
    assert moved[trained].mean() > 0.9
    assert not moved[others].any()


def looks_of(experiment: _Experiment, rate: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The vectors that the plans of a run compared, and those that the model had then; its learning rate is `rate`."""
    training = experiment.config.training.model_copy(update={"learning_rate": rate, "epochs": 4})
    experiment.config = experiment.plans.config = experiment.config.model_copy(update={"training": training})
    compared, true = [], []
    plan = experiment.plans._look_again

    def look(epoch: int) -> None:
        plan(epoch)
        compared.append(experiment.plans.compared.copy())
        true.append(encode(experiment.model, experiment.tokens))

    experiment.plans._look_again = look
    experiment.conduct(None)
    return compared, true


def equal_rows(one: np.ndarray, other: np.ndarray, texts: np.ndarray) -> np.ndarray:
    return np.isclose(one[texts], other[texts], rtol=0, atol=1e-6).all(axis=1)


def test_of_settled_texts_half_are_encoded_anew_in_turns(tiny_encoder: Path, tmp_path: Path, capfd) -> None:
    experiment = experiment_of(tiny_encoder, tmp_path, {"strategy": "examples"})
    compared, true = looks_of(experiment, 1e-4)
    texts = np.unique(experiment.train.query)
    fresh = [equal_rows(now, right, texts) for now, right in zip(compared, true, strict=True)]
    kept = [equal_rows(now, before, texts) for before, now in pairwise(compared)]
    assert fresh[0].all()
    for own, left in zip(fresh[1:], kept, strict=True):
        assert abs(own.sum() - len(texts) / 2) <= 1
        assert np.array_equal(own, ~left)
    assert np.array_equal(fresh[1], ~fresh[2])
    assert np.array_equal(fresh[1], fresh[3])
    assert capfd.readouterr().err.count("texts encoded anew; the other") == 3


def test_when_texts_have_moved_all_are_encoded_anew(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = experiment_of(tiny_encoder, tmp_path, {"strategy": "examples"})
    compared, true = looks_of(experiment, 5e-2)
    texts = np.unique(experiment.train.query)
    assert all(equal_rows(now, right, texts).all() for now, right in zip(compared[:3], true[:3], strict=True))
    assert not equal_rows(compared[0], compared[1], texts).any()


def test_a_resumed_run_compares_what_it_would_have_compared(tiny_encoder: Path, tmp_path: Path) -> None:
    whole = experiment_of(tiny_encoder, tmp_path / "a", {"strategy": "examples"})
    looks_of(whole, 1e-4)
    for epoch in (2, 3):
        plans = EpochPlans(
            whole.config, whole.train, whole.vectors, journal=whole.journal, ranks=whole.ranks, kept=epoch
        )
        assert np.array_equal(plans.compared, np.load(whole.run.plans_folder / f"vectors-{epoch:03d}.npy"))
    kept = sorted(path.name for path in whole.run.plans_folder.glob("vectors-*"))
    assert kept == [f"vectors-00{number}.npy" for number in (2, 3, 4)]


@pytest.mark.parametrize("strategy", ["words", "clusters", "neighbours", "premises"])
def test_a_run_trains_with_every_strategy(tiny_encoder: Path, tmp_path: Path, strategy: str) -> None:
    experiment = experiment_of(
        tiny_encoder, tmp_path, {"strategy": strategy, "forbid_collisions": strategy != "premises"}
    )
    result = experiment.conduct(None)
    assert result["state"] == "done"
    plans = plans_of(experiment)
    assert len(plans) == 3
    assert not np.array_equal(plans[0].order, plans[1].order)


def test_marked_pairs_are_left_out_of_the_loss_and_kept_apart(tiny_encoder: Path, tmp_path: Path) -> None:
    plain = experiment_of(tiny_encoder, tmp_path / "a", {"strategy": "sequential"})
    first, second = plain.train.take([0]), plain.train.take([9])
    query, document = first.texts[first.query[0]], second.texts[second.document[0]]
    add_mark(tmp_path / "marks.tsv", query, document)
    options = {"strategy": "sequential", "forbid_collisions": True}
    marked = experiment_of(tiny_encoder, tmp_path / "b", options, false_negatives=str(tmp_path / "marks.tsv"))
    named = [(marked.data.texts[q], marked.data.texts[d]) for q, d in marked.train.marked_pairs.tolist()]
    assert named == [(query, document)]
    plan = build_plan(marked.config.batching, marked.train, seed=0, epoch=0)
    for batch in plan.batches(32):
        texts = [marked.data.texts[text] for text in marked.train.query[batch]]
        answers = [marked.data.texts[text] for text in marked.train.document[batch]]
        assert not (query in texts and document in answers)


def test_more_clusters_than_texts_are_refused_before_any_work(tiny_encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"batching.clusters is 5000 and there are \d+ distinct texts to cluster"):
        experiment_of(tiny_encoder, tmp_path, {"strategy": "clusters", "clusters": 5000})


@pytest.mark.parametrize("name", ["mse", "contrastive", "online_contrastive", "pearson", "triplet"])
def test_every_loss_leaves_out_what_a_person_marked(tiny_encoder: Path, tmp_path: Path, name: str) -> None:
    loss = {"name": name}
    plain = experiment_of(tiny_encoder, tmp_path / "a", {"strategy": "sequential"}, loss=loss)
    train = plain.train
    wrong = train.negative if train.negative is not None else train.document
    row = 0 if train.negative is not None else int(np.flatnonzero(~train.positive)[0])
    query, document = train.texts[train.query[row]], train.texts[wrong[row]]
    add_mark(tmp_path / "marks.tsv", query, document)
    options = {"false_negatives": str(tmp_path / "marks.tsv")}
    marked = experiment_of(tiny_encoder, tmp_path / "b", {"strategy": "sequential"}, loss=loss, **options).train
    wrong = marked.negative if marked.negative is not None else marked.document
    left = [
        (marked.texts[one], marked.texts[other])
        for one, other, right in zip(marked.query, wrong, marked.positive, strict=True)
        if marked.negative is not None or not right
    ]
    assert (query, document) not in left
    assert 0 < len(marked) < len(train)


def test_a_mark_on_a_negative_that_the_loss_does_not_take_is_no_fault(tiny_encoder: Path, tmp_path: Path) -> None:
    rows = ["premise\thypothesis\tnegative\tlabel"]
    for number in range(24):
        word = ("entailment", "neutral", "contradiction")[number % 3]
        rows.append(f"premise {number // 3}\thypothesis {number}\twrong {number}\t{word}")
    (tmp_path / "nli.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    add_mark(tmp_path / "marks.tsv", "premise 0", "wrong 0")
    columns = {"query": "premise", "document": "hypothesis", "negative": "negative", "class_label": "label"}
    experiment = experiment_of(
        tiny_encoder,
        tmp_path / "runs",
        {"strategy": "premises"},
        loss={"name": "supcon"},
        train=str(tmp_path / "nli.tsv"),
        columns=columns,
        false_negatives=str(tmp_path / "marks.tsv"),
    )
    assert experiment.conduct(None)["state"] == "done"


def test_texts_that_are_all_equal_are_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "same.tsv").write_text("query\tdocument\n" + "same\tsame\n" * 40, encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("query\tdocument\na\tb\nc\td\n", encoding="utf-8")
    files = {"train": str(tmp_path / "same.tsv"), "dev": str(tmp_path / "dev.tsv")}
    with pytest.raises(DataError, match="all texts of the training pairs are equal"):
        experiment_of(tiny_encoder, tmp_path / "runs", {"strategy": "random"}, **files)


@pytest.mark.parametrize(
    ("loss", "word", "said"),
    [
        ({"name": "supcon"}, "neutral", "no training pair is of class 0"),
        ({"name": "softmax"}, "entailment", "all training pairs are of class 0"),
    ],
)
def test_a_single_class_is_refused(tiny_encoder: Path, tmp_path: Path, loss: dict, word: str, said: str) -> None:
    for name in ("train", "dev"):
        rows = [f"{name} premise {number}\thypothesis {number}\t{word}" for number in range(20)]
        text = "\n".join(["premise\thypothesis\tlabel", *rows]) + "\n"
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    with pytest.raises(DataError, match=said):
        experiment_of(tiny_encoder, tmp_path / "runs", {"strategy": "random"}, loss=loss, **files)


def test_the_share_of_collisions_stands_in_the_metrics(tiny_encoder: Path, tmp_path: Path) -> None:
    experiment = experiment_of(tiny_encoder, tmp_path, {"strategy": "sequential"})
    experiment.conduct(None)
    lines = [line for line in experiment.run.metrics()[0] if line["kind"] == "plan"]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    crossed, found = plan_collisions(experiment.train, plans_of(experiment)[0].batches(32))
    assert (lines[0]["crossed_pairs"], lines[0]["collisions"]) == (crossed, found)
    assert lines[0]["collision_share"] == found / crossed > 0

"""P, S and their balance of runs, by stored vectors of the last epoch, against slow loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.config import make_config
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.metrics.polarity import balance_of_means
from bsc_core.preparation.experiment import load_experiment
from bsc_core.reproduction.metrics.polarity import PolarityMetrics
from bsc_core.runs import Run, RunStore

METRICS = PolarityMetrics()
WORDS = ("soup", "bread", "garden", "train", "ticket", "storm", "phone", "guitar", "battery", "window")
K = 16


def write_sentences(path: Path, count: int, start: int) -> None:
    lines = [f"{WORDS[n % 10]} and {WORDS[n // 10 % 10]} number {start + n}\t{n % 2}" for n in range(count)]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("polarity")
    for name, count, start in (("train", 40, 0), ("dev", 8, 100), ("test", 12, 200)):
        write_sentences(folder / f"{name}.tsv", count, start)
    return folder


@pytest.fixture
def make_run(home: Path, tiny_encoder: Path, tmp_path: Path):
    store = RunStore(tmp_path / "runs")

    def make(name: str, seed: int = 0, *, loss: Any = None, batch_size: int = 8, **examples: Any) -> Run:
        files = {part: str(home / f"{part}.tsv") for part in ("train", "dev", "test")}
        options = {"text": "text", "class_label": "label", "split": "", "cap": 1, "encoder": str(tiny_encoder)}
        values = {
            "data": {**files, "examples": {**options, **examples}},
            "encoder": {"name": str(tiny_encoder)},
            "loss": loss or {"name": "triplet", "margin": 0.1},
            "training": {"seed": seed, "batch_size": batch_size},
        }
        return store.create(make_config(values, source="test"), name)

    return make


def texts_of(run: Run) -> tuple[str, ...]:
    return load_experiment(run.config().data).texts.texts


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def store_vectors(run: Run, *, after: int, epochs: tuple[int, ...] = ()) -> None:
    """Store vectors by seed: 0 before training, `after` for the final model, one seed per epoch."""
    count = len(texts_of(run))
    run.write_array("embeddings_before", vectors(count, 0))
    run.write_array("embeddings_after", vectors(count, after))
    if epochs:
        run.write_array("vectors/texts", np.arange(count, dtype=np.int32))
    for number, seed in enumerate(epochs, start=1):
        run.write_array(f"vectors/epoch-{number:03d}", vectors(count, seed))
    run.update_status(epoch=len(epochs))


def by_loops(run: Run, after: np.ndarray) -> tuple[float, float]:
    """P and S by loops over test and training sentences."""
    index = {text: number for number, text in enumerate(texts_of(run))}
    config = run.config().data
    sides = [
        [line.split("\t") for line in Path(str(path)).read_text(encoding="utf-8").splitlines()[1:]]
        for path in (config.test, config.train)
    ]
    before = vectors(len(index), 0)
    unit = after / np.linalg.norm(after, axis=1, keepdims=True)
    reference = before / np.linalg.norm(before, axis=1, keepdims=True)
    polarity, semantic = [], []
    for text, label in sides[0]:
        near = sorted(sides[1], key=lambda other: -float(unit[index[text]] @ unit[index[other[0]]]))[:K]
        polarity.append(np.mean([other[1] == label for other in near]))
        semantic.append(np.mean([float(reference[index[text]] @ reference[index[other[0]]]) for other in near]))
    return float(np.mean(polarity)), float(np.mean(semantic))


def test_polarity_and_semantics_are_those_of_a_slow_loop(make_run) -> None:
    run = make_run("a")
    store_vectors(run, after=3)
    intervals = METRICS.intervals([run], "test", "after", ["polarity", "semantic", "spearman"])
    polarity, semantic = by_loops(run, vectors(len(texts_of(run)), 3))
    assert set(intervals) == {"polarity", "semantic"}
    assert intervals["polarity"].value == pytest.approx(polarity, abs=1e-9)
    assert intervals["semantic"].value == pytest.approx(semantic, abs=1e-6)
    assert intervals["polarity"].low < intervals["polarity"].value < intervals["polarity"].high


def test_the_last_epoch_is_evaluated_and_not_the_best_model(make_run) -> None:
    run = make_run("a")
    store_vectors(run, after=3, epochs=(4, 5))
    count = len(texts_of(run))
    first, last = (by_loops(run, vectors(count, seed)) for seed in (4, 5))
    intervals = METRICS.intervals([run], "test", "after", ["polarity"])
    points = METRICS.details([run], "after")["points"]
    assert intervals["polarity"].value == pytest.approx(last[0], abs=1e-9)
    assert [(point["epoch"], round(point["polarity"], 9)) for point in points] == [
        (1, round(first[0], 9)),
        (2, round(last[0], 9)),
    ]


def test_before_training_every_seed_is_the_reference(make_run) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    for run in runs:
        store_vectors(run, after=3)
    intervals = METRICS.intervals(runs, "test", "before", ["polarity", "semantic"])
    details = METRICS.details(runs, "before")
    assert [intervals["polarity"].value, intervals["semantic"].value] == pytest.approx(details["reference"])
    assert details["points"] == []
    assert intervals["polarity"].value == pytest.approx(by_loops(runs[0], vectors(len(texts_of(runs[0])), 0))[0])


def test_runs_trained_on_the_same_batches_are_compared_seed_by_seed(make_run) -> None:
    first = [make_run(f"a{seed}", seed) for seed in (0, 1)]
    second = [make_run(f"b{seed}", seed, loss={"name": "triplet", "margin": 5.0}) for seed in (0, 1)]
    other = [make_run(f"c{seed}", seed, batch_size=4) for seed in (0, 1)]
    for runs in (first, second, other):
        for seed, run in enumerate(runs):
            store_vectors(run, after=3 + seed)
    same = METRICS.compare(first, second, "polarity", "test", when=("after", "after"))
    other_batches = METRICS.compare(first, other, "polarity", "test", when=("after", "after"))
    assert (same.difference.low, same.difference.value, same.difference.high) == (0, 0, 0)
    assert same.p is None
    assert same.seeds == (2, 2)
    assert "seed by seed" in same.method
    assert "seed by seed" not in other_batches.method


def test_the_balance_is_compared_by_resampled_queries(make_run) -> None:
    one, two = make_run("a"), make_run("b", loss={"name": "triplet", "margin": 5.0})
    store_vectors(one, after=3)
    count = len(texts_of(two))
    store_vectors(two, after=4)
    two.write_array("embeddings_after", vectors(count, 0))  # as untrained: the balance of the reference
    details = METRICS.details([one], "after")
    values = []
    for run in (one, two):
        intervals = METRICS.intervals([run], "test", "after", ["polarity", "semantic", "balance"])
        means = (intervals["polarity"].value, intervals["semantic"].value)
        combined = balance_of_means(means, tuple(details["reference"]), tuple(details["floors"]))
        assert intervals["balance"].value == pytest.approx(combined.balance, abs=1e-9)
        values.append(intervals["balance"].value)
    compared = METRICS.compare([one], [two], "balance", "test", when=("after", "after"))
    assert compared.difference.value == pytest.approx(values[1] - values[0])
    assert compared.queries == 12


def test_an_unknown_metric_is_an_error(make_run) -> None:
    run = make_run("a")
    store_vectors(run, after=3)
    assert METRICS.intervals([run], "dev", "after", ["polarity"]) == {}
    with pytest.raises(DataError, match="'spearman' on test is not available; choose among polarity, semantic"):
        METRICS.compare([run], [run], "spearman", "test", when=("after", "after"))
    with pytest.raises(DataError, match="on dev is not available"):
        METRICS.compare([run], [run], "polarity", "dev", when=("after", "after"))


def test_a_run_without_vectors_of_its_sentences_is_an_error(make_run) -> None:
    bare, few, thin = make_run("a"), make_run("b", target=2), make_run("c")
    with pytest.raises(RunError, match="run a has no embeddings_before"):
        METRICS.intervals([bare], "test", "after", ["polarity"])
    with pytest.raises(RunError, match="sentences have no vectors"):
        METRICS.intervals([few], "test", "after", ["polarity"])
    store_vectors(thin, after=3, epochs=(4,))
    thin.write_array("vectors/texts", np.arange(5, dtype=np.int32))
    thin.write_array("vectors/epoch-001", vectors(5, 4))
    with pytest.raises(RunError, match=r"raise evaluation\.epoch_texts"):
        METRICS.intervals([thin], "test", "after", ["polarity"])

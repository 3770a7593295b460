"""Polarity and semantic similarity of runs on classified sentences, by margin and by epoch.

The test sentences of a run search its training sentences; the reference is the run's untrained encoder. Where a run
stores vectors per epoch, the last epoch is evaluated, as in the paper; no epoch is chosen by its metrics.
"""

# S seeds, Q queries, N sentences of the pool, D dimensions, B resamples

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bsc_core.data.io.tables import read_table
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.metrics.polarity import PolarityTask, balances_of_means, polarity_task
from bsc_core.evaluation.stats.bootstrap import RESAMPLES, Interval, bootstrap_seeds, mean_interval
from bsc_core.evaluation.stats.significance import Comparison, compare_resamples, compare_seeds
from bsc_core.preparation.experiment import load_experiment
from bsc_core.reproduction.metrics.source import BOOTSTRAP_SEED, bootstrap_weights, cached_array
from bsc_core.reproduction.subsets import SENTENCES_FILE
from bsc_core.run_results import When
from bsc_core.runs import Run
from bsc_core.runs.store import EPOCH_TEXTS, epoch_array, saved_epochs
from bsc_core.types import Numbers, Vectors

POLARITY_METRICS = ("polarity", "semantic", "balance")
MAX_NEIGHBORS = 16


class PolarityMetrics:
    """P, S and their balance on test; see `bsc_core.evaluation.metrics.polarity`.

    The data of a run are classified sentences with a test part. k is 16, or all of a smaller pool; weights are uniform,
    as in the paper's tables. Nothing is encoded: the vectors are those that the runs store.
    """

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Return means over seeds and queries with their intervals; empty for dev."""
        if split != "test":
            return {}
        scores = _scores(runs, when)
        intervals = {}
        for name in metrics:
            if name == "balance":
                intervals[name] = mean_interval(*_balances([scores]), seed=BOOTSTRAP_SEED)
            elif name in POLARITY_METRICS:
                intervals[name] = bootstrap_seeds(scores.values(name), seed=BOOTSTRAP_SEED).both
        return intervals

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, when: tuple[When, When]
    ) -> Comparison:
        """Compare two settings, second minus first; settings trained on the same batches are compared seed by seed.

        Raises:
            DataError: The metric is not available.
        """
        if split != "test" or metric not in POLARITY_METRICS:
            raise DataError(
                f"{metric!r} on {split} is not available; choose among {', '.join(POLARITY_METRICS)} on test"
            )
        one, two = (_scores(runs, when) for runs, when in zip((first, second), when, strict=True))
        if metric == "balance":
            values, resampled = _balances([one, two])
            return compare_resamples(
                values, resampled, len(one.tables), groups=one.tables.shape[2], seed=BOOTSTRAP_SEED
            )
        if "before" not in when and _batches(first) == _batches(second):
            return _seed_by_seed(one.values(metric), two.values(metric))
        return compare_seeds(one.values(metric), two.values(metric), seed=BOOTSTRAP_SEED)

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """Return P and S of each seed and stored epoch (`points`), of the untrained encoder, and their floors."""
        task = _task(runs[0].folder).task
        points = [point for run in runs for point in _points(run)] if when == "after" else []
        return {
            "points": points,
            "reference": [float(side.mean()) for side in task.reference_scores],
            "floors": list(task.floors),
        }


class _Scores(NamedTuple):
    """P and S (S, 2, Q) of each seed, and their task."""

    tables: Numbers
    task: PolarityTask

    def values(self, metric: str) -> Numbers:
        """Return (S, Q)."""
        return self.tables[:, POLARITY_METRICS.index(metric)]


class _Task:
    """The task given by a run's data and untrained encoder, and the text ids of its sentences."""

    def __init__(self, run: Run) -> None:
        config = run.config().data
        texts = load_experiment(config).texts.texts
        index = {text: number for number, text in enumerate(texts)}
        sides = [_sentences(run, config.test, "test"), _sentences(run, config.train, "train")]
        missing = [text for texts, _ in sides for text in texts if text not in index]
        if missing:
            raise RunError(
                f"run {run.id}: {len(missing)} of its sentences have no vectors, such as {missing[0][:60]!r}; "
                "create examples of every sentence (data.examples without target)"
            )
        self.queries, self.pool = (np.asarray([index[text] for text in texts]) for texts, _ in sides)
        before = _array(run, "embeddings_before")
        k = min(MAX_NEIGHBORS, len(self.pool))
        self.task = polarity_task((before[self.queries], before[self.pool]), (sides[0][1], sides[1][1]), k=k)

    def scores(self, vectors: Vectors) -> Numbers:
        """Return (2, Q) P and S by the vectors (U, D) of all texts of the run."""
        result = self.task.evaluate(vectors[self.queries], vectors[self.pool])
        return np.stack([result.polarity, result.semantic])


@lru_cache(maxsize=16)
def _task(folder: Path) -> _Task:
    """Return the task of a finished run, whose data and untrained vectors no longer change."""
    return _Task(Run(folder))


def _scores(runs: Sequence[Run], when: When) -> _Scores:
    """Return the scores of the runs; before training all seeds are the same encoder, so the first run suffices."""
    task = _task(runs[0].folder)
    if when == "before":
        return _Scores(np.stack(task.task.reference_scores)[None], task.task)
    return _Scores(np.stack([_last(run) for run in runs]), task.task)


def _last(run: Run) -> Numbers:
    """Return (2, Q) P and S after the last stored epoch, else of the final model."""
    epochs = saved_epochs(run)
    return _of_epoch(run, epochs[-1] if epochs else None)


def _points(run: Run) -> list[dict[str, float]]:
    """Return the mean P and S of each stored epoch."""
    seed, points = run.config().training.seed, []
    for epoch in saved_epochs(run):
        polarity, semantic = _of_epoch(run, epoch).mean(axis=1).tolist()
        points.append({"seed": seed, "epoch": epoch, "polarity": polarity, "semantic": semantic})
    return points


def _of_epoch(run: Run, epoch: int | None) -> Numbers:
    """Return P and S (2, Q) after an epoch, or of the final model, cached in the run folder."""

    def compute() -> Numbers:
        task = _task(run.folder)
        return task.scores(_array(run, "embeddings_after") if epoch is None else _epoch_vectors(run, epoch, task))

    state = "model" if epoch is None else f"epoch-{epoch:03d}"
    return cached_array(run, f"measured/polarity-{state}", compute)


def _epoch_vectors(run: Run, epoch: int, task: _Task) -> Vectors:
    """Return (U, D) vectors of an epoch; raises RunError if the run does not store those of every sentence."""
    texts, vectors = _array(run, EPOCH_TEXTS), _array(run, epoch_array(epoch))
    needed = np.concatenate([task.queries, task.pool])
    if not np.isin(needed, texts).all():
        raise RunError(
            f"run {run.id} stores {len(texts):,} texts per epoch, without some of its sentences; "
            "raise evaluation.epoch_texts"
        )
    table = np.zeros((int(max(needed.max(), texts.max())) + 1, vectors.shape[1]), dtype=np.float32)
    table[texts] = vectors
    return table


def _batches(runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """Return what determines the batches of each run: equal for settings that differ in loss or learning rate only."""
    configs = [run.config() for run in runs]
    return [
        (one.data, one.batching, one.training.seed, one.training.batch_size, one.training.epochs) for one in configs
    ]


def _seed_by_seed(first: Numbers, second: Numbers) -> Comparison:
    """Run `compare_seeds` on the differences (S, Q) of runs that share a seed, hence batches and dropout."""
    result = compare_seeds(np.zeros_like(first[:1]), second - first, seed=BOOTSTRAP_SEED)
    return replace(result, method=f"{result.method}, seed by seed", seeds=(len(first), len(second)))


def _balances(sides: Sequence[_Scores]) -> tuple[Numbers, Numbers | None]:
    """Return the balance of every seed of all sides (S,), and on resampled queries (B, S), the same for all sides."""
    tables = np.concatenate([side.tables for side in sides])  # (S, 2, Q)
    reference, floors = np.asarray(sides[0].task.reference_scores[1]), sides[0].task.floors
    count = tables.shape[2]
    values = balances_of_means(tables.mean(axis=2).T, reference.mean(), floors)
    if count < 2:
        return values, None
    blocks = []
    for weights in bootstrap_weights(np.arange(count), RESAMPLES, BOOTSTRAP_SEED):
        means = np.stack([weights @ tables[:, row].T for row in (0, 1)]) / count  # (2, b, S)
        blocks.append(balances_of_means(means, (weights @ reference)[:, None] / count, floors))
    return values, np.concatenate(blocks)


def _sentences(run: Run, path: str | None, part: str) -> tuple[list[str], list[str]]:
    """Return the sentences of a part with their classes. Raises RunError if the file is missing.

    Where pairs were sampled from sentences, the sentences are in a file next to that of the pairs.
    """
    if path is None or not Path(path).is_file():
        raise RunError(f"run {run.id}: its {part} sentences ({path}) are missing; reproduce the claim again")
    sentences = Path(path).with_name(SENTENCES_FILE.format(part))
    table = read_table(sentences if sentences.is_file() else Path(path))
    return table.columns["text"], table.columns["label"]


def _array(run: Run, name: str) -> Vectors:
    array = run.array(name)
    if array is None:
        raise RunError(f"run {run.id} has no {name}, so polarity cannot be computed; train it again")
    return np.array(array)

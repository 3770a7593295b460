"""Polarity and semantic similarity of runs on classified sentences, by margin and by epoch.

A run's test sentences search its training sentences; the reference is the untrained encoder, so S is its own. What is
measured after training is the last epoch, as in the paper, where a run kept the vectors of its epochs; no epoch is
chosen by what is measured.
"""

# S seeds, Q queries, N sentences of the pool, D dimensions, B draws

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.comparison import When
from bsc_core.data import SPLIT_SEED
from bsc_core.data.tables import read_table
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.bootstrap import DRAWS, Interval, bootstrap_seeds
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.polarity import PolarityTask, polarity_task
from bsc_core.evaluation.significance import Comparison, compare_draws, compare_seeds
from bsc_core.evaluation.tradeoff import combine_many
from bsc_core.preparation.prepare import load_experiment
from bsc_core.recipes.measures_drawn import DRAW_SEED, drawn_interval, drawn_weights
from bsc_core.recipes.subsets import SENTENCES_OF
from bsc_core.runs import Run
from bsc_core.training.epoch_vectors import TEXTS, kept_epochs, name_of

POLARITY_METRICS = ("polarity", "semantic", "balance")
MOST_NEIGHBOURS = 16
Vectors = NDArray[np.floating[Any]]


class PolarityMeasure:
    """P, S and their balance on test; see `bsc_core.evaluation.polarity` and `bsc_core.evaluation.tradeoff.combine`.

    The data of a run are classified sentences with a test part. k is 16, or all of a smaller pool; weights are uniform,
    with which the paper's tables were made. Nothing is encoded: the vectors are those that the runs kept.
    """

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Means over seeds and queries with their intervals; nothing for dev."""
        if split != "test":
            return {}
        scores = _scores(runs, when)
        found = {}
        for name in metrics:
            if name == "balance":
                found[name] = drawn_interval(*_balances([scores]))
            elif name in POLARITY_METRICS:
                found[name] = bootstrap_seeds(scores.of(name), seed=DRAW_SEED).both
        return found

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, whens: tuple[When, When]
    ) -> Comparison:
        """What the second setting has over the first; settings that saw the same batches are compared seed by seed.

        Raises DataError for a metric that is not measured here.
        """
        if split != "test" or metric not in POLARITY_METRICS:
            raise DataError(
                f"polarity: {metric!r} on {split} is not measured; there are {', '.join(POLARITY_METRICS)} on test"
            )
        one, two = (_scores(runs, when) for runs, when in zip((first, second), whens, strict=True))
        if metric == "balance":
            whole, drawn = _balances([one, two])
            return compare_draws(whole, drawn, len(one.tables), groups=one.tables.shape[2], seed=DRAW_SEED)
        if "before" not in whens and _batches(first) == _batches(second):
            return _seed_by_seed(one.of(metric), two.of(metric))
        return compare_seeds(one.of(metric), two.of(metric), seed=DRAW_SEED)

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """points: P and S of each seed after each epoch that was kept; reference: of the untrained encoder; floors."""
        task = _task(runs[0].folder).task
        points = [point for run in runs for point in _points(run)] if when == "after" else []
        return {
            "points": points,
            "reference": [float(side.mean()) for side in task.reference_scores],
            "floors": list(task.floors),
        }


class _Scores:
    """tables: (S, 2, Q), P and S of each seed; reference: (2, Q); floors: of P and of S."""

    def __init__(self, tables: Numbers, task: PolarityTask) -> None:
        self.tables, self.floors = tables, task.floors
        self.reference: Numbers = np.stack(task.reference_scores)

    def of(self, metric: str) -> Numbers:
        """(S, Q)."""
        return self.tables[:, POLARITY_METRICS.index(metric)]


class _Task:
    """The task that a run's data and untrained encoder set, and where its sentences stand among the run's texts."""

    def __init__(self, run: Run) -> None:
        config = run.config().data
        texts = load_experiment(config, seed=SPLIT_SEED).texts.texts
        place = {text: number for number, text in enumerate(texts)}
        sides = [_sentences(run, config.test, "test"), _sentences(run, config.train, "train")]
        missing = [text for texts, _ in sides for text in texts if text not in place]
        if missing:
            raise RunError(
                f"run {run.id}: {len(missing)} of its sentences are in no example, such as {missing[0][:60]!r}, so it "
                "has no vectors of them; make examples of every sentence (data.examples without target)"
            )
        self.queries, self.pool = (np.asarray([place[text] for text in texts]) for texts, _ in sides)
        before = _array(run, "embeddings_before")
        k = min(MOST_NEIGHBOURS, len(self.pool))
        self.task = polarity_task((before[self.queries], before[self.pool]), (sides[0][1], sides[1][1]), k=k)

    def scores(self, vectors: Vectors) -> Numbers:
        """(2, Q): P and S by the vectors (U, D) of all texts of the run."""
        found = self.task.measure(vectors[self.queries], vectors[self.pool])
        return np.stack([found.polarity, found.semantic])


@lru_cache(maxsize=16)
def _task(folder: Path) -> _Task:
    """The task of a finished run; its data and its untrained vectors do not change any more."""
    return _Task(Run(folder))


def _scores(runs: Sequence[Run], when: When) -> _Scores:
    """Before training all seeds are one encoder, of which the first run tells."""
    task = _task(runs[0].folder)
    if when == "before":
        return _Scores(np.stack(task.task.reference_scores)[None], task.task)
    return _Scores(np.stack([_last(run) for run in runs]), task.task)


def _last(run: Run) -> Numbers:
    """(2, Q): P and S after the last epoch that the run kept, else of the model it kept."""
    epochs = kept_epochs(run)
    return _of_epoch(run, epochs[-1]) if epochs else _kept(run, "model")


def _points(run: Run) -> list[dict[str, float]]:
    seed = run.config().training.seed
    means = [_of_epoch(run, epoch).mean(axis=1) for epoch in kept_epochs(run)]
    return [
        {"seed": seed, "epoch": epoch, "polarity": float(mean[0]), "semantic": float(mean[1])}
        for epoch, mean in zip(kept_epochs(run), means, strict=True)
    ]


def _of_epoch(run: Run, epoch: int) -> Numbers:
    return _kept(run, f"epoch-{epoch:03d}")


def _kept(run: Run, what: str) -> Numbers:
    """P and S (2, Q) of one state of the run, kept in its folder once they are known."""
    name = f"measured/polarity-{what}"
    known = run.array(name)
    if known is None:
        task = _task(run.folder)
        known = task.scores(_array(run, "embeddings_after") if what == "model" else _epoch_vectors(run, what, task))
        run.write_array(name, known)
    return np.array(known)


def _epoch_vectors(run: Run, what: str, task: _Task) -> Vectors:
    """(U, D) vectors of an epoch; raises RunError where the run did not keep those of every sentence."""
    texts = _array(run, TEXTS)
    vectors = _array(run, name_of(int(what.removeprefix("epoch-"))))
    needed = np.concatenate([task.queries, task.pool])
    if not np.isin(needed, texts).all():
        raise RunError(
            f"run {run.id}: it kept {len(texts):,} texts of each epoch and not all its sentences are among them; "
            "raise evaluation.epoch_texts"
        )
    whole = np.zeros((int(max(needed.max(), texts.max())) + 1, vectors.shape[1]), dtype=np.float32)
    whole[texts] = vectors
    return whole


def _batches(runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """What decides the batches of each run: equal for settings that differ in their loss or their rate alone."""
    configs = [run.config() for run in runs]
    return [
        (one.data, one.batching, one.training.seed, one.training.batch_size, one.training.epochs) for one in configs
    ]


def _seed_by_seed(first: Numbers, second: Numbers) -> Comparison:
    """`compare_seeds` on the differences (S, Q) of runs that share a seed, and so their batches and dropout."""
    found = compare_seeds(np.zeros_like(first[:1]), second - first, seed=DRAW_SEED)
    return replace(found, method=f"{found.method}, seed by seed", seeds=(len(first), len(second)))


def _balances(sides: Sequence[_Scores]) -> tuple[Numbers, Numbers | None]:
    """The balance of every seed of all sides (S,), and of drawn queries (B, S); queries are drawn for all alike."""
    tables = np.concatenate([side.tables for side in sides])  # (S, 2, Q)
    reference, floors = sides[0].reference, sides[0].floors
    count = tables.shape[2]
    whole = combine_many(tables.mean(axis=2).T, reference[1].mean(), floors)
    if count < 2:
        return whole, None
    blocks = []
    for weights in drawn_weights(np.arange(count), DRAWS, DRAW_SEED):
        means = np.stack([weights @ tables[:, row].T for row in (0, 1)]) / count  # (2, b, S)
        blocks.append(combine_many(means, (weights @ reference[1])[:, None] / count, floors))
    return whole, np.concatenate(blocks)


def _sentences(run: Run, path: str | None, part: str) -> tuple[list[str], list[str]]:
    """The sentences of a part with their classes. Raises RunError where the run has no such file.

    Where pairs were drawn from sentences it is the file of these that counts, which lies beside that of the pairs.
    """
    if path is None or not Path(path).is_file():
        raise RunError(f"run {run.id}: its {part} sentences are gone ({path}); reproduce the recipe again")
    drawn_from = Path(path).with_name(SENTENCES_OF.format(part))
    table = read_table(drawn_from if drawn_from.is_file() else Path(path))
    return table.columns["text"], table.columns["label"]


def _array(run: Run, name: str) -> Vectors:
    found = run.array(name)
    if found is None:
        raise RunError(f"run {run.id}: it has no {name}, so polarity cannot be measured; train it again")
    return np.array(found)

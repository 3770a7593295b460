"""What models trained on inference are measured by: similarity data sets, and the article's ten sentences."""

# S seeds, N pairs of a task, B draws, D dimensions

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core.comparison import When
from bsc_core.config import EncoderConfig
from bsc_core.data.tables import read_table
from bsc_core.data.texts import TextTable
from bsc_core.encoders import embed
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.bootstrap import Interval
from bsc_core.evaluation.drawn_pairs import ScoredPairs
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.retrieval import Vectors, unit_rows
from bsc_core.evaluation.significance import Comparison, compare_draws
from bsc_core.evaluation.ten_sentences import GOLD_PAIRS, TEN_SENTENCES, sentence_map
from bsc_core.recipes.measures_drawn import DRAW_SEED, defined, drawn_interval, drawn_weights
from bsc_core.recipes.reproducing import BESIDE
from bsc_core.runs import Run

AVERAGE = "sts"
"""The plain mean of the tasks' Spearman."""
TEN_METRICS = ("ten_auc", "ten_gap")
PAIR_DRAWS = 2000
LEFT, RIGHT = np.triu_indices(len(TEN_SENTENCES), 1)
GOLD = np.asarray([pair in GOLD_PAIRS for pair in zip(LEFT.tolist(), RIGHT.tolist(), strict=True)])


@dataclass(frozen=True)
class NLIMeasure:
    """Spearman on data sets of graded pairs, and how the ten sentences lie, both on test.

    tasks: names of the recipe's data sets `beside`, each with a test part. Metrics: each task's name, its Spearman;
    `sts`, their mean; `ten_auc`, the chance that one of the three gold pairs is nearer than one of the 42 others;
    `ten_gap`, the mean cosine of the gold pairs less that of the others. Intervals of the latter two draw the 45 pairs.
    """

    tasks: tuple[str, ...] = ("stsb", "sick")

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Means over seeds and pairs with their intervals; nothing for dev."""
        known = [name for name in metrics if split == "test" and name in self.metrics]
        return {name: _inside(drawn_interval(*self._draws(_distinct(runs, when), name)), name) for name in known}

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, whens: tuple[When, When]
    ) -> Comparison:
        """What the second setting has over the first. Raises DataError for a metric that is not measured here."""
        if split != "test" or metric not in self.metrics:
            raise DataError(f"{metric!r} on {split} is not measured here; there are {', '.join(self.metrics)} on test")
        one, two = (_distinct(runs, when) for runs, when in zip((first, second), whens, strict=True))
        whole, drawn = self._draws([*one, *two], metric)
        count = len(GOLD) if metric in TEN_METRICS else self._pairs(one[0], metric)
        return compare_draws(whole, defined(drawn), len(one), groups=count, seed=DRAW_SEED)

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """The ten sentences of each seed: gold pairs among the nearest three, margin and the others' mean; and a map.

        `cosines`: (10, 10), the mean over seeds.
        """
        maps = [sentence_map(_ten(run, when)) for run, when in _distinct(runs, when)]
        return {
            "found": [found.found for found in maps],
            "margin": [found.margin for found in maps],
            "others": [found.others for found in maps],
            "cosines": np.mean([found.cosines for found in maps], axis=0).round(4).tolist(),
        }

    @property
    def metrics(self) -> tuple[str, ...]:
        """What can be measured."""
        return (*self.tasks, AVERAGE, *TEN_METRICS)

    def _tasks_of(self, metric: str) -> tuple[str, ...]:
        return self.tasks if metric == AVERAGE else (metric,)

    def _pairs(self, run: tuple[Run, When], metric: str) -> int:
        return sum(len(_task(run[0], name).scores) for name in self._tasks_of(metric))

    def _draws(self, runs: Sequence[tuple[Run, When]], metric: str) -> tuple[Numbers, Numbers]:
        """The metric of every run (S,), and of drawn pairs (B, S); the pairs are drawn for all runs alike."""
        if metric in TEN_METRICS:
            return _ten_draws([_ten(run, when) for run, when in runs], metric)
        found = [_task_draws(runs, name, seed) for seed, name in enumerate(self._tasks_of(metric))]
        whole, drawn = (np.mean(side, axis=0) for side in zip(*found, strict=True))
        return whole, drawn


@dataclass(frozen=True, eq=False)
class _Task:
    """Graded pairs: texts (N,) twice, scores (N,) of people, in [0, 1]."""

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    scores: Numbers


def _task(run: Run, name: str) -> _Task:
    """A data set beside the run. Raises RunError where the run knows none of this name, or its file is gone."""
    sections: Mapping[str, Mapping[str, Any]] = run.read_json(BESIDE) or {}
    path = Path(sections[name]["test"]) if name in sections else None
    if path is None or not path.is_file():
        raise RunError(f"run {run.id}: there is no {name} beside it to measure on; reproduce the recipe again")
    columns = read_table(path).columns
    scores = np.asarray([float(label) for label in columns["label"]])
    return _Task(path.parent.name, tuple(columns["query"]), tuple(columns["document"]), scores)


def _task_draws(runs: Sequence[tuple[Run, When]], name: str, seed: int) -> tuple[Numbers, Numbers]:
    """Spearman of a task: (S,) and (B, S). Pairs of one first sentence are drawn together."""
    task = _task(runs[0][0], name)
    pairs = [ScoredPairs(_cosines(run, when, task), task.scores) for run, when in runs]
    blocks = [
        np.stack([one.drawn("spearman", weights) for one in pairs], axis=1)
        for weights in drawn_weights(task.left, PAIR_DRAWS, DRAW_SEED + seed)
    ]
    return np.asarray([one.metrics["spearman"] for one in pairs], dtype=np.float64), np.concatenate(blocks)


def _ten_draws(vectors: Sequence[Vectors], metric: str) -> tuple[Numbers, Numbers]:
    units = [unit_rows(one).astype(np.float64) for one in vectors]
    cosines = [(one @ one.T)[LEFT, RIGHT] for one in units]  # (45,)
    every = np.ones((1, len(GOLD)))
    weights = np.concatenate([every, *drawn_weights(np.arange(len(GOLD)), PAIR_DRAWS, DRAW_SEED)])
    columns = [_auc(one, weights) if metric == "ten_auc" else _gap(one, weights) for one in cosines]
    table = np.stack(columns, axis=1)
    return table[0], table[1:]


def _auc(cosines: Numbers, weights: Numbers) -> Numbers:
    return ScoredPairs(cosines, GOLD.astype(np.float64)).drawn("auc", weights)


def _gap(cosines: Numbers, weights: Numbers) -> Numbers:
    """(B,) mean cosine of the gold pairs drawn less that of the others; NaN where either has none."""
    means: list[Numbers] = []
    for side in (GOLD, ~GOLD):
        count = (weights * side).sum(axis=1)
        total = weights @ (side * cosines)
        means.append(np.divide(total, count, out=np.full(len(weights), np.nan), where=count > 0))
    gap: Numbers = means[0] - means[1]
    return gap


def _inside(found: Interval, metric: str) -> Interval:
    """The interval within what the metric can be: seeds that are drawn apart may lead beyond it."""
    if found.low is None or found.high is None or metric == "ten_gap":
        return found
    return replace(found, low=max(found.low, 0.0 if metric == "ten_auc" else -1.0), high=min(found.high, 1.0))


def _distinct(runs: Sequence[Run], when: When) -> list[tuple[Run, When]]:
    """Before training all seeds are one encoder, of which the first run tells."""
    return [(run, when) for run in (runs[:1] if when == "before" else runs)]


def _encoder(run: Run, when: When) -> EncoderConfig:
    """The encoder of a run, or what it started from."""
    config = run.config().encoder.model_copy(update={"lora": None})
    return config if when == "before" else config.model_copy(update={"name": str(run.model_folder)})


def _cosines(run: Run, when: When, task: _Task) -> Numbers:
    """(N,) cosines of the task's pairs, kept in the run's folder once they are known."""
    name = f"measured/{task.name}-{when}"
    known = run.array(name)
    if known is None:
        texts, ids = TextTable.from_texts([*task.left, *task.right])
        units = unit_rows(embed(_encoder(run, when), texts))
        left, right = np.split(ids, 2)
        known = np.einsum("nd,nd->n", units[left], units[right]).astype(np.float64)
        run.write_array(name, known)
    return np.array(known)


def _ten(run: Run, when: When) -> Vectors:
    """(10, D) vectors of the ten sentences, kept in the run's folder once they are known."""
    name = f"measured/ten-{when}"
    known = run.array(name)
    if known is None:
        known = embed(_encoder(run, when), TextTable(TEN_SENTENCES))
        run.write_array(name, known)
    return np.array(known)

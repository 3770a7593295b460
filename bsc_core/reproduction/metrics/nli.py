"""Metrics of models trained on inference: similarity datasets, and the article's ten sentences."""

# S seeds, N pairs of a task, B resamples, D dimensions

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core.data.dataset import TextTable
from bsc_core.data.io.tables import read_table
from bsc_core.encoders import embed, embed_initial
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.probes.ten_sentences import GOLD_PAIRS, TEN_SENTENCES, sentence_map
from bsc_core.evaluation.stats.bootstrap import Interval, defined_resamples, mean_interval
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs
from bsc_core.evaluation.stats.significance import Comparison, compare_resamples
from bsc_core.neighbors import finite_unit_rows
from bsc_core.reproduction.metrics.source import BOOTSTRAP_SEED, bootstrap_weights, cached_array
from bsc_core.run_results import When
from bsc_core.runs import Run
from bsc_core.types import Numbers, Vectors

EXTRA_DATA_FILE = "beside"
"""File of a run that names the additional datasets on which it is evaluated."""
AVERAGE = "sts"
"""The mean of the tasks' Spearman correlations."""
TEN_METRICS = ("ten_auc", "ten_gap")
TASKS = ("stsb", "sick")
NLI_METRICS = (*TASKS, AVERAGE, *TEN_METRICS)
PAIR_RESAMPLES = 2000
LEFT, RIGHT = np.triu_indices(len(TEN_SENTENCES), 1)
GOLD = np.asarray([pair in GOLD_PAIRS for pair in zip(LEFT.tolist(), RIGHT.tolist(), strict=True)])


class NLIMetrics:
    """Spearman on datasets of graded pairs, and the similarities of the ten sentences, both on test.

    Metrics: the name of each of TASKS, which are in the claim's `extra_data` with a test part, for its Spearman; `sts`,
    their mean; `ten_auc`, the probability that one of the three gold pairs is closer than one of the 42 others;
    `ten_gap`, the mean cosine of the gold pairs minus that of the others. Intervals of the last two resample the 45
    pairs.
    """

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Return means over seeds and pairs with their intervals; empty for dev."""
        known = [name for name in metrics if split == "test" and name in NLI_METRICS]
        runs_and_states = _distinct(runs, when)
        return {
            name: _clip(mean_interval(*_resample(runs_and_states, name), seed=BOOTSTRAP_SEED), name) for name in known
        }

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, when: tuple[When, When]
    ) -> Comparison:
        """Compare two settings, second minus first.

        Raises:
            DataError: The metric is not available.
        """
        if split != "test" or metric not in NLI_METRICS:
            raise DataError(f"{metric!r} on {split} is not available; choose among {', '.join(NLI_METRICS)} on test")
        one, two = (_distinct(runs, when) for runs, when in zip((first, second), when, strict=True))
        values, resampled = _resample([*one, *two], metric)
        pairs = [GOLD] if metric in TEN_METRICS else [_task(one[0][0], name).scores for name in _tasks_of(metric)]
        count = sum(map(len, pairs))
        return compare_resamples(values, defined_resamples(resampled), len(one), groups=count, seed=BOOTSTRAP_SEED)

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """Return the ten sentences of each seed: gold pairs among the closest three, margin and mean of the others.

        `cosines`: (10, 10), the mean over seeds.
        """
        maps = [sentence_map(_ten(run, when)) for run, when in _distinct(runs, when)]
        return {
            "found": [one.matches for one in maps],
            "margin": [one.margin for one in maps],
            "others": [one.others for one in maps],
            "cosines": np.mean([one.cosines for one in maps], axis=0).round(4).tolist(),
        }


def _tasks_of(metric: str) -> tuple[str, ...]:
    return TASKS if metric == AVERAGE else (metric,)


def _resample(runs: Sequence[tuple[Run, When]], metric: str) -> tuple[Numbers, Numbers]:
    """Return the metric of every run on all pairs (S,) and on resampled pairs (B, S), the same for all runs."""
    if metric in TEN_METRICS:
        return _resample_ten([_ten(run, when) for run, when in runs], metric)
    tasks = [_resample_task(runs, name, seed) for seed, name in enumerate(_tasks_of(metric))]
    values, resampled = (np.mean(side, axis=0) for side in zip(*tasks, strict=True))
    return values, resampled


@dataclass(frozen=True, eq=False)
class _Task:
    """Graded pairs: the texts (N,) of both sides, and human scores (N,) in [0, 1]."""

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    scores: Numbers


def _task(run: Run, name: str) -> _Task:
    """Return an extra dataset of the run. Raises RunError if the run names none, or its file is missing."""
    sections: Mapping[str, Mapping[str, Any]] = run.read_json(EXTRA_DATA_FILE) or {}
    path = Path(sections[name]["test"]) if name in sections else None
    if path is None or not path.is_file():
        raise RunError(f"run {run.id}: the dataset {name} to evaluate on is missing; reproduce the claim again")
    columns = read_table(path).columns
    scores = np.asarray([float(label) for label in columns["label"]])
    return _Task(path.parent.name, tuple(columns["query"]), tuple(columns["document"]), scores)


def _resample_task(runs: Sequence[tuple[Run, When]], name: str, seed: int) -> tuple[Numbers, Numbers]:
    """Return Spearman of a task, (S,) and (B, S). Pairs with the same first sentence are resampled together."""
    task = _task(runs[0][0], name)
    pairs = [ScoredPairs(_cosines(run, when, task), task.scores) for run, when in runs]
    blocks = [
        np.stack([one.resampled("spearman", weights) for one in pairs], axis=1)
        for weights in bootstrap_weights(task.left, PAIR_RESAMPLES, BOOTSTRAP_SEED + seed)
    ]
    return np.asarray([one.metrics["spearman"] for one in pairs], dtype=np.float64), np.concatenate(blocks)


def _resample_ten(vectors: Sequence[Vectors], metric: str) -> tuple[Numbers, Numbers]:
    """Return a metric of the ten sentences on all 45 pairs (S,) and on resampled pairs (B, S)."""
    units = [finite_unit_rows(one).astype(np.float64) for one in vectors]
    cosines = [(one @ one.T)[LEFT, RIGHT] for one in units]  # (45,)
    every = np.ones((1, len(GOLD)))
    weights = np.concatenate([every, *bootstrap_weights(np.arange(len(GOLD)), PAIR_RESAMPLES, BOOTSTRAP_SEED)])
    if metric == "ten_gap":
        columns = [_gap(one, weights) for one in cosines]
    else:
        columns = [ScoredPairs(one, GOLD.astype(np.float64)).resampled("auc", weights) for one in cosines]
    table = np.stack(columns, axis=1)
    return table[0], table[1:]


def _gap(cosines: Numbers, weights: Numbers) -> Numbers:
    """Return (B,) the mean cosine of the gold pairs minus that of the others; NaN where a resample lacks either."""
    gold, others = (
        np.divide(weights @ (side * cosines), count, out=np.full(len(weights), np.nan), where=count > 0)
        for side, count in ((side, (weights * side).sum(axis=1)) for side in (GOLD, ~GOLD))
    )
    gap: Numbers = gold - others
    return gap


def _clip(interval: Interval, metric: str) -> Interval:
    """Clip an interval to the range of its metric, which the spread of the seeds may exceed."""
    if interval.low is None or interval.high is None or metric == "ten_gap":
        return interval
    return replace(interval, low=max(interval.low, 0.0 if metric == "ten_auc" else -1.0), high=min(interval.high, 1.0))


def _distinct(runs: Sequence[Run], when: When) -> list[tuple[Run, When]]:
    """Return the runs to evaluate; before training, the first one suffices unless seeds start from random layers."""
    same = when == "before" and not runs[0].config().encoder.reinit_layers
    return [(run, when) for run in (runs[:1] if same else runs)]


def _embed(run: Run, when: When, texts: TextTable) -> Vectors:
    """Return (N, D) vectors of texts by the encoder of a run, or by the one that it started from."""
    config = run.config()
    encoder = config.encoder.model_copy(update={"lora": None})
    if when == "after":
        return embed(encoder.model_copy(update={"name": str(run.model_folder)}), texts)
    return embed_initial(encoder, texts, config.training.seed)


def _cosines(run: Run, when: When, task: _Task) -> Numbers:
    """Return (N,) cosines of the task's pairs, cached in the run folder."""

    def compute() -> Numbers:
        texts, ids = TextTable.from_texts([*task.left, *task.right])
        units = finite_unit_rows(_embed(run, when, texts))
        left, right = np.split(ids, 2)
        cosines: Numbers = np.einsum("nd,nd->n", units[left], units[right]).astype(np.float64)
        return cosines

    return cached_array(run, f"measured/{task.name}-{when}", compute)


def _ten(run: Run, when: When) -> Vectors:
    """Return (10, D) vectors of the ten sentences, cached in the run folder."""
    return cached_array(run, f"measured/ten-{when}", lambda: _embed(run, when, TextTable(TEN_SENTENCES)))

"""Runs against each other: what each was measured to be, kept in its folder, and whether a difference is one.

A run keeps the value of every query and the cosine of every pair, of the untrained encoder and of its own model, so
that comparing needs neither its data nor its vectors. Of a run that was written without them both are read.
"""

# N pairs, Q queries

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.data import SPLIT_SEED, ExperimentData
from bsc_core.errors import BscError, DataError, RunError
from bsc_core.evaluation import Comparison, Interval, QueryValues, bootstrap_seeds, compare, compare_seeds
from bsc_core.evaluation.bootstrap import fitting_draws
from bsc_core.evaluation.drawn_pairs import compare_pairs, mean_of_pairs
from bsc_core.evaluation.measured import CELLS, INTERVAL_SEED, Measured, intervals, measure_split
from bsc_core.preparation.prepare import load_experiment
from bsc_core.runs import Run

When = Literal["before", "after"]
"""Before training is the untrained encoder that the run started from, after it the run's best model."""
WHEN: tuple[When, ...] = ("before", "after")
INTERVALS = "evaluation/intervals"
MEASURED = "evaluation/measured"
FIXED = ("query", "positives", "length")


def keep_measured(run: Run, data: ExperimentData) -> None:
    """Write what was measured of every query and pair into the run's folder, and the intervals of every metric.

    The run must have its vectors and its metrics; data: what it was made from.
    """
    about: dict[str, dict[str, Any]] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for when in WHEN:
        about[when], ranges[when] = {}, {}
        for split in ("dev", "test"):
            if split in data.parts and run.array(f"embeddings_{when}") is not None:
                found = _from_vectors(run, split, when, data)
                about[when][split] = _keep(run, found, when)
                drawn = intervals(found, seed=INTERVAL_SEED)
                ranges[when][split] = {name: [span.low, span.high] for name, span in drawn.items()}
    run.write_json(MEASURED, about)
    run.write_json(INTERVALS, ranges)
    low, high = ranges["after"].get("dev", {}).get(run.status().metric_name or "", (None, None))
    run.update_status(metric_low=low, metric_high=high)


def run_measured(run: Run, split: str = "dev", *, when: When = "after", data: ExperimentData | None = None) -> Measured:
    """What a run was measured to be on a split; `when="before"` is the untrained encoder it started from.

    data: the run's data where the caller has them, used for a run that keeps no values of its queries. Raises RunError
    while the run has not measured that, when it has no such split, or when its data are gone or have changed.
    """
    about = (run.read_json(MEASURED) or {}).get(when) or {}
    if split in about:
        return _kept(run, split, when, about[split])
    if about:
        raise RunError(f"run {run.id}: it has no {split} pairs; it was measured on {', '.join(about)}")
    return _from_vectors(run, split, when, data)


def metric_intervals(
    run: Run, split: str = "dev", *, when: When = "after", data: ExperimentData | None = None
) -> dict[str, Interval]:
    """The metrics of one run with their 95% intervals over queries; drawn now for a run that keeps none.

    Counts, thresholds and metrics of the loss, such as `class_accuracy`, have none. Raises RunError as `run_measured`
    does.
    """
    kept = ((run.read_json(INTERVALS) or {}).get(when) or {}).get(split)
    if kept is None:
        return intervals(run_measured(run, split, when=when, data=data), seed=INTERVAL_SEED)
    values = _metrics(run, when).get(split) or {}
    known = {name: value for name, value in values.items() if value is not None}
    return {name: Interval(known[name], *span) for name, span in kept.items() if name in known}


def compare_runs(
    first: Sequence[Run],
    second: Sequence[Run],
    metric: str,
    split: str = "dev",
    *,
    seed: int = INTERVAL_SEED,
    first_when: When = "after",
    second_when: When = "after",
) -> Comparison:
    """What the second setting has over the first by a metric. Each holds the runs of one setting, a training seed each.

    A metric that each query has is compared query by query: `compare` for one run on both sides, else `compare_seeds`.
    Metrics of all pairs, such as `spearman`, go through `compare_pairs`, the pairs of one query being drawn together,
    with the thresholds each run chose on dev. An untrained encoder that several runs share counts once. Raises
    DataError for runs measured on other data or a metric that is not defined, RunError as `run_measured` does.
    """
    return compare_measured(
        [run_measured(run, split, when=first_when) for run in first],
        [run_measured(run, split, when=second_when) for run in second],
        metric,
        seed=seed,
    )


def compare_measured(
    first: Sequence[Measured], second: Sequence[Measured], metric: str, *, seed: int = INTERVAL_SEED
) -> Comparison:
    """`compare_runs` on what the runs were measured to be. Raises DataError as it does."""
    one, two = _distinct(first), _distinct(second)
    check_same([*one, *two])
    if all(found.has_queries_of(metric) for found in (*one, *two)):
        tables = [np.stack([found.of_queries(metric) for found in side]) for side in (one, two)]
        draws = fitting_draws(tables[0].shape[1], CELLS)
        if len(one) == len(two) == 1:
            return compare(tables[0][0], tables[1][0], seed=seed, draws=draws)
        return compare_seeds(tables[0], tables[1], seed=seed, draws=draws)
    pairs = [[found.of_pairs(metric) for found in side] for side in (one, two)]
    return compare_pairs(pairs[0], pairs[1], metric, one[0].groups, seed=seed)


def setting_interval(runs: Sequence[Measured], metric: str, *, seed: int = INTERVAL_SEED) -> Interval:
    """The mean of a metric over the runs of a setting, a training seed each, with its interval over seeds and queries.

    Raises DataError as `compare_measured` does.
    """
    own = _distinct(runs)
    check_same(own)
    if all(found.has_queries_of(metric) for found in own):
        return bootstrap_seeds(np.stack([found.of_queries(metric) for found in own]), seed=seed).both
    return mean_of_pairs([found.of_pairs(metric) for found in own], metric, own[0].groups, seed=seed)


def check_same(measured: Sequence[Measured]) -> None:
    """Raise DataError unless all were measured on the same rows and documents."""
    if not measured:
        raise DataError("comparison: no run is given; give at least one on each side")
    if len({found.digest for found in measured}) > 1:
        sizes = " and ".join(dict.fromkeys(f"{len(found.cosines):,}" for found in measured)) + " pairs"
        raise DataError(
            f"comparison: the runs were measured on other {measured[0].split} data ({sizes}); compare runs whose "
            f"{measured[0].split} pairs and corpus are the same"
        )


def compared_metrics(measured: Sequence[Measured]) -> list[str]:
    """The metrics by which all of these can be compared, those of all pairs first."""
    defined = [{name for name, value in found.metrics.items() if value is not None} for found in measured]
    return [name for name in measured[0].metrics if all(name in names for names in defined)] if measured else []


def _distinct(side: Sequence[Measured]) -> list[Measured]:
    """Without those whose cosines and values repeat another's: runs that start from one encoder share what it gives."""
    kept: list[Measured] = []
    for found in side:
        if not any(_alike(found, other) for other in kept):
            kept.append(found)
    return kept


def _alike(one: Measured, other: Measured) -> bool:
    return one.digest == other.digest and np.array_equal(one.cosines, other.cosines)


def _metrics(run: Run, when: When) -> dict[str, dict[str, float | None]]:
    """By split. Raises RunError while they are not written."""
    found: dict[str, dict[str, float | None]] | None = run.read_json(f"evaluation/{when}")
    if not found:
        state = run.status().state
        raise RunError(f"run {run.id}: it has no metrics from {when} training; it is {state}, choose one that is done")
    return found


def _from_vectors(run: Run, split: str, when: When, data: ExperimentData | None) -> Measured:
    """Measured anew from the vectors that the run keeps."""
    metrics, vectors = _metrics(run, when), run.array(f"embeddings_{when}")
    if vectors is None:
        raise RunError(f"run {run.id}: its vectors from {when} training are gone, so nothing can be compared with it")
    rows = _data(run) if data is None else data
    part = rows.parts.get(split)
    if part is None:
        raise RunError(f"run {run.id}: it has no {split} pairs; it was measured on {', '.join(metrics)}")
    config = run.config().evaluation
    return measure_split(vectors, part, rows.corpus, split=split, k=config.k, dev=metrics["dev"])


def _data(run: Run) -> ExperimentData:
    """The run's data as its config names them. Raises RunError where they are gone or have changed."""
    config = run.config().data
    try:
        data = load_experiment(config, seed=SPLIT_SEED)
    except BscError as fault:
        raise RunError(
            f"run {run.id}: its data cannot be read any more ({fault}), and it keeps no values of its queries; bring "
            f"{Path(config.train).name} back, or launch it again"
        ) from fault
    known = run.read_json("texts")
    if known and known["digest"] != data.texts.digest:
        raise RunError(f"run {run.id}: its data files have changed since it measured; launch it again")
    return data


def _keep(run: Run, found: Measured, when: When) -> dict[str, Any]:
    """Write the arrays of one split; returns what else there is to know of it."""
    place = f"evaluation/{when}-{found.split}"
    labels = np.full(len(found.cosines), np.nan, dtype=np.float32) if found.labels is None else found.labels
    run.write_array(f"{place}-pairs", _columns({"cosine": found.cosines, "label": labels, "group": found.groups}))
    if found.queries is not None:
        own = found.queries
        fixed = {"query": np.asarray(own.query), "positives": own.positives, "length": own.length}
        run.write_array(f"{place}-queries", _columns(fixed | dict(own.values)))
    return {
        "digest": found.digest,
        "labelled": found.labels is not None,
        "threshold": found.threshold,
        "decision": found.decision,
        "accuracy_decision": found.accuracy_decision,
    }


def _columns(columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Columns of one length as a structured array."""
    rows = len(next(iter(columns.values())))
    table = np.empty(rows, dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        table[name] = column
    return table


def _kept(run: Run, split: str, when: When, about: dict[str, Any]) -> Measured:
    """What `_keep` wrote."""
    pairs = run.array(f"evaluation/{when}-{split}-pairs")
    queries = run.array(f"evaluation/{when}-{split}-queries")
    if pairs is None:
        raise RunError(f"run {run.id}: evaluation/{when}-{split}-pairs.npy is missing from its folder")
    return Measured(
        split=split,
        digest=about["digest"],
        queries=None if queries is None else _query_values(queries),
        cosines=np.array(pairs["cosine"]),
        labels=np.array(pairs["label"]) if about["labelled"] else None,
        groups=np.array(pairs["group"]),
        threshold=about["threshold"],
        decision=about["decision"],
        accuracy_decision=about["accuracy_decision"],
    )


def _query_values(table: NDArray[Any]) -> QueryValues:
    names = [name for name in table.dtype.names or () if name not in FIXED]
    values = {name: np.array(table[name]) for name in names}
    return QueryValues(table["query"].tolist(), values, np.array(table["positives"]), np.array(table["length"]))

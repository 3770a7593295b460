"""Evaluation results of runs: saving to the run folder, loading, and comparison.

A run stores the metrics of every query and the cosine of every pair, before and after training, so that a comparison
needs neither the data nor the vectors. For runs without these files, results are computed from data and vectors.
"""

# N pairs, Q queries

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.data import DatasetSplits
from bsc_core.errors import BscError, RunError
from bsc_core.evaluation import Comparison, Evaluator, Interval, QueryValues
from bsc_core.evaluation.comparison import compare_results
from bsc_core.evaluation.evaluator import (
    INTERVAL_SEED,
    EvalResult,
    evaluate_split,
    result_intervals,
    split_digest,
)
from bsc_core.evaluation.metrics.ranking import Metrics
from bsc_core.preparation.experiment import load_experiment
from bsc_core.runs import Run
from bsc_core.runs.documents import EVALUATION_SIZES, INTERVALS, TEXTS

When = Literal["before", "after"]
"""`before`: the encoder that the run started from; `after`: the run's best model."""
WHEN: tuple[When, ...] = ("before", "after")
COUNTS = ("query", "positives", "length")
MAX_ROWS, MAX_COLUMNS, MAX_NUMBERS = 10_000_000, 256, 20_000_000


def save_results(run: Run, data: DatasetSplits) -> None:
    """Write the results on dev and test, and the intervals of every metric, to a run folder that has vectors."""
    fields: dict[str, dict[str, Any]] = {when: {} for when in WHEN}
    limits: dict[str, dict[str, Any]] = {when: {} for when in WHEN}
    for when in WHEN:
        for split in ("dev", "test"):
            if split in data.splits and run.embeddings(when) is not None:
                result = _from_vectors(run, split, when, data)
                fields[when][split] = _write(run, result, when)
                intervals = result_intervals(result, seed=INTERVAL_SEED)
                limits[when][split] = {name: [interval.low, interval.high] for name, interval in intervals.items()}
    run.write_json(EVALUATION_SIZES, fields)
    run.write_json(INTERVALS, limits)
    low, high = limits["after"].get("dev", {}).get(run.status().metric_name or "", (None, None))
    run.update_status(metric_low=low, metric_high=high)


def load_results(
    run: Run, split: str = "dev", *, when: When = "after", data: DatasetSplits | None = None
) -> EvalResult:
    """Return the result of a run on a split, dev or test.

    Args:
        run: The run.
        split: dev or test.
        when: Before or after training.
        data: The run's data, if already loaded; used for a run without stored results.

    Raises:
        RunError: The run is not evaluated yet, has no such split, or its data are missing or have changed.
    """
    stored = (run.read_json(EVALUATION_SIZES) or {}).get(when) or {}
    if split in stored:
        return _read(run, split, when, stored[split])
    if stored:
        raise RunError(f"run {run.id} has no {split} pairs; it was evaluated on {', '.join(stored)}")
    return _from_vectors(run, split, when, data)


def run_intervals(
    run: Run, split: str = "dev", *, when: When = "after", data: DatasetSplits | None = None
) -> dict[str, Interval]:
    """Return the metrics of one run with 95% intervals over queries; computed if the run stores none.

    Counts, thresholds and metrics of the loss, such as `class_accuracy`, have no interval. Arguments and errors as in
    `load_results`.
    """
    stored = ((run.read_json(INTERVALS) or {}).get(when) or {}).get(split)
    if stored is None:
        return result_intervals(load_results(run, split, when=when, data=data), seed=INTERVAL_SEED)
    values = _metrics(run, when).get(split) or {}
    defined = {name: value for name, value in values.items() if value is not None}
    return {name: Interval(defined[name], *span) for name, span in stored.items() if name in defined}


def metrics_by_dimension(
    run: Run, dimensions: Sequence[int], split: str = "dev", *, when: When = "after", data: DatasetSplits | None = None
) -> dict[int, Metrics]:
    """Return the metrics of the run's vectors truncated to their first d coordinates, for each d that they have.

    Arguments and errors as in `load_results`.
    """
    vectors = run.embeddings(when)
    if vectors is None:
        raise RunError(f"run {run.id}: its vectors from {when} training are missing; launch it again to compare it")
    data = run_data(run) if data is None else data
    if split not in data.splits:
        raise RunError(f"run {run.id} has no {split} pairs; it was evaluated on {', '.join(data.splits)}")
    evaluator = Evaluator(data, run.config().evaluation)
    return {
        one: evaluator.evaluate(np.ascontiguousarray(vectors[:, :one]))[split]
        for one in sorted(set(dimensions))
        if one <= vectors.shape[1]
    }


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
    """Compare two settings, each with one run per seed, as `compare_results` does; errors as in `load_results` too."""
    one = [load_results(run, split, when=first_when) for run in first]
    two = [load_results(run, split, when=second_when) for run in second]
    return compare_results(one, two, metric, seed=seed)


def _metrics(run: Run, when: When) -> dict[str, dict[str, float | None]]:
    """Return the metrics by split."""
    metrics = run.evaluation(when)
    if not metrics:
        state = run.status().state
        raise RunError(f"run {run.id} has no metrics from {when} training; it is {state}. Choose a run that is done")
    return metrics


def _from_vectors(run: Run, split: str, when: When, data: DatasetSplits | None) -> EvalResult:
    """Evaluate the stored vectors of the run."""
    metrics, vectors = _metrics(run, when), run.embeddings(when)
    if vectors is None:
        raise RunError(f"run {run.id}: its vectors from {when} training are missing; launch it again to compare it")
    data = run_data(run) if data is None else data
    pairs = data.splits.get(split)
    if pairs is None:
        raise RunError(f"run {run.id} has no {split} pairs; it was evaluated on {', '.join(metrics)}")
    k = run.config().evaluation.k
    return evaluate_split(vectors, pairs, data.corpus, split=split, k=k, dev=metrics["dev"])


def run_data(run: Run) -> DatasetSplits:
    """Load the data of the run's config.

    Raises:
        RunError: The data are missing or have changed.
    """
    config = run.config().data
    try:
        data = load_experiment(run.data_config(config))
    except BscError as error:
        raise RunError(
            f"run {run.id}: its data cannot be read ({error}), and it stores no results of its queries; restore "
            f"{Path(config.train).name}, or launch it again"
        ) from error
    check_unchanged(run, data)
    return data


def check_unchanged(run: Run, data: DatasetSplits) -> None:
    """Raise RunError if the texts, or the pairs that the run was evaluated on, have changed."""
    stored = run.read_json(TEXTS)
    results = (run.read_json(EVALUATION_SIZES) or {}).get("after") or {}
    evaluated = [name for name in data.splits if name in results]
    if (stored and stored["digest"] != data.texts.digest) or any(
        results[name]["digest"]
        not in {split_digest(data.splits[name], data.corpus, of_all_decisions=every) for every in (False, True)}
        for name in evaluated
    ):
        raise RunError(f"run {run.id}: its data files have changed since it was evaluated; launch it again")


def _write(run: Run, result: EvalResult, when: When) -> dict[str, Any]:
    """Write the arrays of one result and return its other fields."""
    name = f"evaluation/{when}-{result.split}"
    labels = np.full(len(result.cosines), np.nan, dtype=np.float32) if result.labels is None else result.labels
    run.write_array(f"{name}-pairs", _columns({"cosine": result.cosines, "label": labels, "group": result.groups}))
    if result.queries is not None:
        queries = result.queries
        counts = {"query": np.asarray(queries.query), "positives": queries.positives, "length": queries.length}
        run.write_array(f"{name}-queries", _columns(counts | dict(queries.values)))
    return {
        "digest": result.digest,
        "labeled": result.labels is not None,
        "threshold": result.threshold,
        "decision": result.decision,
        "accuracy_decision": result.accuracy_decision,
    }


def _columns(columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return columns of equal length as a structured array."""
    table = np.empty(
        len(next(iter(columns.values()))), dtype=[(name, column.dtype) for name, column in columns.items()]
    )
    for name, column in columns.items():
        table[name] = column
    return table


def _read(run: Run, split: str, when: When, fields: dict[str, Any]) -> EvalResult:
    """Read a result written by `_write`."""
    pairs = run.array(f"evaluation/{when}-{split}-pairs")
    queries = run.array(f"evaluation/{when}-{split}-queries")
    if pairs is None:
        raise RunError(f"run {run.id}: evaluation/{when}-{split}-pairs.npy is missing from its folder; launch it again")
    try:
        for table in (pairs,) if queries is None else (pairs, queries):
            _check_numbers(table)
        return EvalResult(
            split=split,
            digest=fields["digest"],
            queries=None if queries is None else _query_values(queries),
            cosines=np.array(pairs["cosine"]),
            labels=np.array(pairs["label"]) if fields.get("labeled", fields.get("labelled")) else None,
            groups=np.array(pairs["group"]),
            threshold=fields["threshold"],
            decision=fields["decision"],
            accuracy_decision=fields["accuracy_decision"],
        )
    except (LookupError, ValueError):
        raise RunError(f"run {run.id}: its evaluation {when} training on {split} is damaged; launch it again") from None


def _check_numbers(table: NDArray[Any]) -> None:
    """Raise ValueError unless the table is one row of numbers for each pair or query, with whole numbers of queries."""
    names = table.dtype.names or ("",)
    if len(names) > MAX_COLUMNS or table.size * len(names) > MAX_NUMBERS:
        raise ValueError("it has more numbers than those of a run")
    for name in names:
        kinds = "iu" if name in (*COUNTS, "group") else "fiub"
        kind = table.dtype[name] if name else table.dtype
        if table.ndim != 1 or len(table) > MAX_ROWS or not name or kind.kind not in kinds or kind.itemsize > 8:
            raise ValueError(f"the column {name!r} is not one of numbers")
    if table.dtype.itemsize > 8 * len(names):
        raise ValueError("its rows are padded")


def _query_values(table: NDArray[Any]) -> QueryValues:
    values = {name: np.array(table[name]) for name in table.dtype.names or () if name not in COUNTS}
    return QueryValues(table["query"].tolist(), values, np.array(table["positives"]), np.array(table["length"]))

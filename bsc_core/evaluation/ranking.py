"""Metrics of ranked candidate lists: each query has a few scored candidates, some of them relevant."""

# N candidates in all, Q queries

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError

Metrics = dict[str, float | None]
"""Metrics by name; None where one is not defined."""

CUTOFFS = (1, 3, 5, 10, 20, 50)


def ranking_metrics(
    query: ArrayLike,
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    k: tuple[int, ...] = CUTOFFS,
    grades: ArrayLike | None = None,
    skip_without_positive: bool = False,
) -> Metrics:
    """Rank each query's candidates by score, highest first, and average over the queries.

    query: (N,) any id, equal within a list; scores: (N,); relevant: (N,) true or false; grades: (N,), at least 0.
    Returns, in [0, 1]: `map`, the precision at each relevant candidate, averaged over the relevant ones of the list;
    `mrr`, 1 / rank of the first relevant one; `precision@k`, the relevant share of the first min(k, length) candidates;
    `has_positive@k`, 1 if one of the first k is relevant; with grades `ndcg@k` of linear gains and log2 discounts (0
    where no grade is above 0). `queries` and `queries_without_positive` are counts.

    Equal scores are ranked at their worst, the less relevant first, so no metric depends on the order of the rows. A
    query without a relevant candidate counts as 0, or is left out with `skip_without_positive`. Without any query the
    means are None. Raises DataError for a score that is NaN or for columns of unequal length.
    """
    lists = _sorted_lists(query, scores, relevant, grades)
    counted = lists.positives > 0 if skip_without_positive else np.ones(len(lists.positives), dtype=bool)
    per_query = {"map": _average_precision(lists), "mrr": _reciprocal_rank(lists)}
    for cut in k:
        hits = np.bincount(lists.owner, lists.relevant & (lists.rank <= cut), minlength=len(lists.sizes))
        per_query[f"precision@{cut}"] = hits / np.minimum(cut, lists.sizes)
        per_query[f"has_positive@{cut}"] = (hits > 0).astype(np.float64)
        if grades is not None:
            per_query[f"ndcg@{cut}"] = _ndcg(lists, cut)
    metrics: Metrics = {name: _mean(values[counted]) for name, values in per_query.items()}
    metrics["queries"] = float(counted.sum())
    metrics["queries_without_positive"] = float((lists.positives == 0).sum())
    return metrics


@dataclass(frozen=True)
class _Lists:
    """Candidates sorted by query, then rank. owner, rank (from 1), relevant, gain: (N,); sizes, positives: (Q,)."""

    owner: NDArray[np.int64]
    rank: NDArray[np.int64]
    relevant: NDArray[np.bool_]
    gain: NDArray[np.float64]
    sizes: NDArray[np.int64]
    positives: NDArray[np.int64]


def _sorted_lists(query: ArrayLike, scores: ArrayLike, relevant: ArrayLike, grades: ArrayLike | None) -> _Lists:
    numbers, truth = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    gains = truth.astype(np.float64) if grades is None else np.asarray(grades, dtype=np.float64)
    _, owner = np.unique(np.asarray(query), return_inverse=True)
    if not len(owner) == len(numbers) == len(truth) == len(gains):
        raise DataError(
            f"ranking: {len(owner)} queries, {len(numbers)} scores, {len(truth)} relevances and {len(gains)} grades; "
            "give one of each for each candidate"
        )
    if np.isnan(numbers).any():
        raise DataError(f"ranking: scores[{int(np.flatnonzero(np.isnan(numbers))[0])}] is NaN; each must be a number")
    order = np.lexsort((gains, truth, -numbers, owner))
    owner = owner[order]
    sizes = np.bincount(owner)
    starts = np.cumsum(sizes) - sizes
    return _Lists(
        owner=owner,
        rank=np.arange(len(owner)) - starts[owner] + 1,
        relevant=truth[order],
        gain=gains[order],
        sizes=sizes,
        positives=np.bincount(owner, truth[order], minlength=len(sizes)).astype(np.int64),
    )


def _average_precision(lists: _Lists) -> NDArray[np.float64]:
    found = np.cumsum(lists.relevant)  # over all lists
    earlier = np.cumsum(lists.positives) - lists.positives  # found before each list
    precision = (found - earlier[lists.owner]) / lists.rank
    total = np.bincount(lists.owner, precision * lists.relevant, minlength=len(lists.sizes))
    return total / np.maximum(lists.positives, 1)


def _reciprocal_rank(lists: _Lists) -> NDArray[np.float64]:
    best = np.zeros(len(lists.sizes))
    np.maximum.at(best, lists.owner, lists.relevant / lists.rank)
    return best


def _ndcg(lists: _Lists, cut: int) -> NDArray[np.float64]:
    """DCG@cut / ideal DCG@cut, gain = grade, discount 1 / log2(rank + 1); the ideal list is sorted by grade."""
    ideal_gain = lists.gain[np.lexsort((-lists.gain, lists.owner))]
    discount = (lists.rank <= cut) / np.log2(lists.rank + 1)
    reached = np.bincount(lists.owner, lists.gain * discount, minlength=len(lists.sizes))
    ideal = np.bincount(lists.owner, ideal_gain * discount, minlength=len(lists.sizes))
    return np.divide(reached, ideal, out=np.zeros_like(reached), where=ideal > 0)


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None

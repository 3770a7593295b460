"""Metrics of ranked candidate lists: each query has a few scored candidates, some of them relevant."""

# N candidates in all, Q queries

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import (
    CUTOFFS,
    Metrics,
    Numbers,
    Placed,
    QueryValues,
    exponential,
    query_values,
)

__all__ = ["CUTOFFS", "Metrics", "list_values", "ranking_metrics"]

LARGEST_GRADE = 1000  # 2 to this power is still a number


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
    `recall@k`, the share of the relevant ones among the first k; `has_positive@k`, 1 if there is one among them; with
    grades `ndcg@k` of linear gains and `ndcg_exponential@k` of gains 2^grade - 1, both with log2 discounts (0 where no
    grade is above 0). `queries` and `queries_without_positive` are counts. A k above a list's length takes it whole.

    Equal scores are ranked at their worst, the less relevant first, so no metric depends on the order of the rows. A
    query without a relevant candidate counts as 0, or is left out with `skip_without_positive`. Without any query, or
    any relevant candidate, the means are None; nDCG stays where there are grades. Raises DataError for a score that is
    NaN, a grade that is no gain, or for columns of unequal length.
    """
    measured = list_values(query, scores, relevant, k=k, grades=grades)
    metrics = measured.means(skip_without_positive=skip_without_positive)
    empty = int((measured.positives == 0).sum())
    metrics["queries"] = float(len(measured.positives) - (empty if skip_without_positive else 0))
    metrics["queries_without_positive"] = float(empty)
    return metrics


def list_values(
    query: ArrayLike,
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    k: tuple[int, ...] = CUTOFFS,
    grades: ArrayLike | None = None,
) -> QueryValues:
    """What `ranking_metrics` averages: each metric of each query, with the query's id, by ascending id."""
    numbers, truth = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    gains = truth.astype(np.float64) if grades is None else np.asarray(grades, dtype=np.float64)
    ids, owner = np.unique(np.asarray(query), return_inverse=True)
    _check(owner, numbers, truth, gains)
    order = np.lexsort((gains, truth, -numbers, owner))
    placed = _place(owner[order], truth[order], gains[order] if grades is not None else None)
    values = query_values(placed, k)
    return QueryValues(ids.tolist(), values, placed.total(placed.relevant).astype(np.int64), placed.length)


def _place(owner: NDArray[np.int64], relevant: NDArray[np.bool_], gains: Numbers | None) -> Placed:
    """Candidates that stand sorted by query, then rank."""
    length = np.bincount(owner).astype(np.int64)
    starts = np.cumsum(length) - length
    named = {} if gains is None else {"ndcg": gains, "ndcg_exponential": exponential(gains)}
    return Placed(owner, np.arange(len(owner)) - starts[owner] + 1, relevant, named, length)


def _check(owner: NDArray[np.int64], scores: Numbers, relevant: NDArray[np.bool_], grades: Numbers) -> None:
    if not len(owner) == len(scores) == len(relevant) == len(grades):
        raise DataError(
            f"ranking: {len(owner)} queries, {len(scores)} scores, {len(relevant)} relevances and {len(grades)} "
            "grades; give one of each for each candidate"
        )
    if np.isnan(scores).any():
        raise DataError(f"ranking: scores[{int(np.flatnonzero(np.isnan(scores))[0])}] is NaN; each must be a number")
    wrong = np.flatnonzero(~((grades >= 0) & (grades <= LARGEST_GRADE)))
    if len(wrong):
        place = int(wrong[0])
        raise DataError(f"ranking: grades[{place}] is {grades[place]:g}; each must be from 0 to {LARGEST_GRADE:,}")

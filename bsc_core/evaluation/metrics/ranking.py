"""Ranking metrics of each query and their means, from scored candidates or from the ranks of relevant documents."""

# N candidates in all, E documents that count (relevant or graded) of all queries together, Q queries

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.types import Indices, Mask, Numbers

Metrics = dict[str, float | None]
"""Metrics by name; None for undefined ones."""

CUTOFFS = (1, 3, 5, 10, 20, 50)
LARGEST_GRADE = 1000  # 2 to this power is still finite


@dataclass(frozen=True, eq=False)
class QueryValues:
    """Metric values of each query, the unit of means, intervals and tests."""

    query: Sequence[Hashable]  # the Q ids
    values: Mapping[str, Numbers]  # metric -> (Q,)
    positives: Indices  # (Q,) number of relevant documents, ranked or not
    length: Indices = field(repr=False)  # (Q,) number of ranked documents

    def means(self, *, skip_without_positive: bool = False) -> Metrics:
        """Return the mean of each metric over queries; None if there are no queries.

        If no query has a positive, only nDCG is defined.

        Args:
            skip_without_positive: Exclude queries without a positive instead of counting them as 0.
        """
        positive = self.positives > 0
        counted = positive if skip_without_positive else np.ones(len(positive), dtype=bool)
        return {
            name: float(values[counted].mean())
            if counted.any() and (positive.any() or name.startswith("ndcg"))
            else None
            for name, values in self.values.items()
        }

    def padded_precision(self, k: int) -> Numbers:
        """Return precision@k (Q,) divided by k as in trec_eval, even if fewer than k documents were ranked.

        Args:
            k: One of the evaluated cutoffs.
        """
        return np.asarray(self.values[f"precision@{k}"] * np.minimum(self.length, k) / k)


@dataclass(frozen=True, eq=False)
class RankedDocuments:
    """Ranks of the relevant or graded documents of all queries; all others have gain 0 and are not relevant."""

    owner: Indices  # (E,) query number, ascending
    rank: Indices  # (E,) from 1, ascending within a query; 0 for documents that were not ranked, which come last
    relevant: Mask  # (E,)
    gains: Mapping[str, Numbers]  # name of each nDCG metric -> (E,) nonnegative gains
    length: Indices  # (Q,) number of ranked documents

    def query_values(self, query: Sequence[Hashable], k: Sequence[int]) -> QueryValues:
        """Compute every ranking metric of every query, in [0, 1].

        - `map`: average precision, the mean over the relevant documents of the precision at each; 0 for unranked ones.
        - `mrr`: 1 / rank of the first relevant document.
        - `precision@k`: share of relevant documents among the first min(k, length).
        - `recall@k`: share of the relevant documents that are among the first k.
        - `has_positive@k`: 1 if a relevant document is among the first k.
        - nDCG@k for each gain: DCG@k / ideal DCG@k, DCG@k = sum over ranks r <= k of gain_r / log2(r + 1) (Järvelin and
        Kekäläinen 2002).

        All are 0 for a query without a relevant document, or without a positive gain.

        Args:
            query: ids of the Q queries.
            k: cutoffs.
        """
        positives = self._total(self.relevant)
        ranked = self.rank > 0
        inverse = np.divide(1.0, self.rank, out=np.zeros(len(self.rank)), where=ranked)
        first = np.zeros(len(self.length))
        np.maximum.at(first, self.owner, inverse * self.relevant)
        values = {"map": self._average_precision(inverse, positives), "mrr": first}
        for cutoff in k:
            hits = self._total(self.relevant & ranked & (self.rank <= cutoff))
            values[f"precision@{cutoff}"] = hits / np.maximum(np.minimum(cutoff, self.length), 1)
            values[f"has_positive@{cutoff}"] = (hits > 0).astype(np.float64)
            values[f"recall@{cutoff}"] = hits / np.maximum(positives, 1)
            for name, gain in self.gains.items():
                values[f"{name}@{cutoff}"] = self._ndcg(gain, cutoff)
        return QueryValues(query, values, positives.astype(np.int64), self.length)

    def _total(self, values: np.ndarray) -> Numbers:
        """Return the sum of values (E,) for each query: (Q,)."""
        return np.bincount(self.owner, values, minlength=len(self.length)).astype(np.float64)

    def _average_precision(self, inverse: Numbers, positives: Numbers) -> Numbers:
        earlier = np.cumsum(positives) - positives  # relevant documents of the earlier queries
        precision = (np.cumsum(self.relevant) - earlier[self.owner]) * inverse
        return self._total(precision * self.relevant) / np.maximum(positives, 1)

    def _ndcg(self, gain: Numbers, cutoff: int) -> Numbers:
        reached = self._total(gain * _discount(self.rank, cutoff))
        ideal_gain = gain[np.lexsort((-gain, self.owner))]
        ideal = self._total(ideal_gain * _discount(_ranks(self.owner), cutoff))
        return np.divide(reached, ideal, out=np.zeros_like(reached), where=ideal > 0)


def graded_gains(grades: Numbers) -> dict[str, Numbers]:
    """Return the gains of the nDCG metrics: the grade, and 2^grade - 1 (Burges et al. 2005) for high grades."""
    return {"ndcg": grades, "ndcg_exponential": np.exp2(grades) - 1}


def ranking_metrics(
    query: ArrayLike,
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    k: tuple[int, ...] = CUTOFFS,
    grades: ArrayLike | None = None,
    skip_without_positive: bool = False,
) -> Metrics:
    """Rank each query's candidates by score, highest first, and average the metrics over queries.

    The metrics are those of `RankedDocuments.query_values`; `ndcg@k` and `ndcg_exponential@k` need grades. `queries`
    and `queries_without_positive` are counts. A list shorter than k is used completely.

    Tied candidates are ranked in the worst order, the least relevant first, so that no metric depends on the order of
    the rows. Without any query, or any relevant candidate, the means are None, except nDCG with grades.

    Args:
        query: (N,) ids, equal within a list.
        scores: (N,).
        relevant: (N,) whether each candidate is relevant.
        k: cutoffs.
        grades: (N,) relevance grades, at least 0.
        skip_without_positive: exclude queries without a relevant candidate instead of counting them as 0.

    Raises:
        DataError: A score is NaN, a grade is out of range, or the lengths differ.
    """
    values = query_ranking_metrics(query, scores, relevant, k=k, grades=grades)
    metrics = values.means(skip_without_positive=skip_without_positive)
    empty = int((values.positives == 0).sum())
    metrics["queries"] = float(len(values.positives) - (empty if skip_without_positive else 0))
    metrics["queries_without_positive"] = float(empty)
    return metrics


def query_ranking_metrics(
    query: ArrayLike,
    scores: ArrayLike,
    relevant: ArrayLike,
    *,
    k: tuple[int, ...] = CUTOFFS,
    grades: ArrayLike | None = None,
) -> QueryValues:
    """Return the metrics of `ranking_metrics` for each query, sorted by query id; arguments and errors are the same."""
    numbers, truth = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    grade = truth.astype(np.float64) if grades is None else np.asarray(grades, dtype=np.float64)
    ids, owner = np.unique(np.asarray(query), return_inverse=True)
    _check(owner, numbers, truth, grade)
    order = np.lexsort((grade, truth, -numbers, owner))
    owner = owner[order]
    gains = {} if grades is None else graded_gains(grade[order])
    length = np.bincount(owner).astype(np.int64)
    return RankedDocuments(owner, _ranks(owner), truth[order], gains, length).query_values(ids.tolist(), k)


def _ranks(owner: Indices) -> Indices:
    """Return the rank (E,), from 1, of each document within its query. owner: (E,) query numbers, ascending."""
    counts = np.bincount(owner)
    return np.asarray(np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner] + 1)


def _discount(rank: Indices, cutoff: int) -> Numbers:
    return np.asarray(((rank > 0) & (rank <= cutoff)) / np.log2(np.maximum(rank, 1) + 1))


def _check(owner: Indices, scores: Numbers, relevant: Mask, grades: Numbers) -> None:
    if not len(owner) == len(scores) == len(relevant) == len(grades):
        raise DataError(
            f"ranking: {len(owner)} queries, {len(scores)} scores, {len(relevant)} relevances and {len(grades)} "
            "grades; give one of each for each candidate"
        )
    if np.isnan(scores).any():
        raise DataError(f"ranking: scores[{int(np.argmax(np.isnan(scores)))}] is NaN; each must be a number")
    invalid = np.flatnonzero(~((grades >= 0) & (grades <= LARGEST_GRADE)))
    if len(invalid):
        row = int(invalid[0])
        raise DataError(f"ranking: grades[{row}] is {grades[row]:g}; each must be from 0 to {LARGEST_GRADE:,}")

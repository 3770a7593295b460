"""What a ranking is worth to each query, from the ranks of the documents that count for it."""

# E documents that count, of all queries together; Q queries

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, float | None]
"""Metrics by name; None where one is not defined."""
Numbers = NDArray[np.float64]
Gains = Mapping[str, Numbers]

CUTOFFS = (1, 3, 5, 10, 20, 50)


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the documents that count stand in their query's ranking.

    owner: (E,) query number, ascending; rank: (E,) from 1, ascending within a query, and 0 for a document that was not
    ranked, which stands after the others; relevant: (E,); gains: for each nDCG its name and the gain (E,) of every
    document, at least 0; documents left out of E have gain 0 and are not relevant. length: (Q,) documents ranked.
    """

    owner: NDArray[np.int64]
    rank: NDArray[np.int64]
    relevant: NDArray[np.bool_]
    gains: Gains
    length: NDArray[np.int64]

    def total(self, values: NDArray[np.generic]) -> Numbers:
        """Sum of values (E,) for each query: (Q,)."""
        return np.bincount(self.owner, values, minlength=len(self.length)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class QueryValues:
    """One number for each query and metric, so that means, intervals and tests are taken over queries.

    query: the Q ids; values: metric -> (Q,); positives: (Q,) relevant documents of each query, ranked or not.
    """

    query: Sequence[Hashable]
    values: Mapping[str, Numbers]
    positives: NDArray[np.int64]
    length: NDArray[np.int64] = field(repr=False)

    def means(self, *, skip_without_positive: bool = False) -> Metrics:
        """Mean of each metric over the queries, None without any; a query without a positive counts as it stands, 0.

        Where no query has a positive, only nDCG, which has its grades, is defined.
        """
        found = self.positives > 0
        counted = found if skip_without_positive else np.ones(len(found), dtype=bool)
        defined = {name for name in self.values if found.any() or name.startswith("ndcg")}
        return {name: _mean(values[counted]) if name in defined else None for name, values in self.values.items()}

    def padded_precision(self, k: int) -> Numbers:
        """P@k as trec_eval divides it: hits among the first k / k, also where fewer than k were ranked. (Q,).

        k: one of the cut-offs that were measured.
        """
        padded: Numbers = self.values[f"precision@{k}"] * np.minimum(self.length, k) / k
        return padded


def query_values(placed: Placed, k: Sequence[int]) -> dict[str, Numbers]:
    """Every ranking metric of every query: name -> (Q,) in [0, 1].

    `map` (average precision): mean over the relevant documents of the precision at each, 0 for one that was not ranked.
    `mrr`: 1 / rank of the first relevant one. `precision@k`: relevant share of the first min(k, length).
    `recall@k`: share of the relevant ones among the first k. `has_positive@k`: 1 where there is one among them.
    For each gain its nDCG@k = DCG@k / ideal DCG@k with DCG@k = sum over ranks r <= k of gain_r / log2(r + 1) (Järvelin
    and Kekäläinen 2002). All are 0 where nothing is relevant, or no gain is above 0.
    """
    positives = placed.total(placed.relevant)
    ranked = placed.rank > 0
    inverse = np.divide(1.0, placed.rank, out=np.zeros(len(placed.rank)), where=ranked)
    first = np.zeros(len(placed.length))
    np.maximum.at(first, placed.owner, inverse * placed.relevant)
    values = {"map": _average_precision(placed, inverse, positives), "mrr": first}
    for cut in k:
        hits = placed.total(placed.relevant & ranked & (placed.rank <= cut))
        values[f"precision@{cut}"] = hits / np.maximum(np.minimum(cut, placed.length), 1)
        values[f"has_positive@{cut}"] = (hits > 0).astype(np.float64)
        values[f"recall@{cut}"] = hits / np.maximum(positives, 1)
        for name, gain in placed.gains.items():
            values[f"{name}@{cut}"] = _ndcg(placed, gain, cut)
    return values


def exponential(grades: Numbers) -> Numbers:
    """Gain 2^grade - 1 (Burges et al. 2005), which tells high grades further apart than the linear gain = grade."""
    gains: Numbers = np.exp2(grades) - 1
    return gains


def _average_precision(placed: Placed, inverse: Numbers, positives: Numbers) -> Numbers:
    found = np.cumsum(placed.relevant)  # over all queries
    earlier = np.cumsum(positives) - positives  # found before each query
    precision = (found - earlier[placed.owner]) * inverse
    return placed.total(precision * placed.relevant) / np.maximum(positives, 1)


def _ndcg(placed: Placed, gain: Numbers, cut: int) -> Numbers:
    reached = placed.total(gain * _discount(placed.rank, cut))
    ideal_gain = gain[np.lexsort((-gain, placed.owner))]
    counts = np.bincount(placed.owner, minlength=len(placed.length))
    place = np.arange(len(gain)) - (np.cumsum(counts) - counts)[placed.owner] + 1
    ideal = placed.total(ideal_gain * _discount(place, cut))
    return np.divide(reached, ideal, out=np.zeros_like(reached), where=ideal > 0)


def _discount(rank: NDArray[np.int64], cut: int) -> Numbers:
    discount: Numbers = ((rank > 0) & (rank <= cut)) / np.log2(np.maximum(rank, 1) + 1)
    return discount


def _mean(values: Numbers) -> float | None:
    return float(values.mean()) if len(values) else None

"""Polarity and semantic similarity of retrieved sentences (Jørgensen and Breitung, "Margins in contrastive learning").

A model retrieves the k nearest sentences of a pool for each query. P is the share of them with the query's class. S is
their mean similarity to the query under a reference model R, which is either the model before training or one model for
all runs. Training on the class raises P and may lower S; `combine` and `pareto_front` weigh one against the other.
"""

# Q queries (n of them at a time), N sentences of the pool with U distinct vectors, D and E dimensions of the model and
# of R, k neighbors, F fetched, R runs (or epochs, or margins)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.neighbors import SPARE, finite_unit_rows, tie_starts, top_k
from bsc_core.types import Ids, Indices, Mask, Numbers, Vectors

Weights = Literal["uniform", "linear"]

K = 16
POOL_TIMES = 5
POOL_SEED = 42
QUERIES_AT_ONCE = 256
TIED_AT_ONCE = 64
MIN_RANGE = 1e-9  # minimum distance between a floor and the maximum


@dataclass(frozen=True, eq=False)
class PolarityScores:
    """P and S of each query, with the values of the reference and of a random order."""

    polarity: Numbers  # (Q,) P in [0, 1]
    semantic: Numbers  # (Q,) S in [-1, 1]
    reference_polarity: Numbers  # (Q,) P of the reference model
    reference_semantic: Numbers  # (Q,) S of the reference model
    polarity_floor: float  # expected P of a pool in random order
    semantic_floor: float  # expected S of a pool in random order


def linear_weights(k: int) -> Numbers:
    """Return the paper's weights w_i = 2 (k + 1 - i) / (k (k + 1)), i from 1: (k,), decreasing, with sum 1."""
    return np.asarray(2 * (k - np.arange(k)) / (k * (k + 1)))


def uniform_weights(k: int) -> Numbers:
    """Return w_i = 1 / k, the weights behind the paper's tables: (k,)."""
    return np.full(k, 1 / k)


WEIGHTS: dict[Weights, Callable[[int], Numbers]] = {"uniform": uniform_weights, "linear": linear_weights}


def sample_pool(size: int, queries: int, *, seed: int = POOL_SEED) -> Indices:
    """Sample POOL_TIMES training sentences per query, or all of them if there are fewer.

    Args:
        size: Number of training sentences.
        queries: Number of queries.
        seed: Seed of the sample.

    Returns:
        Distinct row numbers below `size`, ascending.
    """
    return np.sort(np.random.default_rng(seed).choice(size, min(size, POOL_TIMES * queries), replace=False))


@dataclass(frozen=True, eq=False)
class PolarityTask:
    """Reference vectors, classes and neighbor weights that are shared by all evaluated models."""

    queries: Vectors  # (Q, E) unit vectors of the queries under R
    pool: Vectors  # (N, E) unit vectors of the pool under R
    classes: tuple[Ids, Ids]  # class numbers (Q,) and (N,)
    weights: Numbers  # (k,) weights of the neighbors

    def evaluate(self, queries: Vectors, pool: Vectors) -> PolarityScores:
        """Compute P and S of a model.

        P_M(s) = sum_i w_i [class of s = class of s_i] and S_M(s) = sum_i w_i cos_R(s, s_i), equations 1 and 2 of the
        paper, where s_1 .. s_k are the nearest sentences of the pool under the model. Sentences within 1e-6 of each
        other are tied and share the mean of their weights, so the scores do not depend on the order of the pool.

        Args:
            queries: (Q, D) the model's vectors of the queries; D may differ from E.
            pool: (N, D) its vectors of the pool.

        Raises:
            DataError: The number of sentences or the vector sizes do not match, or a vector is not finite.
        """
        if (len(queries), len(pool)) != (len(self.queries), len(self.pool)):
            raise DataError(
                f"polarity: the model has {len(queries)} queries and {len(pool)} sentences in the pool, the reference "
                f"{len(self.queries)} and {len(self.pool)}; encode the same sentences with both (dimensions may differ)"
            )
        polarity, semantic = self._scores(queries, pool)
        return PolarityScores(polarity, semantic, *self.reference_scores, *self.floors)

    @cached_property
    def reference_scores(self) -> tuple[Numbers, Numbers]:
        """P and S (Q,) of the reference model itself; no model reaches a higher S under R."""
        return self._scores(self.queries, self.pool)

    @cached_property
    def floors(self) -> tuple[float, float]:
        """Mean P and S over queries for a pool in random order."""
        queries, pool = self.classes
        shares = np.bincount(pool, minlength=int(queries.max()) + 1) / len(pool)
        means = [side.mean(axis=0, dtype=np.float64) for side in (self.queries, self.pool)]
        return float(shares[queries].mean()), float(means[0] @ means[1])

    def _scores(self, queries: Vectors, pool: Vectors) -> tuple[Numbers, Numbers]:
        units, number = finite_unit_rows(pool), dict[bytes, int]()
        of_sentence = np.array([number.setdefault(row.tobytes(), len(number)) for row in units])  # (N,) distinct vector
        _, position, copies = np.unique(of_sentence, return_index=True, return_counts=True)
        units, sentences = units[position], _Distinct.of(of_sentence, self.classes[1], self.pool)
        k, width = len(self.weights), min(len(self.weights) + SPARE, len(units))
        near, cosines = top_k(queries, units, width)
        starts = tie_starts(-np.sort(-cosines, axis=1))
        scores = self._weighted(
            np.arange(len(near)), near, _average_ties(starts, copies[near], self.weights), sentences
        )
        has_end = (starts[:, 1:] & (np.cumsum(copies[near], axis=1)[:, :-1] >= k)).any(axis=1)
        tied = np.flatnonzero(~has_end) if width < len(units) else np.arange(0)
        for first in range(0, len(tied), TIED_AT_ONCE):  # all fetched vectors tie with the k-th: rank the full pool
            rows = tied[first : first + TIED_AT_ONCE]
            cosines = finite_unit_rows(queries[rows]) @ units.T  # (n, U)
            order = np.argsort(-cosines, axis=1, kind="stable")
            starts = tie_starts(np.take_along_axis(cosines, order, axis=1))
            weight = _average_ties(starts, copies[order], self.weights)
            scores[:, rows] = self._weighted(rows, order, weight, sentences)
        return scores[0], scores[1]

    def _weighted(
        self, rows: Indices, near: NDArray[np.integer[Any]], weight: Numbers, sentences: _Distinct
    ) -> Numbers:
        """Return P and S (2, n) of some queries. near, weight: (n, F) distinct vectors and weights of their copies."""
        used = int(np.flatnonzero(weight.any(axis=0))[-1]) + 1
        near, weight = near[:, :used], weight[:, :used]
        scores = np.empty((2, len(rows)))
        scores[0] = (weight * sentences.shares(near, self.classes[0][rows])).sum(axis=1)
        for start in range(0, len(rows), QUERIES_AT_ONCE):
            part = slice(start, start + QUERIES_AT_ONCE)
            queries = self.queries[rows[part]]
            if 4 * used > len(sentences.reference):
                cosines = np.take_along_axis(queries @ sentences.reference.T, near[part], axis=1)
            else:
                cosines = np.matmul(sentences.reference[near[part]], queries[..., None])[..., 0]  # (n, F)
            scores[1, part] = (weight[part] * cosines).sum(axis=1)
        return scores


@dataclass(frozen=True, eq=False)
class _Distinct:
    """The sentences of each distinct vector of the pool under the model: their mean under R, and their classes."""

    reference: Vectors  # (U, E)
    keys: Indices  # ascending, a number for each distinct vector and class of its sentences
    values: Numbers  # share of the vector's sentences with that class
    classes: int  # number of classes

    @classmethod
    def of(cls, of_sentence: Indices, classes: Ids, reference: Vectors) -> _Distinct:
        """of_sentence: (N,) distinct vector of each sentence, numbered in the order of their first sentences."""
        number = int(classes.max()) + 1
        keys, sizes = np.unique(of_sentence * number + classes, return_counts=True)
        copies = np.bincount(of_sentence)
        if len(copies) < len(of_sentence):
            order = np.argsort(of_sentence, kind="stable")
            sums = np.add.reduceat(reference[order], np.r_[0, np.cumsum(copies)[:-1]], axis=0, dtype=np.float64)
            reference = (sums / copies[:, None]).astype(reference.dtype)
        return cls(reference, keys, sizes / copies[keys // number], number)

    def shares(self, near: NDArray[np.integer[Any]], classes: Ids) -> Numbers:
        """Return (n, F) the share of the sentences of each vector that have the class (n,) of the query."""
        wanted = np.where(classes < self.classes, near.T * self.classes + classes, -1).T
        position = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[position] == wanted, self.values[position], 0.0)


def polarity_task(
    reference: tuple[Vectors, Vectors],
    classes: tuple[Sequence[Any] | NDArray[Any], Sequence[Any] | NDArray[Any]],
    *,
    k: int = K,
    weights: Weights = "uniform",
) -> PolarityTask:
    """Create the task of a reference model and classified sentences.

    Args:
        reference: vectors (Q, E) of the queries and (N, E) of the pool; they need not be normalized, and a zero vector
            has cosine 0.
        classes: classes of the queries (Q,) and of the pool (N,), of any hashable type.
        k: number of neighbors.
        weights: weights of the neighbors, "uniform" or "linear".

    Raises:
        DataError: The number of sentences or the vector sizes differ, there is no query, k is not from 1 to N, or a
            vector is not finite.
    """
    queries, pool = (finite_unit_rows(side) for side in reference)
    labels = tuple(side.tolist() if isinstance(side, np.ndarray) else list(side) for side in classes)
    if (len(queries), len(pool)) != (len(labels[0]), len(labels[1])):
        raise DataError(
            f"polarity: {len(queries)} queries and {len(pool)} sentences in the pool, but {len(labels[0])} and "
            f"{len(labels[1])} classes; give one class for each sentence"
        )
    if queries.shape[1] != pool.shape[1]:
        raise DataError(
            f"polarity: reference vectors of {queries.shape[1]} numbers for the queries and of {pool.shape[1]} for the "
            "pool; encode both with one model"
        )
    if not len(queries):
        raise DataError("polarity: there is no query; give at least one sentence with its class")
    if not 1 <= k <= len(pool):
        raise DataError(f"polarity: k is {k} and the pool has {len(pool)} sentences; choose k from 1 to {len(pool)}")
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*labels[0], *labels[1]]))}
    sides = [np.array([numbers[name] for name in side], dtype=np.int32) for side in labels]
    return PolarityTask(queries, pool, (sides[0], sides[1]), WEIGHTS[weights](k))


def pareto_front(polarity: ArrayLike, semantic: ArrayLike) -> Mask:
    """Return which points (P, S) are Pareto optimal: (R,) true if no other point dominates.

    Use one point per margin and epoch; do not combine the best P and the best S of different runs. Equal points are on
    the front together.

    Args:
        polarity: (R,).
        semantic: (R,).

    Raises:
        DataError: The lengths differ, or a value is NaN.
    """
    p, s = np.asarray(polarity, dtype=np.float64), np.asarray(semantic, dtype=np.float64)
    if p.shape != s.shape or p.ndim != 1:
        raise DataError(f"pareto: P of shape {p.shape} and S of shape {s.shape}; give one of each for every run")
    if np.isnan(p).any() or np.isnan(s).any():
        raise DataError(f"pareto: run {int(np.flatnonzero(np.isnan(p) | np.isnan(s))[0])} has NaN; evaluate it again")
    order = np.lexsort((-s, -p))  # P descending; for equal P, S descending
    best = np.maximum.accumulate(s[order])
    first = np.r_[True, np.diff(p[order]) != 0]  # first row of each distinct P
    start = np.maximum.accumulate(np.where(first, np.arange(len(p)), 0))  # the highest S of the same P
    before = np.r_[-np.inf, best][start]  # the highest S at a higher P
    front = np.zeros(len(p), dtype=bool)
    front[order] = (s[order] == s[order][start]) & (s[order] > before)
    return front


@dataclass(frozen=True)
class Balance:
    """Normalized polarity and semantic similarity of a run, and their harmonic mean; 0 is chance, 1 the maximum."""

    separation: float | None  # (P - P_floor) / (1 - P_floor); None if the pool has one class
    retained: float | None  # (S - S_floor) / (S_R - S_floor); None if all sentences are equally similar under R
    balance: float | None  # harmonic mean of the two, 0 if either is not positive; None if either is undefined
    reference: float | None  # balance of the reference model, whose `retained` is 1


def combine(scores: PolarityScores) -> Balance:
    """Combine P and S into one score, which the paper leaves open ("combining them better ... to represent the drift").

    balance = 2 p s / (p + s) with p = (P - P_floor) / (1 - P_floor) and s = (S - S_floor) / (S_R - S_floor).

    The plain mean of P and S, as in the released code, mixes different scales: a random model has P near 0.5 and S near
    the mean cosine of R, which is 0.8 for one reference and 0.1 for another. Subtracting the floor and dividing by the
    range makes both 0 for a random order and 1 for the maximum. No retrieval has a higher S than R itself, so s is the
    share of the semantic similarity that remains; it is 1 before training. Like F1, the harmonic mean is near 0 if
    either component is near 0. Training is useful if the balance exceeds that of the reference.
    """
    return balance_of_means(
        (float(scores.polarity.mean()), float(scores.semantic.mean())),
        (float(scores.reference_polarity.mean()), float(scores.reference_semantic.mean())),
        (scores.polarity_floor, scores.semantic_floor),
    )


def balance_of_means(run: tuple[float, float], reference: tuple[float, float], floor: tuple[float, float]) -> Balance:
    """Return the `combine` result from means (P, S) of a run, of its reference and of a random order."""
    separation, start = (_normalized(side[0], 1.0, floor[0]) for side in (run, reference))
    retained = _normalized(run[1], reference[1], floor[1])
    balance = _harmonic_mean(separation, retained)
    return Balance(separation, retained, balance, _harmonic_mean(start, None if retained is None else 1.0))


def balances_of_means(means: Numbers, reference: Numbers | float, floor: tuple[float, float]) -> Numbers:
    """Return the balances of `balance_of_means` for many P and S, such as resamples; 0 where undefined.

    Args:
        means: (2, ...) P and S.
        reference: S of the reference, broadcastable to them.
        floor: P and S of a random order.
    """
    separation = (means[0] - floor[0]) / max(1 - floor[0], MIN_RANGE)
    retained = (means[1] - floor[1]) / np.maximum(reference - floor[1], MIN_RANGE)
    lower = np.minimum(separation, retained)
    total = np.where(lower > 0, separation + retained, 1.0)
    return np.where(lower > 0, 2 * separation * retained / total, 0.0)


def _normalized(value: float, highest: float, floor: float) -> float | None:
    return (value - floor) / (highest - floor) if highest - floor > MIN_RANGE else None


def _harmonic_mean(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    return 2 * left * right / (left + right) if min(left, right) > 0 else 0.0


def _average_ties(starts: Mask, copies: NDArray[np.integer[Any]], weights: Numbers) -> Numbers:
    """Return the weights (Q, F) of the copies of neighbors, averaged over tied ones.

    Args:
        starts: (Q, F) first neighbor of each tie.
        copies: (Q, F) sentences with the vector of the neighbor.
        weights: (k,) of the nearest sentences.
    """
    before = np.r_[0.0, np.cumsum(weights)]  # of so many nearest sentences
    ranks = np.minimum(np.cumsum(copies, axis=1), len(weights))
    every = np.diff(before[ranks], axis=1, prepend=0.0).ravel()
    tie = np.cumsum(starts.ravel()) - 1  # each row starts a tie
    mean = np.bincount(tie, every) / np.bincount(tie, copies.ravel())
    return np.asarray(mean[tie].reshape(starts.shape) * copies)

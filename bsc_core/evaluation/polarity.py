"""Polarity and semantic similarity of retrieved sentences (Jørgensen and Breitung, "Margins in contrastive learning").

A model retrieves the k nearest of a pool of sentences for each query. P says how many have the query's class, S how
similar they are to the query in the eyes of a reference model R, which is the model before its training or one model
for all. Training for the class raises P and may cost S; `bsc_core.evaluation.tradeoff` weighs the two.
"""

# Q queries (n of them at a time), N sentences of the pool, D and E dimensions of the model and of R, k neighbours,
# F fetched

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.retrieval import TIE, Ids, Vectors, search, unit_rows

Weights = Literal["uniform", "linear"]

K = 16
POOL_TIMES = 5
POOL_SEED = 42
SPARE = 16  # neighbours fetched beyond the k-th, to see which are tied with it
QUERIES_AT_ONCE = 256
TIED_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class PolarityScores:
    """P and S of each query, and what they are to be read against.

    polarity, semantic: (Q,), P in [0, 1] and S in [-1, 1]. reference_polarity, reference_semantic: (Q,) what R itself
    retrieves. polarity_floor: P of a pool in random order, the mean share of the query's class in it; semantic_floor: S
    of the same, the mean cosine under R of a query and a sentence of the pool.
    """

    polarity: Numbers
    semantic: Numbers
    reference_polarity: Numbers
    reference_semantic: Numbers
    polarity_floor: float
    semantic_floor: float

    def summary(self) -> dict[str, float]:
        """Means over queries, their standard deviations over queries (of the population, as the paper's), and floors.

        `semantic_change` is S - S_R. The deviations say how different queries are, nothing about how sure a mean is:
        for that take the bootstrap over queries.
        """
        return {
            "polarity": float(self.polarity.mean()),
            "semantic": float(self.semantic.mean()),
            "polarity_deviation": float(self.polarity.std()),
            "semantic_deviation": float(self.semantic.std()),
            "reference_polarity": float(self.reference_polarity.mean()),
            "reference_semantic": float(self.reference_semantic.mean()),
            "semantic_change": float(self.semantic.mean() - self.reference_semantic.mean()),
            "polarity_floor": self.polarity_floor,
            "semantic_floor": self.semantic_floor,
        }


def linear_weights(k: int) -> Numbers:
    """The paper's weights w_i = 2 (k + 1 - i) / (k (k + 1)), i from 1: (k,), falling, of sum 1."""
    weights: Numbers = 2 * (k - np.arange(k)) / (k * (k + 1))
    return weights


def uniform_weights(k: int) -> Numbers:
    """w_i = 1 / k, with which the paper's tables were made: (k,)."""
    return np.full(k, 1 / k)


WEIGHTS: dict[Weights, Callable[[int], Numbers]] = {"uniform": uniform_weights, "linear": linear_weights}


def draw_pool(size: int, queries: int, *, times: int = POOL_TIMES, seed: int = POOL_SEED) -> NDArray[np.int64]:
    """Rows of the training sentences to search: `times` as many as there are queries, or all where there are fewer.

    size: training sentences. Returns ascending row numbers below `size`, drawn without repetition.
    """
    wanted = min(size, times * queries)
    return np.sort(np.random.default_rng(seed).choice(size, wanted, replace=False))


@dataclass(frozen=True, eq=False)
class PolarityTask:
    """What every run is measured on: the reference's vectors, the classes and the weights of the k neighbours.

    queries, pool: unit vectors (Q, E) and (N, E) under R; classes: numbers (Q,) and (N,); weights: (k,).
    """

    queries: Vectors
    pool: Vectors
    classes: tuple[Ids, Ids]
    weights: Numbers

    def measure(self, queries: Vectors, pool: Vectors) -> PolarityScores:
        """P and S of a model by its vectors of the same sentences: (Q, D) and (N, D), where D need not be E.

        P_M(s) = sum_i w_i [class of s = class of s_i] and S_M(s) = sum_i w_i cos_R(s, s_i), equations 1 and 2 of the
        paper, s_1 .. s_k being the nearest of the pool by the model's cosine. Sentences within 1e-6 of each other are
        tied and share their weights' mean, so neither score depends on the order of the pool. Raises DataError for
        another number of sentences, and for vectors that are not finite or of two sizes.
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
        """P and S of what R itself retrieves: (Q,) both. No model reaches a higher S than R under its own eyes."""
        return self._scores(self.queries, self.pool)

    @cached_property
    def floors(self) -> tuple[float, float]:
        """Means of P and S over queries when the pool is in random order: what P and S are worth without any skill."""
        queries, pool = self.classes
        shares = np.bincount(pool, minlength=int(queries.max()) + 1) / len(pool)
        means = [side.mean(axis=0, dtype=np.float64) for side in (self.queries, self.pool)]
        return float(shares[queries].mean()), float(means[0] @ means[1])

    def _scores(self, queries: Vectors, pool: Vectors) -> tuple[Numbers, Numbers]:
        k, width = len(self.weights), min(len(self.weights) + SPARE, len(pool))
        near, cosines = search(queries, pool, top=width)
        starts = _starts(cosines)
        scores = self._weighed(np.arange(len(near)), near, _shared(starts, self.weights))
        tied = np.flatnonzero(~starts[:, k:].any(axis=1)) if width < len(pool) else np.arange(0)
        units = unit_rows(np.asarray(pool, dtype=np.float32)) if len(tied) else pool
        for first in range(0, len(tied), TIED_AT_ONCE):  # the k-th is tied with all that was fetched: rank them all
            rows = tied[first : first + TIED_AT_ONCE]
            whole = unit_rows(np.asarray(queries[rows], dtype=np.float32)) @ units.T  # (n, N)
            order = np.argsort(-whole, axis=1, kind="stable")
            weight = _shared(_starts(np.take_along_axis(whole, order, axis=1)), self.weights)
            scores[:, rows] = self._weighed(rows, order, weight)
        return scores[0], scores[1]

    def _weighed(self, rows: NDArray[np.int64], near: NDArray[np.integer[Any]], weight: Numbers) -> Numbers:
        """P and S (2, n) of some queries. near, weight: (n, F), their neighbours' positions and weights."""
        used = int(np.flatnonzero(weight.any(axis=0))[-1]) + 1
        near, weight = near[:, :used], weight[:, :used]
        scores = np.empty((2, len(rows)))
        scores[0] = (weight * (self.classes[1][near] == self.classes[0][rows, None])).sum(axis=1)
        for start in range(0, len(rows), QUERIES_AT_ONCE):
            part = slice(start, start + QUERIES_AT_ONCE)
            mine = self.queries[rows[part]]
            if 4 * used > len(self.pool):
                cosines = np.take_along_axis(mine @ self.pool.T, near[part], axis=1)
            else:
                cosines = np.matmul(self.pool[near[part]], mine[..., None])[..., 0]  # (n, F)
            scores[1, part] = (weight[part] * cosines).sum(axis=1)
        return scores


def polarity_task(
    reference: tuple[Vectors, Vectors],
    classes: tuple[ArrayLike, ArrayLike],
    *,
    k: int = K,
    weights: Weights = "uniform",
) -> PolarityTask:
    """The task that a reference model and the sentences' classes set.

    reference: vectors (Q, E) of the queries and (N, E) of the pool, of the model before its training (own reference) or
    of one model for every run (common reference); they need no normalising, and a zero vector has cosine 0. classes: of
    the queries (Q,) and of the pool (N,), any number of them, of any kind that can be compared. Raises DataError when
    the numbers of sentences or the sizes of the two sides differ, k is not from 1 to N, or a vector is not finite.
    """
    queries, pool = (unit_rows(np.asarray(side, dtype=np.float32)) for side in reference)
    labels = tuple(np.asarray(side) for side in classes)
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
    _, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    sides = np.split(numbers.astype(np.int32), [len(queries)])
    return PolarityTask(queries, pool, (sides[0], sides[1]), WEIGHTS[weights](k))


def _starts(cosines: Vectors) -> NDArray[np.bool_]:
    """(n, F) where a new cosine begins in rows (n, F) that fall: each other place is tied with the one before."""
    starts: NDArray[np.bool_] = np.diff(cosines, axis=1, prepend=np.inf) < -TIE
    return starts


def _shared(starts: NDArray[np.bool_], weights: Numbers) -> Numbers:
    """Weights (Q, F) of neighbours, the mean of its places for each set of tied ones. starts: (Q, F) first of a set."""
    rows, width = starts.shape
    every = np.tile(np.r_[weights, np.zeros(width - len(weights))], rows)
    owner = np.cumsum(starts.ravel()) - 1  # each row begins a set
    shared: Numbers = (np.bincount(owner, every) / np.bincount(owner))[owner].reshape(rows, width)
    return shared

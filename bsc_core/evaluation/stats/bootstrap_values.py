"""Metrics with their bootstrap resamples, for intervals and for comparing two models.

Alignment and the balance of polarity and similarity are resampled over queries, uniformity and anisotropy over texts.
The last two are means over pairs of texts, and pairs that share a text are dependent, so each pair of different texts
counts as often as both were sampled. A repeated text is not paired with itself, which would bias the
similarity upward. Their intervals are conservative for vectors that fill the sphere almost evenly.
"""

# P pairs, N texts, D dimensions, Q rows, B resamples, C texts at once

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.geometry import (
    MAX_TEXTS,
    ROWS_AT_ONCE,
    alignment,
    anisotropy,
    neighbor_overlap,
    sample_vectors,
    uniformity,
)
from bsc_core.evaluation.metrics.polarity import PolarityScores, balances_of_means, combine
from bsc_core.evaluation.stats.bootstrap import (
    FEWER_RESAMPLES,
    RESAMPLES,
    Interval,
    bootstrap_mean,
    interval,
    resample_means,
    resample_weights,
)
from bsc_core.evaluation.stats.significance import Comparison, compare_resamples
from bsc_core.neighbors import finite_unit_rows
from bsc_core.types import Numbers, Vectors


@dataclass(frozen=True, eq=False)
class BootstrapValue:
    """A value of one model. Values with equal seed and number of rows use the same resampled rows."""

    value: float  # on all rows
    resamples: Numbers | None  # (B,) values on resampled rows; None if nothing can be resampled
    rows: int  # number of rows or groups of rows

    @property
    def interval(self) -> Interval:
        """The value with its percentile interval."""
        return interval(self.value, self.resamples)


def bootstrap_value(values: ArrayLike, *, seed: int, n_resamples: int = FEWER_RESAMPLES) -> BootstrapValue:
    """Return the mean of values (Q,) with its resamples; a single row has no resamples."""
    numbers = np.asarray(values, dtype=np.float64)
    resamples = resample_means(numbers, n_resamples, seed) if len(numbers) > 1 else None
    return BootstrapValue(float(numbers.mean()), resamples, len(numbers))


def average_values(values: Sequence[BootstrapValue]) -> BootstrapValue:
    """Return the mean of one metric over several datasets, each resampled with a different seed.

    The mean has no resamples if one of the values has none. Dependence between the datasets, such as shared pairs, is
    ignored.
    """
    known = [value.resamples for value in values if value.resamples is not None]
    resamples = np.mean(known, axis=0) if len(known) == len(values) else None
    mean = float(np.mean([value.value for value in values]))
    return BootstrapValue(mean, resamples, sum(value.rows for value in values))


def compare_values(first: BootstrapValue, second: BootstrapValue, *, seed: int) -> Comparison:
    """Return second - first with its interval and p, from the same resampled rows; see `compare_resamples`."""
    resamples = None
    if first.resamples is not None and second.resamples is not None:
        resamples = np.stack([first.resamples, second.resamples], axis=1)
    return compare_resamples(np.array([first.value, second.value]), resamples, 1, groups=first.rows, seed=seed)


def bootstrap_alignment(
    left: Vectors, right: Vectors, groups: ArrayLike, *, seed: int, n_resamples: int = FEWER_RESAMPLES
) -> BootstrapValue:
    """Return the mean `alignment` of positive pairs (P, D) with its resamples.

    Args:
        left: (P, D) vectors of the first text of each pair.
        right: (P, D) vectors of the second text of each pair.
        groups: (P,) equal for the pairs of one query; these are resampled together.
        seed: Seed of the resampling.
        n_resamples: Number of resamples.

    Raises:
        DataError: There is no pair, or the shapes differ.
    """
    lengths = alignment(left, right)
    if not len(lengths):
        raise DataError("alignment: there is no positive pair; give at least one")
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    sums, sizes = np.bincount(group, lengths), np.bincount(group)
    means = np.empty(n_resamples)
    for part, weights in resample_weights(len(sums), n_resamples, seed):
        means[part] = (weights @ sums) / (weights @ sizes)
    return BootstrapValue(float(lengths.mean()), means if len(sums) > 1 else None, len(sums))


def bootstrap_uniformity(
    vectors: Vectors, *, seed: int, max_texts: int = MAX_TEXTS, n_resamples: int = FEWER_RESAMPLES
) -> BootstrapValue | None:
    """Return the `uniformity` with its resamples over texts; None for fewer than two texts.

    The cost is n_resamples x n^2 products for n = min(N, max_texts) texts. Arguments as in `uniformity`.
    """
    value = uniformity(vectors, seed=seed, max_texts=max_texts)
    if value is None:
        return None
    units = finite_unit_rows(sample_vectors(vectors, max_texts, seed))
    shares = np.empty((n_resamples, len(units)), dtype=np.float32)
    for part, weights in resample_weights(len(units), n_resamples, seed):
        shares[part] = weights
    total = np.zeros(n_resamples)
    for start in range(0, len(units), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        kernel = np.exp(4 * (np.minimum(units[rows] @ units.T, 1) - 1))  # (C, N)
        np.fill_diagonal(kernel[:, start:], 0)  # no text is paired with itself
        total += np.einsum("bc,bc->b", shares[:, rows], shares @ kernel.T, dtype=np.float64)
    means = _means_of_pairs(total, np.einsum("bn,bn->b", shares, shares, dtype=np.float64))
    return BootstrapValue(value, None if means is None else np.log(means), len(units))


def bootstrap_anisotropy(vectors: Vectors, *, seed: int, n_resamples: int = FEWER_RESAMPLES) -> BootstrapValue | None:
    """Return the `anisotropy` with its resamples over all texts (N, D); None for fewer than two texts."""
    value = anisotropy(vectors)
    if value is None:
        return None
    units = finite_unit_rows(vectors)
    squares = np.einsum("nd,nd->n", units, units, dtype=np.float64)  # 1, but 0 of zero vectors
    total, repeats = np.empty(n_resamples), np.empty(n_resamples)
    for part, weights in resample_weights(len(units), n_resamples, seed):
        sums = (weights.astype(np.float32) @ units).astype(np.float64)  # (b, D)
        total[part] = np.einsum("bd,bd->b", sums, sums) - weights**2 @ squares
        repeats[part] = np.einsum("bn,bn->b", weights, weights)
    return BootstrapValue(value, _means_of_pairs(total, repeats), len(units))


def _means_of_pairs(total: Numbers, repeats: Numbers) -> Numbers | None:
    """Return the means over pairs of different texts; None if half of the resamples contain a single text.

    Resamples of a single text are dropped. total: (B,) sums weighted by the shares of both texts; repeats: (B,) weight
    of a text paired with itself.
    """
    several = repeats < 1 - 1e-6
    return total[several] / (1 - repeats[several]) if 2 * int(several.sum()) > len(total) else None


def overlap_interval(
    before: Vectors, after: Vectors, *, seed: int, k: int = 10, max_texts: int = MAX_TEXTS
) -> Interval:
    """Return the mean of `neighbor_overlap` with its bootstrap interval over texts."""
    return bootstrap_mean(neighbor_overlap(before, after, seed=seed, k=k, max_texts=max_texts), seed=seed)


def bootstrap_balance(
    scores: PolarityScores, *, seed: int, n_resamples: int = RESAMPLES
) -> tuple[BootstrapValue, BootstrapValue] | None:
    """Return the balances of a run and of its reference, with the same resampled queries; None if undefined.

    The floors are those of all queries and are not resampled.
    """
    result = combine(scores)
    if result.balance is None or result.reference is None:
        return None
    floor, count = (scores.polarity_floor, scores.semantic_floor), len(scores.polarity)
    if count < 2:
        return BootstrapValue(result.balance, None, count), BootstrapValue(result.reference, None, count)
    table = np.stack(
        [scores.polarity, scores.semantic, scores.reference_polarity, scores.reference_semantic], axis=1
    )  # (Q, 4)
    means = np.empty((4, n_resamples))
    for part, weights in resample_weights(count, n_resamples, seed):
        means[:, part] = (weights @ table).T
    run, reference = (balances_of_means(side, means[3], floor) for side in (means[:2], means[2:]))
    return BootstrapValue(result.balance, run, count), BootstrapValue(result.reference, reference, count)

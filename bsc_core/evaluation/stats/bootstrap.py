"""Bootstrap intervals over queries, rows and training seeds.

All resampling is determined by the given seed. Percentile intervals (Efron 1979) are used throughout: they need no
formula for the metric and stay inside its range.
"""

# Q queries, S seeds, N rows, B resamples

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.ranking import QueryValues
from bsc_core.types import Indices, Numbers

RESAMPLES = 10_000
FEWER_RESAMPLES = 1_000  # where each resample computes a metric from scratch
CELLS_AT_ONCE = 2**21
MAX_VALUES = 5_000  # values that are resampled one by one; more are divided into groups that are resampled
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A value and its interval at `level`; low and high are None if nothing can be resampled."""

    value: float
    low: float | None
    high: float | None
    level: float = LEVEL

    @property
    def contains_zero(self) -> bool:
        """Whether 0 cannot be excluded; true without an interval."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    def __neg__(self) -> "Interval":
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Interval(-self.value, low, high, self.level)

    def __str__(self) -> str:
        known = self.low is not None and self.high is not None
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]" if known else f"{self.value:.3f} [no interval]"


@dataclass(frozen=True)
class SeededInterval:
    """A mean over seeds and queries with its intervals."""

    both: Interval  # over seeds and queries
    queries: Interval  # over queries, with fixed seeds
    seeds: Interval  # over seeds, with fixed queries; without an interval for one seed
    seed_deviation: float | None  # sample standard deviation of the S means, None for one seed


def bootstrap_mean(values: ArrayLike, *, seed: int, n_resamples: int = RESAMPLES) -> Interval:
    """Return the mean of values (Q,) with its percentile interval; one value has no interval.

    Raises:
        DataError: There are no values, or one is not finite.
    """
    numbers = _checked(values)
    means = resample_means(numbers, n_resamples, seed) if len(numbers) > 1 else None
    return interval(float(numbers.mean()), means)


def bootstrap_seeds(values: ArrayLike, *, seed: int, n_resamples: int = RESAMPLES) -> SeededInterval:
    """Return the mean of values (S, Q), one row for each training seed, with intervals over seeds and queries.

    Every seed is evaluated on the same queries, so the two are crossed: value = mean + seed + query + residual. A
    resample of `both` takes Q queries, averaged over the seeds, and adds S seed effects, see `seed_effects`. With one
    seed `both` covers queries alone.

    Raises:
        DataError: The values are not a finite table.
    """
    table = seed_table(values)
    mean, per_seed = float(table.mean()), table.mean(axis=1)
    over_queries = resample_means(table.mean(axis=0), n_resamples, seed) if table.shape[1] > 1 else None
    freedom = seed_freedom([table])
    over_seeds = resample_seeds([per_seed - mean], freedom, n_resamples, seed) + mean if len(table) > 1 else None
    effects = resample_seeds([seed_effects(table)], freedom, n_resamples, seed)
    return SeededInterval(
        both=interval(mean, None if over_queries is None else over_queries + effects),
        queries=interval(mean, over_queries),
        seeds=interval(mean, over_seeds),
        seed_deviation=float(per_seed.std(ddof=1)) if len(table) > 1 else None,
    )


def seed_effects(table: Numbers) -> Numbers:
    """Return the deviation of each seed of a table (S, Q) from the mean, without the noise of single queries: (S,).

    The deviations of the seed means are shrunk to the variance of the seed effect in a two-way analysis of variance,
    (MS_seed - MS_residual) / Q, so that queries on which seeds differ by chance do not count as a difference between
    seeds; 0 where that is not positive, and for one seed or one query.
    """
    seeds, queries = table.shape
    deviations = table.mean(axis=1) - table.mean()
    if seeds < 2 or queries < 2 or not deviations.any():
        return np.zeros(seeds)
    residual = table - table.mean(axis=0) - deviations[:, None]
    total = np.sum(deviations**2) / (seeds - 1)
    noise = np.sum(residual**2) / ((seeds - 1) * (queries - 1)) / queries
    return np.asarray(deviations * np.sqrt(max(0.0, 1 - noise / total)))


def seed_freedom(tables: Sequence[Numbers]) -> float | None:
    """Return the degrees of freedom of Welch (1947) for the seed means of the tables (S, Q) together.

    2 for three seeds, 4 for two settings of three seeds with equal variance. None where no table has seeds that differ.
    """
    several = [table.mean(axis=1) for table in tables if len(table) > 1]
    variances = np.asarray([means.var(ddof=1) / len(means) for means in several])
    if not variances.any():
        return None
    return float(variances.sum() ** 2 / np.sum(variances**2 / [len(means) - 1 for means in several]))


def resample_seeds(effects: Sequence[Numbers], freedom: float | None, n_resamples: int, seed: int) -> Numbers:
    """Sample the change of a mean, or of a difference of settings, with other training seeds: (B,).

    The variance between few seeds is uncertain, so the values follow Student's t with these degrees of freedom. They
    are stratified, so that the tails, which a correction for many tests needs, are exact.

    Args:
        effects: (S,) effects of each setting, with mean 0.
        freedom: Degrees of freedom; None gives zeros.
        n_resamples: B, the number of values.
        seed: Seed of the samples.
    """
    from scipy.stats import t

    variance = sum(float(np.sum(side**2)) / (len(side) - 1) / len(side) for side in effects if len(side) > 1)
    if freedom is None or not variance:
        return np.zeros(n_resamples)
    strata = np.random.default_rng([seed, 1]).permutation(n_resamples)
    return np.asarray(np.sqrt(variance) * t.ppf((strata + 0.5) / n_resamples, freedom))


def grouped(values: Numbers, seed: int) -> Numbers:
    """Return (G, ...) values with the mean of values (Q, ...), of random groups where Q > MAX_VALUES; else the values.

    The values of a group are added and divided by Q / G, so that resampled means have the same expected variance.
    """
    if len(values) <= MAX_VALUES:
        return values
    rows = np.random.default_rng([seed, 3]).permutation(len(values))
    starts = np.arange(MAX_VALUES) * len(values) // MAX_VALUES
    return np.asarray(np.add.reduceat(values[rows], starts, axis=0) * (MAX_VALUES / len(values)))


def resample_means(values: Numbers, n_resamples: int, seed: int) -> Numbers:
    """Return the means (B,) of resampled values (Q,), Q > 1; the queries are those of `resample_weights`."""
    from scipy.stats import bootstrap

    values = grouped(values, seed)
    result = bootstrap(
        (values,),
        np.mean,
        n_resamples=n_resamples,
        batch=max(1, CELLS_AT_ONCE // len(values)),
        method="percentile",
        rng=np.random.default_rng([seed, 0]),
    )
    return np.asarray(result.bootstrap_distribution)


def fitting_resamples(rows: int, cells: int) -> int:
    """Return the number of resamples of rows, or of their groups, that fit `cells` cells; at least FEWER_RESAMPLES."""
    return max(FEWER_RESAMPLES, min(RESAMPLES, cells // max(1, min(rows, MAX_VALUES))))


def resample_counts(count: int, n_resamples: int, seed: int, height: int) -> Iterator[tuple[slice, Indices]]:
    """Iterate over blocks of `height` resamples with the number of times (block, Q) each of `count` queries is in."""
    generator = np.random.default_rng([seed, 0])
    for start in range(0, n_resamples, height):
        size = min(height, n_resamples - start)
        sampled = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        counts = np.bincount(sampled.ravel(), minlength=size * count).reshape(size, count)
        yield slice(start, start + size), counts


def resample_weights(count: int, n_resamples: int, seed: int) -> Iterator[tuple[slice, Numbers]]:
    """Iterate over blocks of resamples with the weight (block, Q) of each of `count` queries in them."""
    for part, counts in resample_counts(count, n_resamples, seed, max(1, CELLS_AT_ONCE // count)):
        yield part, counts / count


def interval(value: float, resamples: Numbers | None) -> Interval:
    """Return a value with the percentiles (1 - LEVEL) / 2 and (1 + LEVEL) / 2 of its resamples (B,)."""
    if resamples is None:
        return Interval(value, None, None)
    low, high = np.quantile(resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


def defined_resamples(resamples: Numbers) -> Numbers | None:
    """Return the resamples (B, S) on which every seed is defined, that is not NaN; None if half of them are not."""
    defined = resamples[~np.isnan(resamples).any(axis=1)]
    return defined if 2 * len(defined) > len(resamples) else None


def mean_interval(values: Numbers, resamples: Numbers | None, *, seed: int) -> Interval:
    """Return the mean over seeds with its interval over rows and seeds.

    Resamples on which a seed is undefined (NaN) are left out; without resamples, or where half are undefined, there is
    no interval.

    Args:
        values: (S,) metric of each seed on all rows.
        resamples: (B, S) metric on resampled rows, or None.
        seed: Seed of the resampling of seeds.
    """
    mean, defined = float(values.mean()), None if resamples is None else defined_resamples(resamples)
    if defined is None:
        return interval(mean, None)
    spread = resample_seeds([values - mean], seed_freedom([values[:, None]]), len(defined), seed)
    return interval(mean, defined.mean(axis=1) + spread)


def seed_table(values: ArrayLike) -> Numbers:
    """Return values as (S, Q), one row for each seed.

    Raises:
        DataError: The values have another shape, or one is not finite.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2 or not table.size:
        raise DataError(
            f"bootstrap: values of shape {table.shape}; give one row for each seed and one column for each query"
        )
    _checked(table.ravel())
    return table


def query_intervals(values: QueryValues, *, seed: int, n_resamples: int = RESAMPLES) -> dict[str, Interval]:
    """Return the mean of every metric with its interval, all from the same resampled queries; empty without queries."""
    if not len(values.positives):
        return {}
    table = grouped(np.stack(list(values.values.values()), axis=1), seed)  # (Q, metrics)
    means = np.empty((n_resamples, table.shape[1]))
    for part, weights in resample_weights(len(table), n_resamples, seed):
        means[part] = weights @ table
    columns = zip(values.values, table.mean(axis=0), means.T, strict=True)
    return {name: interval(float(mean), resamples if len(table) > 1 else None) for name, mean, resamples in columns}


def _checked(values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise DataError(f"bootstrap: values of shape {numbers.shape}; give one number for each query, at least one")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"bootstrap: value {row} is {numbers[row]}; each query must have a finite number")
    return numbers

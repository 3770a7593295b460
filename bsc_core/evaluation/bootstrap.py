"""Intervals: how far a mean may move when other queries, or other seeds, had been drawn.

Every draw follows from the seed given. Percentile intervals (Efron 1979) are used throughout: they need no formula for
the metric, and stay inside its range.
"""

# Q queries, S seeds, N rows, B draws

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Numbers, QueryValues

Statistic = Callable[[NDArray[np.int64]], float | None]
"""Called with row numbers, of which those drawn twice stand twice; None where it is not defined for them."""

DRAWS = 10_000
FEWER_DRAWS = 1_000  # where each draw computes a metric anew
CELLS_AT_ONCE = 2**21
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A value and the range that holds `level` of its draws; low and high are None where nothing can be drawn anew."""

    value: float
    low: float | None
    high: float | None
    level: float = LEVEL

    @property
    def holds_zero(self) -> bool:
        """Whether 0 cannot be ruled out; true without a range."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    def __str__(self) -> str:
        known = self.low is not None and self.high is not None
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]" if known else f"{self.value:.3f} [no interval]"


@dataclass(frozen=True)
class SeededInterval:
    """A mean over seeds and queries, with what each of the two leaves open.

    both: other seeds and other queries; queries: other queries, these seeds; seeds: other seeds, these queries (without
    a range for one seed). seed_deviation: sample standard deviation of the S means, None for one seed.
    """

    both: Interval
    queries: Interval
    seeds: Interval
    seed_deviation: float | None


def bootstrap_mean(values: ArrayLike, *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> Interval:
    """Mean of values (Q,) with its percentile interval over queries drawn with replacement.

    One query has a mean but no interval. Raises DataError without values or for one that is not finite.
    """
    numbers = _checked(values)
    means = draw_means(numbers, draws, seed) if len(numbers) > 1 else None
    return interval(float(numbers.mean()), means, level)


def bootstrap_statistic(
    statistic: Statistic, groups: ArrayLike, *, seed: int, draws: int = FEWER_DRAWS, level: float = LEVEL
) -> Interval:
    """Interval of anything that can be computed from rows, such as a correlation over pairs.

    groups: (N,) rows with one value are drawn together, such as all pairs of one query; give `range(N)` where every row
    stands for itself. Draws for which the statistic is None are left out; with one group, or where more than half are
    None, there is no interval. Raises DataError when the statistic of all rows is None.
    """
    whole, drawn = draw_statistics([statistic], groups, draws, seed)
    return interval(float(whole[0]), None if drawn is None else drawn[:, 0], level)


def draw_statistics(
    statistics: Sequence[Statistic], groups: ArrayLike, draws: int, seed: int
) -> tuple[Numbers, Numbers | None]:
    """Each statistic of all rows (n,), and of the rows of drawn groups (B, n) without the draws that leave one None.

    The second is None with one group, or where half of the draws are gone. Raises DataError when a statistic of all
    rows is None.
    """
    _, owner = np.unique(np.asarray(groups), return_inverse=True)
    whole = [statistic(np.arange(len(owner))) for statistic in statistics]
    if not len(owner) or any(value is None for value in whole):
        raise DataError("bootstrap: the metric is not defined for these rows; give rows for which it is")
    members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    generator = np.random.default_rng([seed, 0])
    found = []
    for _ in range(draws if len(members) > 1 else 0):
        rows = np.concatenate([members[group] for group in generator.integers(0, len(members), len(members))])
        values = [statistic(rows) for statistic in statistics]
        found += [] if any(value is None for value in values) else [values]
    known = len(members) > 1 and 2 * len(found) > draws
    return np.asarray(whole, dtype=np.float64), np.asarray(found, dtype=np.float64) if known else None


def bootstrap_seeds(values: ArrayLike, *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> SeededInterval:
    """Mean of values (S, Q), one row for each training seed, with seeds and queries drawn apart.

    Every seed is measured on the same queries, so the two are crossed: value = mean + seed + query + rest. A draw of
    `both` takes Q queries, averaged over the seeds, and adds S seed effects, see `seed_effects`. With one seed `both`
    speaks of queries alone. Raises DataError for anything but a finite table.
    """
    table = seed_table(values)
    mean, per_seed = float(table.mean()), table.mean(axis=1)
    over_queries = draw_means(table.mean(axis=0), draws, seed) if table.shape[1] > 1 else None
    freedom = seed_freedom([table])
    alone = draw_seeds([per_seed - mean], freedom, draws, seed) + mean if len(table) > 1 else None
    effects = draw_seeds([seed_effects(table)], freedom, draws, seed)
    return SeededInterval(
        both=interval(mean, None if over_queries is None else over_queries + effects, level),
        queries=interval(mean, over_queries, level),
        seeds=interval(mean, alone, level),
        seed_deviation=float(per_seed.std(ddof=1)) if len(table) > 1 else None,
    )


def seed_effects(table: Numbers) -> Numbers:
    """How far each seed of a table (S, Q) lies from their mean, without what single queries add: (S,).

    The deviations of the seed means are shrunk to the variance of the seed effect in a two-way analysis of variance,
    (MS_seed - MS_rest) / Q, so that queries on which seeds differ by chance are not counted again as a difference
    between seeds; 0 where that is not positive, and for one seed or one query.
    """
    seeds, queries = table.shape
    deviations = table.mean(axis=1) - table.mean()
    if seeds < 2 or queries < 2 or not deviations.any():
        return np.zeros(seeds)
    rest = table - table.mean(axis=0) - deviations[:, None]
    total = np.sum(deviations**2) / (seeds - 1)
    noise = np.sum(rest**2) / ((seeds - 1) * (queries - 1)) / queries
    effects: Numbers = deviations * np.sqrt(max(0.0, 1 - noise / total))
    return effects


def seed_freedom(tables: Sequence[Numbers]) -> float | None:
    """Degrees of freedom of Welch (1947) for the seed means of the tables (S, Q) together.

    2 for three seeds, 4 for two settings of three that vary alike. None where no table has seeds that differ.
    """
    several = [table.mean(axis=1) for table in tables if len(table) > 1]
    variances = np.asarray([means.var(ddof=1) / len(means) for means in several])
    if not variances.any():
        return None
    return float(variances.sum() ** 2 / np.sum(variances**2 / [len(means) - 1 for means in several]))


def draw_seeds(effects: Sequence[Numbers], freedom: float | None, draws: int, seed: int) -> Numbers:
    """(B,) how far other seeds would move the difference of settings, or the mean of one.

    effects: of each setting (S,), of mean 0. Few seeds tell little of how much seeds vary, so the draws follow
    Student's t with these degrees of freedom, 2 for three seeds: its far tails, which a correction for many tests asks
    for, are as rare as they say. They are stratified, so that few draws have them too. Zeros without freedom.
    """
    from scipy.stats import t

    variance = sum(float(np.sum(own**2)) / (len(own) - 1) / len(own) for own in effects if len(own) > 1)
    if freedom is None or not variance:
        return np.zeros(draws)
    places = np.random.default_rng([seed, 1]).permutation(draws)
    drawn: Numbers = np.sqrt(variance) * t.ppf((places + 0.5) / draws, freedom)
    return drawn


def draw_means(values: Numbers, draws: int, seed: int) -> Numbers:
    """(B,) means of Q values drawn with replacement from `values` (Q,); equal for every run of the same seed and Q."""
    means = np.empty(draws)
    for part, weights in draw_weights(len(values), draws, seed):
        means[part] = weights @ values
    return means


def fitting_draws(rows: int, cells: int) -> int:
    """As many draws of rows as make `cells` cells, between FEWER_DRAWS and DRAWS."""
    return max(FEWER_DRAWS, min(DRAWS, cells // max(1, rows)))


def draw_weights(count: int, draws: int, seed: int) -> Iterator[tuple[slice, Numbers]]:
    """Blocks of draws with the share (block, Q) that each of `count` queries has in them."""
    generator = np.random.default_rng([seed, 0])
    height = max(1, CELLS_AT_ONCE // count)
    for start in range(0, draws, height):
        size = min(height, draws - start)
        drawn = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        counts = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        yield slice(start, start + size), counts / count


def interval(value: float, drawn: Numbers | None, level: float) -> Interval:
    """The percentiles (1 - level) / 2 and (1 + level) / 2 of the draws; no range without draws."""
    if not 0 < level < 1:
        raise DataError(f"bootstrap: level is {level:g}; it must lie between 0 and 1 (0.95 is usual)")
    if drawn is None:
        return Interval(value, None, None, level)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level)


def seed_table(values: ArrayLike) -> Numbers:
    """Values as (S, Q); one row is one seed. Raises DataError when they are no such table or not finite."""
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2 or not table.size:
        raise DataError(f"bootstrap: values of shape {table.shape}; give one row for each seed, one column a query")
    _checked(table.ravel())
    return table


def _checked(values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise DataError(f"bootstrap: values of shape {numbers.shape}; give one number for each query, at least one")
    if not np.isfinite(numbers).all():
        place = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"bootstrap: value {place} is {numbers[place]}; each query must have a number")
    return numbers


def query_intervals(
    measured: QueryValues, *, seed: int, draws: int = DRAWS, level: float = LEVEL
) -> dict[str, Interval]:
    """The mean of every metric with its interval, all from the same draws of queries. Empty without queries."""
    if not len(measured.positives):
        return {}
    table = np.stack(list(measured.values.values()), axis=1)  # (Q, metrics)
    means = np.empty((draws, table.shape[1]))
    for part, weights in draw_weights(len(table), draws, seed):
        means[part] = weights @ table
    columns = zip(measured.values, table.mean(axis=0), means.T, strict=True)
    return {name: interval(float(mean), drawn if len(table) > 1 else None, level) for name, mean, drawn in columns}

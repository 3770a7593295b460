"""Is a difference one? Two runs are compared query by query, never by their means alone."""

# Q queries, S and T seeds of the two runs, B draws

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import (
    CELLS_AT_ONCE,
    DRAWS,
    FEWER_DRAWS,
    LEVEL,
    Interval,
    Statistic,
    draw_means,
    draw_seeds,
    draw_statistics,
    draw_weights,
    interval,
    seed_effects,
    seed_freedom,
    seed_table,
)
from bsc_core.evaluation.measures import Numbers, QueryValues
from bsc_core.evaluation.pairs import pair_metrics

EXACT_UP_TO = 14  # queries that differ: all 2^14 signs are tried
ROUNDING = 1e-12  # sums of the same numbers with other signs differ by as much


@dataclass(frozen=True)
class Comparison:
    """What the second run has over the first.

    difference: mean over queries, second - first, with its bootstrap interval. p: how often chance alone makes a
    difference as large, both ways; None where nothing can be tested. is_difference: p < 1 - level, and 0 lies outside
    the interval. queries: how many were compared, or groups of rows. method: how p was found. wins, losses, ties:
    queries on which the second run is better, worse, equal; None for a metric that no single query has. seeds: of the
    two runs.
    """

    difference: Interval
    p: float | None
    queries: int
    method: str
    wins: int | None = None
    losses: int | None = None
    ties: int | None = None
    seeds: tuple[int, int] = (1, 1)

    @property
    def is_difference(self) -> bool:
        """Whether the two runs differ by more than chance; false where that cannot be told."""
        return self.p is not None and self.p < 1 - self.difference.level and not self.difference.holds_zero

    def sentence(self, *, more: str = "better", less: str = "worse", of: str = "queries") -> str:
        """The result in words, for tables and logs.

        more, less: of a difference above and below 0; of: what is drawn.
        """
        drawn = "no interval"
        if self.difference.low is not None and self.difference.high is not None:
            drawn = f"{self.difference.level:.0%} interval {self.difference.low:+.3f} to {self.difference.high:+.3f}"
        chance = "no test" if self.p is None else f"p = {self.p:.2g}" if self.p >= 0.001 else "p < 0.001"
        verdict = (more if self.difference.value > 0 else less) if self.is_difference else "cannot be told from chance"
        return f"{self.difference.value:+.3f} ({drawn}, {chance}, {self.queries:,} {of}): {verdict}"


def compare(first: ArrayLike, second: ArrayLike, *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> Comparison:
    """Compare two runs by a metric of each query: first, second (Q,), the same queries in the same order.

    p is that of the paired permutation test, the interval that of a bootstrap over queries. With one query, or where no
    query differs, nothing can be told. Raises DataError for unequal lengths, no query, or a value that is not finite.
    """
    one, two = _pair(first, second)
    gained = two - one
    means = draw_means(gained, draws, seed) if len(gained) > 1 else None
    span = interval(float(gained.mean()), means, level)
    p, exact = _permuted(gained, seed, draws)
    method = "all sign changes" if exact else f"{draws:,} sign changes"
    return Comparison(span, p, len(gained), method, *_wins(gained))


def compare_queries(
    first: QueryValues, second: QueryValues, metric: str, *, seed: int, draws: int = DRAWS, level: float = LEVEL
) -> Comparison:
    """`compare` by a metric's name; queries are matched by their ids.

    Raises DataError when the runs were measured on other queries, or the metric is not among theirs.
    """
    places = {query: place for place, query in enumerate(second.query)}
    if len(first.query) != len(second.query) or any(query not in places for query in first.query):
        raise DataError(
            f"comparison: {len(first.query)} and {len(second.query)} queries that are not the same; measure both runs "
            "on the same queries"
        )
    for values in (first.values, second.values):
        if metric not in values:
            raise DataError(f"comparison: no metric {metric!r}; there are {', '.join(sorted(values))}")
    order = [places[query] for query in first.query]
    return compare(first.values[metric], second.values[metric][order], seed=seed, draws=draws, level=level)


def compare_seeds(
    first: ArrayLike, second: ArrayLike, *, seed: int, draws: int = DRAWS, level: float = LEVEL
) -> Comparison:
    """Compare two settings trained with several seeds: first (S, Q) and second (T, Q) on the same queries.

    A draw takes queries, the same for both, and seeds of each setting as `bootstrap_seeds` does. p is twice the smaller
    share of draws on either side of 0 (each counted with one more draw, so never 0). An untrained encoder is one row:
    it has no seeds. Where both sides have one row p speaks of queries only. Wins and losses are those of the means over
    seeds. Raises DataError as `compare` does.
    """
    one, two = seed_table(first), seed_table(second)
    if one.shape[1] != two.shape[1]:
        raise DataError(f"comparison: {one.shape[1]} and {two.shape[1]} queries; measure both on the same queries")
    gained = two.mean(axis=0) - one.mean(axis=0)
    drawn = None
    if len(gained) > 1:
        effects = [seed_effects(one), seed_effects(two)]
        drawn = draw_means(gained, draws, seed) + draw_seeds(effects, seed_freedom([one, two]), draws, seed)
    span = interval(float(gained.mean()), drawn, level)
    p = None if drawn is None or not gained.any() else _two_sided(drawn)
    method = f"{draws:,} draws of seeds and queries"
    return Comparison(span, p, len(gained), method, *_wins(gained), seeds=(len(one), len(two)))


def compare_statistics(
    first: Sequence[Statistic],
    second: Sequence[Statistic],
    groups: ArrayLike,
    *,
    seed: int,
    draws: int = FEWER_DRAWS,
    level: float = LEVEL,
) -> Comparison:
    """Compare by a metric of all rows together, such as Spearman over pairs (`pair_statistic`).

    first, second: the metric of one setting's seeds, each called with the same drawn rows. groups: (N,) rows that are
    drawn together. Differences between the seeds of a setting are drawn too, as in `compare_seeds` but never shrunk. p
    as there. Raises DataError when a metric of all rows is None.
    """
    count = len(np.unique(np.asarray(groups)))
    whole, found = draw_statistics([*first, *second], groups, draws, seed)
    return compare_draws(whole, found, len(first), groups=count, seed=seed, level=level)


def compare_draws(
    whole: Numbers, drawn: Numbers | None, firsts: int, *, groups: int, seed: int, level: float = LEVEL
) -> Comparison:
    """The `Comparison` of two settings by a metric of all rows: of them (S + T,), and of drawn rows (B, S + T).

    The first `firsts` = S columns are the seeds of the first setting. drawn: None where nothing can be drawn.
    """
    one, two = np.split(whole, [firsts])
    gained = None
    if drawn is not None:
        freedom = seed_freedom([one[:, None], two[:, None]])
        spread = draw_seeds([one - one.mean(), two - two.mean()], freedom, len(drawn), seed)
        gained = drawn[:, firsts:].mean(axis=1) - drawn[:, :firsts].mean(axis=1) + spread
    p = None if gained is None or not gained.any() else _two_sided(gained)
    method = f"{0 if drawn is None else len(drawn):,} draws of seeds and rows"
    span = interval(float(two.mean() - one.mean()), gained, level)
    return Comparison(span, p, groups, method, seeds=(len(one), len(two)))


def pair_statistic(
    scores: ArrayLike, labels: ArrayLike, metric: str, *, threshold: float = 0.5, decision: float | None = None
) -> Statistic:
    """A metric of `pair_metrics` as a function of rows, for `bootstrap_statistic` and `compare_statistics`.

    decision: the threshold of F1, or of accuracy where the metric is `best_accuracy`, as chosen on dev. A metric with a
    threshold and no decision chooses it anew in every draw.
    """
    given, gold = np.asarray(scores), np.asarray(labels)

    def statistic(rows: NDArray[np.int64]) -> float | None:
        chosen = {"accuracy_decision" if metric == "best_accuracy" else "decision": decision}
        return pair_metrics(given[rows], gold[rows], threshold=threshold, **chosen)[metric]

    return statistic


def paired_permutation_test(first: ArrayLike, second: ArrayLike, *, seed: int, draws: int = DRAWS) -> float | None:
    """Two-sided p of the mean difference when every query's two values may be swapped (Fisher's randomization test).

    p = share of sign changes whose |sum| is at least the observed one: of all 2^d for d <= 14 queries that differ, else
    of `draws` and the observed one itself, (1 + count) / (1 + draws). None for one query or without any difference.
    """
    one, two = _pair(first, second)
    return _permuted(two - one, seed, draws)[0]


def paired_bootstrap_test(first: ArrayLike, second: ArrayLike, *, seed: int, draws: int = DRAWS) -> float | None:
    """Two-sided p of the mean difference under queries drawn with replacement (Efron and Tibshirani 1993, 16.4).

    Differences are centred first, so that the draws obey "no difference"; p = (1 + count of |draw| >= |observed|) /
    (1 + draws). None for one query or without any difference.
    """
    one, two = _pair(first, second)
    gained = two - one
    if len(gained) < 2 or not gained.any():
        return None
    observed, count = abs(float(gained.mean())), 0
    for _, weights in draw_weights(len(gained), draws, seed):
        count += int((np.abs(weights @ (gained - gained.mean())) >= observed - ROUNDING).sum())
    return (1 + count) / (1 + draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, raised so that one false "difference" among all stays rare (Holm 1979).

    The i-th smallest of m is multiplied by m - i + 1, kept rising and at most 1; the order of the list stays.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    raised = np.minimum(np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values)))), 1.0)
    adjusted = np.empty_like(values)
    adjusted[order] = raised
    return [float(value) for value in adjusted]


def _permuted(gained: Numbers, seed: int, draws: int) -> tuple[float | None, bool]:
    """p of the permutation test, and whether all sign changes were tried."""
    differing = gained[gained != 0]
    if len(gained) < 2 or not len(differing):
        return None, True
    observed = abs(float(differing.sum()))
    least = observed - ROUNDING * float(np.abs(differing).sum())
    if len(differing) <= EXACT_UP_TO:
        bits = np.arange(2 ** len(differing))[:, None] >> np.arange(len(differing))
        return float((np.abs((1 - 2.0 * (bits & 1)) @ differing) >= least).mean()), True
    generator = np.random.default_rng([seed, 2])
    height, count = max(1, CELLS_AT_ONCE // len(differing)), 0
    for start in range(0, draws, height):
        size = (min(height, draws - start), len(differing))
        signs = 2.0 * generator.integers(0, 2, size, dtype=np.int8) - 1
        count += int((np.abs(signs @ differing) >= least).sum())
    return (1 + count) / (1 + draws), False


def _two_sided(drawn: Numbers) -> float:
    below, above = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + len(drawn)))


def _wins(gained: Numbers) -> tuple[int, int, int]:
    return int((gained > 0).sum()), int((gained < 0).sum()), int((gained == 0).sum())


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[Numbers, Numbers]:
    one, two = seed_table(first), seed_table(second)
    if one.shape != two.shape or len(one) != 1:
        raise DataError(
            f"comparison: values of shape {np.shape(first)} and {np.shape(second)}; give one value of each query for "
            "each run, the same queries in the same order"
        )
    return one[0], two[0]

"""Intervals and comparisons of the metrics of all pairs, from how often each pair was drawn.

A draw of pairs is a weight for each, so nothing is sorted anew: ranks follow from sums of weights in an order that is
found once. The draws, and to rounding the values, are those of `bootstrap_statistic` and `compare_statistics` with
`pair_statistic`, at a hundredth of their time.
"""

# N pairs, G groups of them, T distinct scores, B draws

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.evaluation.bootstrap import CELLS_AT_ONCE, LEVEL, Interval, fitting_draws, interval
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.pairs import pair_metrics
from bsc_core.evaluation.significance import Comparison, compare_draws

CELLS = {"interval": 2 * 10**6, "comparison": 5 * 10**6}  # pairs times draws, above which fewer are drawn
PAIR_METRICS = (
    *("spearman", "pearson", "auc", "average_precision"),
    *("f1", "precision", "recall", "accuracy", "best_accuracy"),
)
"""The metrics of all pairs together that have an interval: no single query has a value of them."""
DECIDED = PAIR_METRICS[4:]
"""Those that call each pair positive or negative."""


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs as one model scores them: scores (N,), labels (N,); positive when the label is above `threshold`.

    decision, accuracy_decision: the scores from which a pair is called positive, chosen on dev.
    """

    scores: Numbers
    labels: NDArray[np.floating]
    threshold: float = 0.5
    decision: float | None = None
    accuracy_decision: float | None = None

    @cached_property
    def metrics(self) -> dict[str, float | None]:
        """PAIR_METRICS of all pairs; None where one is not defined, as one that decides is without a decision."""
        chosen = {"decision": self.decision, "accuracy_decision": self.accuracy_decision}
        every = pair_metrics(self.scores, self.labels, threshold=self.threshold, **chosen)
        return {name: None if name in DECIDED and self.cut(name) is None else every[name] for name in PAIR_METRICS}

    def cut(self, metric: str) -> float | None:
        """The score from which a metric that decides calls a pair positive."""
        return self.accuracy_decision if metric == "best_accuracy" else self.decision

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """(N,) in the labels' own precision, as `pair_metrics` compares them."""
        return np.asarray(np.asarray(self.labels) > self.threshold)

    def drawn(self, metric: str, weights: Numbers) -> Numbers:
        """(B,) one of PAIR_METRICS when pair i stands weights[b, i] times, NaN for a draw that does not define it."""
        if metric == "spearman":
            ranks = [_spread(order, _ranks(order, weights)) for order in (self._by_score, self._by_label)]
            return self._correlation(weights, ranks[0], ranks[1])
        if metric == "pearson":
            return self._correlation(weights, self.scores[None], np.asarray(self.labels, dtype=np.float64)[None])
        if metric == "auc":
            return self._area(weights)
        if metric == "average_precision":
            return self._average_precision(weights)
        return self._decided(metric, weights)

    @cached_property
    def _by_score(self) -> _Order:
        return _Order.of(self.scores)

    @cached_property
    def _by_label(self) -> _Order:
        return _Order.of(np.asarray(self.labels, dtype=np.float64))

    def _correlation(self, weights: Numbers, left: Numbers, right: Numbers) -> Numbers:
        """Of values (B or 1, N); 0 where either is constant among the pairs drawn."""
        total = weights.sum(axis=1, keepdims=True)
        left, right = (side - (weights * side).sum(axis=1, keepdims=True) / total for side in (left, right))
        both, one, two = ((weights * left * right), (weights * left**2), (weights * right**2))
        product = np.sqrt(one.sum(axis=1) * two.sum(axis=1))
        varied = (_varied(self._by_score, weights)) & (_varied(self._by_label, weights)) & (product > 0)
        found = np.divide(both.sum(axis=1), product, out=np.zeros(len(weights)), where=varied)
        clipped: Numbers = np.clip(found, -1, 1)
        return clipped

    def _area(self, weights: Numbers) -> Numbers:
        ranks = _spread(self._by_score, _ranks(self._by_score, weights))
        chosen = weights * self.positive
        hits = chosen.sum(axis=1)
        above = (chosen * ranks).sum(axis=1) - hits * (hits + 1) / 2
        return _share(above, hits * (weights.sum(axis=1) - hits))

    def _average_precision(self, weights: Numbers) -> Numbers:
        hits = np.cumsum(_by_level(self._by_score, weights * self.positive)[:, ::-1], axis=1)
        taken = np.cumsum(_by_level(self._by_score, weights)[:, ::-1], axis=1)
        precision = np.divide(hits, taken, out=np.zeros_like(hits), where=taken > 0)
        return _share((np.diff(hits, prepend=0, axis=1) * precision).sum(axis=1), hits[:, -1])

    def _decided(self, metric: str, weights: Numbers) -> Numbers:
        cut = self.cut(metric)
        called = np.zeros(len(self.scores), dtype=bool) if cut is None else self.scores >= cut
        if metric in ("accuracy", "best_accuracy"):
            return _share(weights @ (called == self.positive), weights.sum(axis=1))
        hits, taken, positives = (
            weights @ np.asarray(side) for side in (called & self.positive, called, self.positive)
        )
        if metric == "f1":
            return _share(2 * hits, np.where(positives > 0, taken + positives, 0))
        if metric == "recall":
            return _share(hits, positives)
        precision = np.divide(hits, taken, out=np.zeros(len(weights)), where=taken > 0)
        return np.where(positives > 0, precision, np.nan)


@dataclass(frozen=True, eq=False)
class _Order:
    """Pairs by rising value. rows: (N,); starts: (T,) where each distinct value begins; level: (N,) of each pair."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    level: NDArray[np.int64]

    @classmethod
    def of(cls, values: Numbers) -> _Order:
        _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
        return cls(np.argsort(values, kind="stable"), np.cumsum(counts) - counts, level)


def _by_level(order: _Order, weights: Numbers) -> Numbers:
    """(B, T) the weight of each distinct value, rising."""
    sums: Numbers = np.add.reduceat(weights[:, order.rows], order.starts, axis=1)
    return sums


def _ranks(order: _Order, weights: Numbers) -> Numbers:
    """(B, T) the mean rank of each distinct value among the pairs drawn."""
    counts = _by_level(order, weights)
    ranks: Numbers = np.cumsum(counts, axis=1) - (counts - 1) / 2
    return ranks


def _spread(order: _Order, by_level: Numbers) -> Numbers:
    """(B, N) from (B, T)."""
    return by_level[:, order.level]


def _varied(order: _Order, weights: Numbers) -> NDArray[np.bool_]:
    """(B,) whether two distinct values were drawn."""
    return np.asarray((_by_level(order, weights) > 0).sum(axis=1) > 1)


def _share(part: Numbers, whole: Numbers) -> Numbers:
    """part / whole, NaN where the whole is 0."""
    shares: Numbers = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return shares


def pair_intervals(
    pairs: ScoredPairs, groups: ArrayLike, *, seed: int, draws: int | None = None, level: float = LEVEL
) -> dict[str, Interval]:
    """Every defined metric of PAIR_METRICS with its percentile interval; groups: (N,) pairs of one are drawn together.

    draws: None takes 10,000, and fewer, down to 1,000, of many pairs. A draw that does not define a metric is left out
    of it; where that is half of them, or with one group, there is no range.
    """
    values = {name: value for name, value in pairs.metrics.items() if value is not None}
    found: dict[str, list[Numbers]] = {name: [] for name in values}
    for weights in _weights(groups, seed, draws, CELLS["interval"]):
        for name in values:
            found[name].append(pairs.drawn(name, weights))
    return {name: interval(value, _kept([np.concatenate([*found[name], []])]), level) for name, value in values.items()}


def compare_pairs(
    first: Sequence[ScoredPairs],
    second: Sequence[ScoredPairs],
    metric: str,
    groups: ArrayLike,
    *,
    seed: int,
    draws: int | None = None,
    level: float = LEVEL,
) -> Comparison:
    """`compare_statistics` of one of PAIR_METRICS. first, second: the same pairs as each setting's seeds score them.

    draws: as in `pair_intervals`. The metric must be defined for all pairs of every seed.
    """
    whole, drawn = _drawn_sides([*first, *second], metric, groups, seed, draws)
    count = len(np.unique(np.asarray(groups)))
    return compare_draws(whole, drawn, len(first), groups=count, seed=seed, level=level)


def mean_of_pairs(
    sides: Sequence[ScoredPairs], metric: str, groups: ArrayLike, *, seed: int, level: float = LEVEL
) -> Interval:
    """The mean of one of PAIR_METRICS over the seeds of a setting, with its interval over seeds and pairs."""
    whole, drawn = _drawn_sides(sides, metric, groups, seed, None)
    none = None if drawn is None else np.column_stack([np.zeros(len(drawn)), drawn])
    return compare_draws(np.append(0.0, whole), none, 1, groups=2, seed=seed, level=level).difference


def _drawn_sides(
    sides: Sequence[ScoredPairs], metric: str, groups: ArrayLike, seed: int, draws: int | None
) -> tuple[Numbers, Numbers | None]:
    """The metric of each side on all pairs (S,) and on drawn ones (B, S), as `draw_statistics` gives them."""
    blocks = _weights(groups, seed, draws, CELLS["comparison"])
    found = [np.stack([side.drawn(metric, weights) for side in sides], axis=1) for weights in blocks]
    whole = np.asarray([side.metrics[metric] for side in sides], dtype=np.float64)
    drawn = np.concatenate(found) if found else np.empty((0, len(sides)))
    known = drawn[~np.isnan(drawn).any(axis=1)]
    return whole, known if 2 * len(known) > len(drawn) else None


def _kept(columns: list[Numbers]) -> Numbers | None:
    """The draws that define the metric, None where half of them do not."""
    drawn = columns[0]
    known = drawn[~np.isnan(drawn)]
    return known if 2 * len(known) > len(drawn) else None


def _weights(groups: ArrayLike, seed: int, draws: int | None, cells: int) -> Iterator[Numbers]:
    """Blocks (b, N) of how often each pair stands in a draw; none where there is one group."""
    _, owner = np.unique(np.asarray(groups), return_inverse=True)
    count = int(owner.max(initial=-1)) + 1
    if count < 2:
        return
    wanted = fitting_draws(len(owner), cells) if draws is None else draws
    generator = np.random.default_rng([seed, 0])
    height = max(1, CELLS_AT_ONCE // 4 // len(owner))
    for start in range(0, wanted, height):
        size = min(height, wanted - start)
        chosen = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        times = np.bincount(chosen.ravel(), minlength=size * count).reshape(size, count)
        yield times[:, owner].astype(np.float64)

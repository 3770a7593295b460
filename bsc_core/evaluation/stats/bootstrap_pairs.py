"""Weighted bootstrap of the metrics of all pairs.

A resample is a weight for each pair, so pairs are sorted once and ranks follow from sums of weights. This is about 100
times as fast as computing the metric of the resampled pairs.
"""

# N pairs, T distinct scores, B resamples

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.evaluation.metrics.pairs import pair_metrics
from bsc_core.evaluation.stats.bootstrap import (
    CELLS_AT_ONCE,
    Interval,
    defined_resamples,
    fitting_resamples,
    interval,
    mean_interval,
    resample_counts,
)
from bsc_core.evaluation.stats.significance import Comparison, compare_resamples
from bsc_core.types import Indices, Mask, Numbers

CELLS = {"interval": 2 * 10**6, "comparison": 5 * 10**6}  # pairs x resamples, above which there are fewer resamples
MAX_PAIRS = 20_000  # that are resampled; the deviations of resamples of a part of the pairs are scaled
PAIR_METRICS = (
    *("spearman", "pearson", "auc", "average_precision"),
    *("f1", "precision", "recall", "accuracy", "best_accuracy"),
)
"""The metrics of all pairs together that have an interval."""
CLASSIFICATION_METRICS = PAIR_METRICS[4:]
"""Those that classify each pair by a threshold."""


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs scored by one model."""

    scores: Numbers  # (N,)
    labels: NDArray[np.floating]  # (N,)
    threshold: float = 0.5  # a pair is positive if its label is above it
    decision: float | None = None  # score from which a pair is predicted positive, chosen on dev for F1
    accuracy_decision: float | None = None  # the same for `best_accuracy`

    def part(self, rows: Indices) -> ScoredPairs:
        """Return some of the pairs."""
        return replace(self, scores=self.scores[rows], labels=np.asarray(self.labels)[rows])

    @cached_property
    def metrics(self) -> dict[str, float | None]:
        """PAIR_METRICS of all pairs; None if undefined, such as F1 without a decision."""
        cuts = {"decision": self.decision, "accuracy_decision": self.accuracy_decision}
        every = pair_metrics(self.scores, self.labels, threshold=self.threshold, **cuts)
        return {
            name: None if name in CLASSIFICATION_METRICS and self.cut(name) is None else every[name]
            for name in PAIR_METRICS
        }

    def cut(self, metric: str) -> float | None:
        """Return the score from which a classification metric predicts a positive pair."""
        return self.accuracy_decision if metric == "best_accuracy" else self.decision

    @cached_property
    def positive(self) -> Mask:
        """Whether each pair is positive (N,), in the precision of the labels as in `pair_metrics`."""
        return np.asarray(np.asarray(self.labels) > self.threshold)

    def resampled(self, metric: str, weights: Numbers) -> Numbers:
        """Return one of PAIR_METRICS (B,) with pair i repeated weights[b, i] times; NaN where undefined."""
        if metric == "spearman":
            return self._correlation(weights, self._by_score.ranks(weights), self._by_label.ranks(weights))
        if metric == "pearson":
            return self._correlation(weights, self.scores[None], np.asarray(self.labels, dtype=np.float64)[None])
        if metric == "auc":
            return self._area(weights)
        if metric == "average_precision":
            return self._average_precision(weights)
        return self._classification(metric, weights)

    @cached_property
    def _by_score(self) -> _Order:
        return _Order(self.scores)

    @cached_property
    def _by_label(self) -> _Order:
        return _Order(np.asarray(self.labels, dtype=np.float64))

    def _correlation(self, weights: Numbers, left: Numbers, right: Numbers) -> Numbers:
        """Return the correlation of values (B or 1, N); 0 if either is constant in the resample."""
        total = np.maximum(weights.sum(axis=1, keepdims=True), 1)
        left, right = (side - (weights * side).sum(axis=1, keepdims=True) / total for side in (left, right))
        both, one, two = ((weights * left * right), (weights * left**2), (weights * right**2))
        product = np.sqrt(one.sum(axis=1) * two.sum(axis=1))
        varied = self._by_score.varied(weights) & self._by_label.varied(weights) & (product > 0)
        correlations = np.divide(both.sum(axis=1), product, out=np.zeros(len(weights)), where=varied)
        return np.asarray(np.clip(correlations, -1, 1))

    def _area(self, weights: Numbers) -> Numbers:
        positive = weights * self.positive
        hits = positive.sum(axis=1)
        above = (positive * self._by_score.ranks(weights)).sum(axis=1) - hits * (hits + 1) / 2
        return _ratio(above, hits * (weights.sum(axis=1) - hits))

    def _average_precision(self, weights: Numbers) -> Numbers:
        hits = np.cumsum(self._by_score.sums(weights * self.positive)[:, ::-1], axis=1)
        predicted = np.cumsum(self._by_score.sums(weights)[:, ::-1], axis=1)
        precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
        return _ratio((np.diff(hits, prepend=0, axis=1) * precision).sum(axis=1), hits[:, -1])

    def _classification(self, metric: str, weights: Numbers) -> Numbers:
        cut = self.cut(metric)
        predicted = np.zeros(len(self.scores), dtype=bool) if cut is None else self.scores >= cut
        if metric in ("accuracy", "best_accuracy"):
            return _ratio(weights @ (predicted == self.positive), weights.sum(axis=1))
        hits, predictions, positives = (
            weights @ np.asarray(side) for side in (predicted & self.positive, predicted, self.positive)
        )
        if metric == "f1":
            return _ratio(2 * hits, np.where(positives > 0, predictions + positives, 0))
        if metric == "recall":
            return _ratio(hits, positives)
        precision = np.divide(hits, predictions, out=np.zeros(len(weights)), where=predictions > 0)
        return np.where(positives > 0, precision, np.nan)


class _Order:
    """Pairs in ascending order of a value (N,)."""

    def __init__(self, values: Numbers) -> None:
        _, self.level, counts = np.unique(values, return_inverse=True, return_counts=True)  # (N,) distinct value
        self.rows = np.argsort(values, kind="stable")  # (N,)
        self.starts = np.cumsum(counts) - counts  # (T,) first index of each distinct value

    def sums(self, weights: Numbers) -> Numbers:
        """Return the weight (B, T) of each distinct value, ascending."""
        return np.asarray(np.add.reduceat(weights[:, self.rows], self.starts, axis=1))

    def ranks(self, weights: Numbers) -> Numbers:
        """Return the mean rank (B, N) of each pair's value in the resample."""
        counts = self.sums(weights)
        return np.asarray((np.cumsum(counts, axis=1) - (counts - 1) / 2)[:, self.level])

    def varied(self, weights: Numbers) -> Mask:
        """Return whether each resample (B,) has two distinct values."""
        return np.asarray((self.sums(weights) > 0).sum(axis=1) > 1)


def _ratio(part: Numbers, total: Numbers) -> Numbers:
    """Return part / total, NaN where total is 0."""
    return np.asarray(np.divide(part, total, out=np.full(len(part), np.nan), where=total > 0))


def pair_intervals(
    pairs: ScoredPairs, groups: ArrayLike, *, seed: int, n_resamples: int | None = None
) -> dict[str, Interval]:
    """Return every defined metric of PAIR_METRICS with its percentile interval.

    Resamples for which a metric is undefined are excluded. There is no interval with a single group, or if half of the
    resamples are excluded.

    Args:
        pairs: the scored pairs.
        groups: (N,) pairs with equal values are resampled together.
        seed: seed of the resampling.
        n_resamples: number of resamples; None selects 10,000, reduced down to 1,000 for many pairs.
    """
    values = {name: value for name, value in pairs.metrics.items() if value is not None}
    resamples = _resample([pairs], list(values), groups, seed, n_resamples, CELLS["interval"])
    return {
        name: interval(value, None if (column := resamples[name]) is None else column[:, 0])
        for name, value in values.items()
    }


def compare_pairs(
    first: Sequence[ScoredPairs],
    second: Sequence[ScoredPairs],
    metric: str,
    groups: ArrayLike,
    *,
    seed: int,
    n_resamples: int | None = None,
) -> Comparison:
    """Compare two settings by one of PAIR_METRICS that is defined for every seed.

    p and the resampling of seeds are as in `compare_seeds`, but differences between seeds are not shrunk.

    Args:
        first: The pairs as scored by each seed of the first setting.
        second: The same pairs as scored by each seed of the second setting.
        metric: One of PAIR_METRICS.
        groups: As in `pair_intervals`.
        seed: Seed of the resampling.
        n_resamples: As in `pair_intervals`.
    """
    sides = [*first, *second]
    resamples = _resample(sides, [metric], groups, seed, n_resamples, CELLS["comparison"])[metric]
    number = len(np.unique(np.asarray(groups)))
    return compare_resamples(_values(sides, metric), resamples, len(first), groups=number, seed=seed)


def mean_pair_interval(sides: Sequence[ScoredPairs], metric: str, groups: ArrayLike, *, seed: int) -> Interval:
    """Return the mean of one of PAIR_METRICS over the seeds of a setting, with its interval over seeds and pairs."""
    resamples = _resample(sides, [metric], groups, seed, None, CELLS["comparison"])[metric]
    return mean_interval(_values(sides, metric), resamples, seed=seed)


def _resample(
    sides: Sequence[ScoredPairs],
    names: Sequence[str],
    groups: ArrayLike,
    seed: int,
    n_resamples: int | None,
    cells: int,
) -> dict[str, Numbers | None]:
    """Return the metrics of each side on resampled pairs, (B, S) by name; None if there are too few resamples.

    Of more than MAX_PAIRS pairs, a random part is resampled. The deviations from its metrics are larger than those of
    all pairs, by the root of the share of the groups in the part (the m out of n bootstrap of Bickel et al., 1997).
    """
    groups = np.asarray(groups)
    rows, share = _rows_to_resample(groups, seed)
    if rows is not None and not len(rows):
        return dict.fromkeys(names)
    parts = [side if rows is None else side.part(rows) for side in sides]
    blocks: dict[str, list[Numbers]] = {name: [np.empty((0, len(sides)))] for name in names}
    for weights in pair_weights(groups if rows is None else groups[rows], seed, n_resamples=n_resamples, cells=cells):
        for name in names:
            blocks[name].append(np.stack([part.resampled(name, weights) for part in parts], axis=1))
    resamples = {name: defined_resamples(np.concatenate(blocks[name])) for name in names}
    if rows is None:
        return resamples
    for name, values in resamples.items():
        center = _values(parts, name)
        scaled = None if values is None else _values(sides, name) + (values - center) * np.sqrt(share)
        resamples[name] = None if np.isnan(center).any() else scaled
    return resamples


def _values(sides: Sequence[ScoredPairs], metric: str) -> Numbers:
    """Return a metric of each side, (S,); NaN where it is undefined."""
    return np.asarray([side.metrics[metric] for side in sides], dtype=np.float64)


def _rows_to_resample(groups: NDArray[Any], seed: int) -> tuple[Indices | None, float]:
    """Return the rows of random groups with at most MAX_PAIRS pairs, and their share of the groups; None for all."""
    if len(groups) <= MAX_PAIRS:
        return None, 1.0
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng([seed, 3]).permutation(len(sizes))
    taken = order[: np.searchsorted(np.cumsum(sizes[order]), MAX_PAIRS, side="right")]
    return np.flatnonzero(np.isin(group, taken)), len(taken) / len(sizes)


def pair_weights(groups: ArrayLike, seed: int, *, n_resamples: int | None = None, cells: int = 0) -> Iterator[Numbers]:
    """Iterate over blocks (b, N) of the count of each pair in a resample of groups; none if there is one group.

    Args:
        groups: (N,) equal for the pairs of one query.
        seed: Seed of the resampling.
        n_resamples: Number of resamples; None: as many as `fitting_resamples` of `cells` cells, at least 1,000.
        cells: Number of values computed per resample.
    """
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        return
    n_resamples = fitting_resamples(len(group), cells) if n_resamples is None else n_resamples
    for _, counts in resample_counts(count, n_resamples, seed, max(1, CELLS_AT_ONCE // 4 // len(group))):
        yield counts[:, group].astype(np.float64)

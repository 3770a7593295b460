"""What a cosine is worth as a probability: the share of positive pairs at each height of the score."""

# N pairs, T distinct scores, n bins

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Numbers

NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Pairs in bins of rising score. score: (n,) their mean; share: (n,) of positives; low, high: (n,) its 95%
    interval (Wilson 1927); pairs: (n,) counts."""

    score: Numbers
    share: Numbers
    low: Numbers
    high: Numbers
    pairs: Numbers

    @property
    def error(self) -> float | None:
        """Expected calibration error: mean |share - score| over pairs; None unless every score lies from 0 to 1."""
        if self.score.min() < 0 or self.score.max() > 1:
            return None
        return float(np.average(np.abs(self.share - self.score), weights=self.pairs))


def calibration_curve(scores: ArrayLike, positive: ArrayLike, *, bins: int = 10) -> CalibrationCurve:
    """Share of positive pairs by score, in bins of about equal size.

    scores: (N,) of any range, positive: (N,) true or false. Equal scores are never told apart, so there are at most as
    many bins as distinct scores, and bins may differ in size. Raises DataError for NaN, infinity, no pairs or
    unequal lengths.
    """
    numbers, truth = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    if len(numbers) != len(truth) or not len(numbers) or bins < 1:
        raise DataError(
            f"calibration: {len(numbers)} scores, {len(truth)} labels and {bins} bins; give at least one of each, and "
            "one label for each score"
        )
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        value = "NaN" if np.isnan(numbers[wrong[0]]) else f"{numbers[wrong[0]]:g}"
        raise DataError(f"calibration: scores[{int(wrong[0])}] is {value}; each must be a finite number")
    _, level, counts = np.unique(numbers, return_inverse=True, return_counts=True)  # (T,)
    middle = np.cumsum(counts) - counts / 2
    _, owner = np.unique(np.floor(middle * bins / len(numbers)), return_inverse=True)  # bin of each distinct score
    mine = owner[level]
    pairs = np.bincount(mine).astype(np.float64)
    share = np.bincount(mine, truth) / pairs
    low, high = wilson_interval(share, pairs)
    return CalibrationCurve(np.bincount(mine, numbers) / pairs, share, low, high, pairs)


def wilson_interval(share: Numbers, count: Numbers) -> tuple[Numbers, Numbers]:
    """95% interval of a share of `count` (Wilson 1927), which stays in [0, 1] and is right for few."""
    square = NORMAL_95**2
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 / (1 + square / count) * np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)

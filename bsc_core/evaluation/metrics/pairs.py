"""Metrics of scored pairs: correlation with graded labels, binary classification by a threshold, and calibration."""

# N pairs, T distinct scores, n bins

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.ranking import Metrics
from bsc_core.types import Mask, Numbers

NORMAL_95 = 1.959963984540054


def pair_metrics(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: float = 0.5,
    decision: float | None = None,
    accuracy_decision: float | None = None,
) -> Metrics:
    """Compare the scores of pairs with their labels.

    Returned metrics:

    - `spearman`, `pearson`: correlations in [-1, 1]; 0 if scores or labels are constant, and `constant` is then 1.
    - `f1`, `precision`, `recall`, `accuracy`: of the rule "positive when score >= f1_threshold".
    - `best_accuracy`: accuracy at the threshold `accuracy_threshold`.
    - `auc`: probability that a positive pair scores above a negative one; ties count half.
    - `average_precision`.
    - `positives`, `pairs`: share of positive pairs and number of pairs.

    Thresholds should be chosen on dev data. If they are chosen on these pairs, every cut between distinct scores is
    tried, and F1 and accuracy are optimistic. `accuracy_threshold` is chosen only if both thresholds are None.

    Without a positive pair, f1, precision, recall and average_precision are None, and so are accuracy and f1_threshold
    unless a decision is given. `auc` is None unless there are positive and negative pairs.

    Args:
        scores: (N,).
        labels: (N,) graded labels.
        threshold: a pair is positive if its label is above it.
        decision: score from which a pair is predicted positive; None chooses the best F1.
        accuracy_decision: the same for `best_accuracy`; None chooses the best accuracy if `decision` is None too.

    Raises:
        DataError: A value is NaN or infinite, there are no pairs, or the lengths differ.
    """
    numbers, grades = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(numbers) != len(grades):
        raise DataError(f"pairs: {len(numbers)} scores and {len(grades)} labels; give one of each for each pair")
    if not len(numbers):
        raise DataError("pairs: there are no pairs; give at least one")
    _check_finite("pairs: scores", numbers)
    _check_finite("pairs: labels", grades)
    positive = np.asarray(labels) > threshold  # in the precision of the labels, as in the loss
    cut = best_cut(numbers, positive) if decision is None and positive.any() else decision
    chooses = decision is None and accuracy_decision is None
    accuracy_cut = best_accuracy_cut(numbers, positive) if chooses else accuracy_decision
    constant = np.ptp(numbers) == 0 or np.ptp(grades) == 0
    return {
        "spearman": 0.0 if constant else _correlation(average_ranks(numbers), average_ranks(grades)),
        "pearson": 0.0 if constant else _correlation(numbers, grades),
        "constant": float(constant),
        **_classification_metrics(None if cut is None else numbers >= cut, positive),
        "f1_threshold": cut,
        "best_accuracy": None if accuracy_cut is None else float(((numbers >= accuracy_cut) == positive).mean()),
        "accuracy_threshold": accuracy_cut,
        "auc": area_under_curve(numbers, positive),
        "average_precision": _average_precision(numbers, positive),
        "positives": float(positive.mean()),
        "pairs": float(len(numbers)),
    }


def average_ranks(values: Numbers) -> Numbers:
    """Return ranks (N,) starting at 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def best_cut(scores: Numbers, positive: Mask) -> float:
    """Return the threshold with the best F1 of the rule "positive when score >= threshold".

    The candidates are the midpoints between distinct scores and the lowest score. The highest threshold wins a tie.
    """
    levels, hits, predicted = _cumulative(scores, positive)
    return _cut_below(levels, int(np.argmax(2 * hits / (predicted + positive.sum()))))


def best_accuracy_cut(scores: Numbers, positive: Mask) -> float:
    """Return the threshold with the best accuracy of the rule "positive when score >= threshold".

    The candidates are those of `best_cut` and the next number above the highest score, which predicts no pair as
    positive. The highest threshold wins a tie.
    """
    levels, hits, predicted = _cumulative(scores, positive)
    right = np.concatenate([[0.0], 2 * hits - predicted])  # correct predictions, relative to predicting no positives
    best = int(np.argmax(right))
    return float(np.nextafter(levels[0], np.inf)) if best == 0 else _cut_below(levels, best - 1)


def area_under_curve(scores: Numbers, positive: Mask) -> float | None:
    """Compute the area under the ROC curve from ranks (Mann and Whitney 1947).

    It is (sum of the positives' ranks - P (P + 1) / 2) / (P N); equal scores count half. None without a positive or
    without a negative pair.
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    above = float(average_ranks(scores)[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Pairs in bins of increasing score."""

    score: Numbers  # (n,) mean score of each bin
    share: Numbers  # (n,) share of positive pairs
    low: Numbers  # (n,) lower limit of the 95% Wilson interval of the share
    high: Numbers  # (n,) its upper limit
    pairs: Numbers  # (n,) number of pairs

    @property
    def error(self) -> float | None:
        """Expected calibration error: mean |share - score| over pairs; None if a bin's mean score is outside [0, 1]."""
        if self.score.min() < 0 or self.score.max() > 1:
            return None
        return float(np.average(np.abs(self.share - self.score), weights=self.pairs))


def calibration_curve(scores: ArrayLike, positive: ArrayLike, *, bins: int = 10) -> CalibrationCurve:
    """Compute the share of positive pairs by score, in bins of about equal size.

    Pairs with equal scores are in the same bin, so bins may differ in size and there are at most as many bins as
    distinct scores.

    Args:
        scores: (N,) of any range.
        positive: (N,) whether each pair is positive.
        bins: maximum number of bins.

    Raises:
        DataError: A score is NaN or infinite, there are no pairs, or the lengths differ.
    """
    numbers, truth = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    if len(numbers) != len(truth) or not len(numbers) or bins < 1:
        raise DataError(
            f"calibration: {len(numbers)} scores, {len(truth)} labels and {bins} bins; give at least one of each, and "
            "one label for each score"
        )
    _check_finite("calibration: scores", numbers)
    _, level, counts = np.unique(numbers, return_inverse=True, return_counts=True)  # (T,)
    middle = np.cumsum(counts) - counts / 2
    _, bin_of_level = np.unique(np.floor(middle * bins / len(numbers)), return_inverse=True)
    bin_of_pair = bin_of_level[level]
    pairs = np.bincount(bin_of_pair).astype(np.float64)
    share = np.bincount(bin_of_pair, truth) / pairs
    low, high = wilson_interval(share, pairs)
    return CalibrationCurve(np.bincount(bin_of_pair, numbers) / pairs, share, low, high, pairs)


def wilson_interval(share: Numbers, count: Numbers) -> tuple[Numbers, Numbers]:
    """Return the 95% interval of each share (Wilson 1927); it stays in [0, 1] and is valid for small counts."""
    square = NORMAL_95**2
    center = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 / (1 + square / count) * np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return np.maximum(center - half, 0.0), np.minimum(center + half, 1.0)


def _check_finite(name: str, values: Numbers) -> None:
    infinite = np.flatnonzero(~np.isfinite(values))
    if len(infinite):
        value = "NaN" if np.isnan(values[infinite[0]]) else f"{values[infinite[0]]:g}"
        raise DataError(f"{name}[{int(infinite[0])}] is {value}; each must be a finite number")


def _correlation(left: Numbers, right: Numbers) -> float:
    left, right = left - left.mean(), right - right.mean()
    left, right = left / np.abs(left).max(), right / np.abs(right).max()  # avoids underflow of the squares
    return float(np.clip(left @ right / np.sqrt((left @ left) * (right @ right)), -1, 1))


def _cut_below(levels: Numbers, index: int) -> float:
    """Return a threshold between a level and the next lower one; the lowest level itself. levels: (T,), descending."""
    if index == len(levels) - 1:
        return float(levels[-1])
    upper, lower = levels[index], levels[index + 1]
    middle = lower + (upper - lower) / 2
    return float(middle if middle > lower else upper)


def _cumulative(scores: Numbers, positive: Mask) -> tuple[Numbers, Numbers, Numbers]:
    """Return the distinct scores (T,), descending, and the numbers of positives and of pairs at or above each."""
    levels, inverse, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    hits = np.cumsum(np.bincount(inverse, positive, minlength=len(levels)), dtype=np.float64)
    return -levels, hits, np.cumsum(counts, dtype=np.float64)


def _classification_metrics(predicted: Mask | None, positive: Mask) -> Metrics:
    accuracy = None if predicted is None else float((predicted == positive).mean())
    if predicted is None or not positive.any():
        return {"f1": None, "precision": None, "recall": None, "accuracy": accuracy}
    hits, positives = int((predicted & positive).sum()), int(positive.sum())
    return {
        "f1": 2 * hits / (int(predicted.sum()) + positives),
        "precision": hits / int(predicted.sum()) if predicted.any() else 0.0,
        "recall": hits / positives,
        "accuracy": accuracy,
    }


def _average_precision(scores: Numbers, positive: Mask) -> float | None:
    """Return the sum over distinct scores of (increase in recall) x precision; None without a positive."""
    if not positive.any():
        return None
    _, hits, predicted = _cumulative(scores, positive)
    return float(np.sum(np.diff(hits, prepend=0) * hits / predicted) / positive.sum())

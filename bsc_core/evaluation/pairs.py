"""Metrics of scored pairs: does the score follow the label, and does one threshold part positives from negatives?"""

# N pairs, T distinct scores

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.ranking import Metrics

Numbers = NDArray[np.float64]


def pair_metrics(
    scores: ArrayLike, labels: ArrayLike, *, threshold: float = 0.5, decision: float | None = None
) -> Metrics:
    """Compare scores (N,) with graded labels (N,) of the pairs; a pair is positive when label > threshold (strict).

    Returns `spearman` and `pearson` in [-1, 1] between scores and labels (0 where either is constant, and `constant` is
    then 1); `f1`, `precision`, `recall` and `accuracy` of the rule "positive when score >= f1_threshold";
    `average_precision`; `positives`, their share; `pairs`, the count. Equal scores are never told apart.

    decision: the threshold of the rule, best taken from dev data. None: the one with the best F1 on these very pairs,
    so that F1 is optimistic; every cut between distinct scores is tried, "all positive" included. Without a positive
    pair f1, precision, recall and average_precision are None, and so are accuracy and f1_threshold unless a decision is
    given. Raises DataError for NaN, no pairs or unequal lengths.
    """
    numbers, grades = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    _check(numbers, grades)
    positive = np.asarray(labels) > threshold  # in the labels' own precision, as the loss compares them
    cut = best_cut(numbers, positive) if decision is None and positive.any() else decision
    constant = np.ptp(numbers) == 0 or np.ptp(grades) == 0
    return {
        "spearman": 0.0 if constant else _correlation(average_ranks(numbers), average_ranks(grades)),
        "pearson": 0.0 if constant else _correlation(numbers, grades),
        "constant": float(constant),
        **_decision_metrics(None if cut is None else numbers >= cut, positive),
        "f1_threshold": cut,
        "average_precision": _average_precision(numbers, positive),
        "positives": float(positive.mean()),
        "pairs": float(len(numbers)),
    }


def _check(scores: Numbers, labels: Numbers) -> None:
    if len(scores) != len(labels):
        raise DataError(f"pairs: {len(scores)} scores and {len(labels)} labels; give one of each for each pair")
    if not len(scores):
        raise DataError("pairs: there is no pair to measure; give at least one")
    for name, values in (("scores", scores), ("labels", labels)):
        if np.isnan(values).any():
            raise DataError(f"pairs: {name}[{int(np.flatnonzero(np.isnan(values))[0])}] is NaN; each must be a number")


def average_ranks(values: Numbers) -> Numbers:
    """Ranks (N,) from 1 upwards, equal values sharing the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _correlation(left: Numbers, right: Numbers) -> float:
    left, right = left - left.mean(), right - right.mean()
    left, right = left / np.abs(left).max(), right / np.abs(right).max()  # so that squares do not vanish
    return float(np.clip(left @ right / np.sqrt((left @ left) * (right @ right)), -1, 1))


def best_cut(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The threshold with the best F1 of "positive when score >= threshold".

    Every cut between two of the T distinct scores is tried (its threshold is their mean) and so is the lowest score,
    below which nothing is left out. On a tie the highest threshold is taken.
    """
    levels, hits, taken = _cumulative(scores, positive)
    f1 = 2 * hits / (taken + positive.sum())
    best = int(np.argmax(f1))
    if best == len(levels) - 1:
        return float(levels[-1])
    upper, lower = levels[best], levels[best + 1]
    middle = lower + (upper - lower) / 2
    return float(middle if middle > lower else upper)


def _cumulative(scores: Numbers, positive: NDArray[np.bool_]) -> tuple[Numbers, Numbers, Numbers]:
    """Distinct scores from the highest (T,), and how many positives and pairs stand at each or above it."""
    levels, inverse, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    hits = np.cumsum(np.bincount(inverse, positive, minlength=len(levels)), dtype=np.float64)
    return -levels, hits, np.cumsum(counts, dtype=np.float64)


def _decision_metrics(chosen: NDArray[np.bool_] | None, positive: NDArray[np.bool_]) -> Metrics:
    accuracy = None if chosen is None else float((chosen == positive).mean())
    if chosen is None or not positive.any():
        return {"f1": None, "precision": None, "recall": None, "accuracy": accuracy}
    hits, positives = int((chosen & positive).sum()), int(positive.sum())
    return {
        "f1": 2 * hits / (int(chosen.sum()) + positives),
        "precision": hits / int(chosen.sum()) if chosen.any() else 0.0,
        "recall": hits / positives,
        "accuracy": accuracy,
    }


def _average_precision(scores: Numbers, positive: NDArray[np.bool_]) -> float | None:
    """Sum over distinct scores of (rise in recall) x precision; None without a positive."""
    if not positive.any():
        return None
    _, hits, taken = _cumulative(scores, positive)
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / positive.sum())

"""Metrics of scored pairs: does the score follow the label, and does one threshold part positives from negatives?"""

# N pairs, T distinct scores

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Metrics

Numbers = NDArray[np.float64]
Positive = NDArray[np.bool_]


def pair_metrics(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: float = 0.5,
    decision: float | None = None,
    accuracy_decision: float | None = None,
) -> Metrics:
    """Compare scores (N,) with graded labels (N,) of the pairs; a pair is positive when label > threshold (strict).

    Returns `spearman` and `pearson` in [-1, 1] between scores and labels (0 where either is constant, and `constant` is
    then 1); `f1`, `precision`, `recall` and `accuracy` of the rule "positive when score >= f1_threshold";
    `best_accuracy`, the accuracy of the rule's other threshold `accuracy_threshold`; `auc`, the chance that a positive
    pair scores above a negative one, equal scores counting half; `average_precision`; `positives`, their share;
    `pairs`, the count. Equal scores are never told apart.

    decision, accuracy_decision: the two thresholds, best taken from dev data. None: those with the best F1 and the best
    accuracy on these very pairs, so that both are optimistic; every cut between distinct scores is tried, "all
    positive" and for accuracy "none positive" included. With a decision but no accuracy_decision the latter stays None:
    pairs that are given one threshold do not choose the other. Without a positive pair f1, precision, recall and
    average_precision are None, and so are accuracy and f1_threshold unless a decision is given; auc is None unless
    there are positive and negative pairs. Raises DataError for NaN, infinity, no pairs or unequal lengths.
    """
    numbers, grades = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    _check(numbers, grades)
    positive = np.asarray(labels) > threshold  # in the labels' own precision, as the loss compares them
    cut = best_cut(numbers, positive) if decision is None and positive.any() else decision
    chooses = decision is None and accuracy_decision is None
    accurate = best_accuracy_cut(numbers, positive) if chooses else accuracy_decision
    constant = np.ptp(numbers) == 0 or np.ptp(grades) == 0
    return {
        "spearman": 0.0 if constant else _correlation(average_ranks(numbers), average_ranks(grades)),
        "pearson": 0.0 if constant else _correlation(numbers, grades),
        "constant": float(constant),
        **_decision_metrics(None if cut is None else numbers >= cut, positive),
        "f1_threshold": cut,
        "best_accuracy": None if accurate is None else float(((numbers >= accurate) == positive).mean()),
        "accuracy_threshold": accurate,
        "auc": area_under_curve(numbers, positive),
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
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            value = "NaN" if np.isnan(values[wrong[0]]) else f"{values[wrong[0]]:g}"
            raise DataError(f"pairs: {name}[{int(wrong[0])}] is {value}; each must be a finite number")


def average_ranks(values: Numbers) -> Numbers:
    """Ranks (N,) from 1 upwards, equal values sharing the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _correlation(left: Numbers, right: Numbers) -> float:
    left, right = left - left.mean(), right - right.mean()
    left, right = left / np.abs(left).max(), right / np.abs(right).max()  # so that squares do not vanish
    return float(np.clip(left @ right / np.sqrt((left @ left) * (right @ right)), -1, 1))


def best_cut(scores: Numbers, positive: Positive) -> float:
    """The threshold with the best F1 of "positive when score >= threshold".

    Every cut between two of the T distinct scores is tried (its threshold is their mean) and so is the lowest score,
    below which nothing is left out. On a tie the highest threshold is taken.
    """
    levels, hits, taken = _cumulative(scores, positive)
    f1 = 2 * hits / (taken + positive.sum())
    return _cut_below(levels, int(np.argmax(f1)))


def best_accuracy_cut(scores: Numbers, positive: Positive) -> float:
    """The threshold with the best accuracy of "positive when score >= threshold".

    Tried are the cuts of `best_cut` and the next number above the highest score, which calls no pair positive. On a
    tie the highest threshold is taken.
    """
    levels, hits, taken = _cumulative(scores, positive)
    right = np.concatenate([[0.0], 2 * hits - taken])  # beyond the right ones of calling no pair positive
    best = int(np.argmax(right))
    return float(np.nextafter(levels[0], np.inf)) if best == 0 else _cut_below(levels, best - 1)


def _cut_below(levels: Numbers, place: int) -> float:
    """A threshold between a level and the next lower one; the lowest level itself. levels: (T,), falling."""
    if place == len(levels) - 1:
        return float(levels[-1])
    upper, lower = levels[place], levels[place + 1]
    middle = lower + (upper - lower) / 2
    return float(middle if middle > lower else upper)


def area_under_curve(scores: Numbers, positive: Positive) -> float | None:
    """Area under the ROC curve by ranks: (sum of the positives' ranks - P (P + 1) / 2) / (P N) (Mann and Whitney 1947).

    Equal scores share their mean rank, so they count half. None without a positive or without a negative.
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    above = float(average_ranks(scores)[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def _cumulative(scores: Numbers, positive: Positive) -> tuple[Numbers, Numbers, Numbers]:
    """Distinct scores from the highest (T,), and how many positives and pairs stand at each or above it."""
    levels, inverse, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    hits = np.cumsum(np.bincount(inverse, positive, minlength=len(levels)), dtype=np.float64)
    return -levels, hits, np.cumsum(counts, dtype=np.float64)


def _decision_metrics(chosen: NDArray[np.bool_] | None, positive: Positive) -> Metrics:
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


def _average_precision(scores: Numbers, positive: Positive) -> float | None:
    """Sum over distinct scores of (rise in recall) x precision; None without a positive."""
    if not positive.any():
        return None
    _, hits, taken = _cumulative(scores, positive)
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / positive.sum())

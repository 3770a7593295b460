"""Polarity against semantic similarity: which runs no other beats in both, and one number for the two."""

# R runs (or epochs, or margins), Q queries

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import DRAWS, draw_weights
from bsc_core.evaluation.drawn_values import DrawnValue
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.polarity import PolarityScores

LEAST_ROOM = 1e-9  # between a floor and the most that can be reached


def pareto_front(polarity: ArrayLike, semantic: ArrayLike) -> NDArray[np.bool_]:
    """Which points (P, S) no other point beats: (R,) true where none is at least as high in both and higher in one.

    polarity, semantic: (R,), a point for each margin and epoch, never the best P and the best S of different runs.
    Equal points are on the front together. Raises DataError for unequal lengths or NaN.
    """
    p, s = np.asarray(polarity, dtype=np.float64), np.asarray(semantic, dtype=np.float64)
    if p.shape != s.shape or p.ndim != 1:
        raise DataError(f"pareto: P of shape {p.shape} and S of shape {s.shape}; give one of each for every run")
    if np.isnan(p).any() or np.isnan(s).any():
        raise DataError(f"pareto: run {int(np.flatnonzero(np.isnan(p) | np.isnan(s))[0])} has NaN; measure it again")
    order = np.lexsort((-s, -p))  # P falls; of equal P the highest S first
    best = np.maximum.accumulate(s[order])
    first = np.r_[True, np.diff(p[order]) != 0]  # where a new P begins
    start = np.maximum.accumulate(np.where(first, np.arange(len(p)), 0))  # the highest S of the same P
    before = np.r_[-np.inf, best][start]  # the highest S at a higher P
    front = np.zeros(len(p), dtype=bool)
    front[order] = (s[order] == s[order][start]) & (s[order] > before)
    return front


@dataclass(frozen=True)
class Balance:
    """What a run made of its class labels and what it kept of its meaning, each from 0 (chance) to 1.

    separation: (P - P_floor) / (1 - P_floor); kept: (S - S_floor) / (S_R - S_floor); balance: their harmonic mean, 0
    where either is not above 0. reference: the balance of R itself, whose kept is 1. None where one is not defined: a
    pool of one class leaves no P to gain, and where R finds all sentences equally similar there is no S to lose.
    """

    separation: float | None
    kept: float | None
    balance: float | None
    reference: float | None

    @property
    def gain(self) -> float | None:
        """What training added to the balance: above 0, the classes gained more than the meaning lost."""
        return None if self.balance is None or self.reference is None else self.balance - self.reference


def combine(scores: PolarityScores) -> Balance:
    """One number for P and S, which the paper leaves open ("combining them better ... to represent the drift").

    balance = 2 p s / (p + s) with p = (P - P_floor) / (1 - P_floor) and s = (S - S_floor) / (S_R - S_floor).

    The reasons. A plain mean of P and S, as in the released code, adds numbers of unlike scales: a random model has P
    near 0.5 and S near the mean cosine of R, which is 0.8 for one reference and 0.1 for another, so that the mean says
    more about R than about the run. Taking the floor off and dividing by the most that can be reached makes both 0 for
    a random order and 1 for the best there is: no retrieval has a higher S than R's own, so s is the share of the
    meaning that is left, 1 before training, and it falls exactly with the drift. The harmonic mean asks for both, as F1
    does of precision and recall: a run that gives up one for the other ends near 0, where a plain mean would call it
    average. Training pays where the balance rises above the reference's own.
    """
    return combine_means(
        (float(scores.polarity.mean()), float(scores.semantic.mean())),
        (float(scores.reference_polarity.mean()), float(scores.reference_semantic.mean())),
        (scores.polarity_floor, scores.semantic_floor),
    )


def combine_means(run: tuple[float, float], reference: tuple[float, float], floor: tuple[float, float]) -> Balance:
    """`combine` of means (P, S) of a run, of its reference and of a random order."""
    separation = _share(run[0], 1.0, floor[0])
    kept = _share(run[1], reference[1], floor[1])
    own = _share(reference[0], 1.0, floor[0])
    return Balance(separation, kept, _harmonic(separation, kept), _harmonic(own, None if kept is None else 1.0))


def combine_many(means: Numbers, reference: Numbers | float, floor: tuple[float, float]) -> Numbers:
    """The balances of `combine_means` for many P and S at once, such as those of drawn queries, and 0 where undefined.

    means: (2, ...) P and S; reference: S of the reference, of a shape that fits theirs.
    """
    separation = (means[0] - floor[0]) / max(1 - floor[0], LEAST_ROOM)
    kept = (means[1] - floor[1]) / np.maximum(reference - floor[1], LEAST_ROOM)
    lower = np.minimum(separation, kept)
    total = np.where(lower > 0, separation + kept, 1.0)
    balances: Numbers = np.where(lower > 0, 2 * separation * kept / total, 0.0)
    return balances


def drawn_balance(scores: PolarityScores, *, seed: int, draws: int = DRAWS) -> tuple[DrawnValue, DrawnValue] | None:
    """The balance of a run and that of its reference, with the same queries drawn for both; None where undefined.

    The floors stay those of all queries.
    """
    found = combine(scores)
    if found.balance is None or found.reference is None:
        return None
    floor, count = (scores.polarity_floor, scores.semantic_floor), len(scores.polarity)
    table = np.stack(
        [scores.polarity, scores.semantic, scores.reference_polarity, scores.reference_semantic], axis=1
    )  # (Q, 4)
    if count < 2:
        return DrawnValue(found.balance, None, count), DrawnValue(found.reference, None, count)
    means = np.empty((4, draws))
    for part, weights in draw_weights(count, draws, seed):
        means[:, part] = (weights @ table).T
    own, reference = (combine_many(side, means[3], floor) for side in (means[:2], means[2:]))
    return DrawnValue(found.balance, own, count), DrawnValue(found.reference, reference, count)


def _share(value: float, most: float, floor: float) -> float | None:
    return (value - floor) / (most - floor) if most - floor > LEAST_ROOM else None


def _harmonic(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    return 2 * left * right / (left + right) if min(left, right) > 0 else 0.0

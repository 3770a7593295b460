"""A number of a whole set of rows together with what it is for drawn rows, so that two models can be compared by it."""

# B draws, Q rows that are drawn, M models

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.evaluation.bootstrap import FEWER_DRAWS, LEVEL, Interval, draw_means, interval
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.significance import Comparison, compare_draws


@dataclass(frozen=True, eq=False)
class DrawnValue:
    """One number of one model. Two models drawn with one seed from as many rows were drawn the same rows.

    value: of all rows; draws: (B,) of rows drawn with replacement, None where nothing can be drawn anew; rows: how many
    there are to draw, or groups of them.
    """

    value: float
    draws: Numbers | None
    rows: int

    @property
    def interval(self) -> Interval:
        """The value with its percentile interval over rows."""
        return interval(self.value, self.draws, LEVEL)


def drawn_mean(values: ArrayLike, *, seed: int, draws: int = FEWER_DRAWS) -> DrawnValue:
    """Mean of values (Q,) and of drawn ones; without draws for one row."""
    numbers = np.asarray(values, dtype=np.float64)
    drawn = draw_means(numbers, draws, seed) if len(numbers) > 1 else None
    return DrawnValue(float(numbers.mean()), drawn, len(numbers))


def drawn_average(parts: Sequence[DrawnValue]) -> DrawnValue:
    """Plain mean of the same number of several data sets, each of which was drawn by itself, with another seed.

    Without draws where one of them has none. What the data sets share, such as pairs that stand in two of them, is not
    in the draws.
    """
    known = [part.draws for part in parts if part.draws is not None]
    drawn = np.mean(known, axis=0) if len(known) == len(parts) else None
    return DrawnValue(float(np.mean([part.value for part in parts])), drawn, sum(part.rows for part in parts))


def compare_drawn(first: DrawnValue, second: DrawnValue, *, seed: int) -> Comparison:
    """second - first with its interval and p, from draws of the same rows: `compare_draws` of one run each."""
    drawn = None if first.draws is None or second.draws is None else np.stack([first.draws, second.draws], axis=1)
    return compare_draws(np.array([first.value, second.value]), drawn, 1, groups=first.rows, seed=seed)

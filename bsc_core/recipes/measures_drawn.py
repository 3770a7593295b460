"""What the measures of recipes share: queries or pairs drawn anew, and a mean over seeds with its interval."""

# N rows, G groups of them, S seeds, B draws

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.evaluation.bootstrap import CELLS_AT_ONCE, LEVEL, Interval, draw_seeds, interval, seed_freedom
from bsc_core.evaluation.measures import Numbers

DRAW_SEED = 0


def drawn_weights(groups: ArrayLike, draws: int, seed: int) -> Iterator[Numbers]:
    """Blocks (b, N), `draws` rows in all, of how often each row stands in a draw; rows of one group are drawn together.

    The same seed and groups give the same draws, so settings that are compared see the same rows.
    """
    _, owner = np.unique(np.asarray(groups), return_inverse=True)
    count = int(owner.max()) + 1
    generator = np.random.default_rng([seed, 0])
    height = max(1, CELLS_AT_ONCE // 4 // len(owner))
    for start in range(0, draws, height):
        times = generator.multinomial(count, np.full(count, 1 / count), size=min(height, draws - start))
        yield times[:, owner].astype(np.float64)


def drawn_interval(whole: Numbers, drawn: Numbers | None) -> Interval:
    """The mean over seeds with other rows and other seeds drawn. whole: (S,); drawn: (B, S) of drawn rows, or None.

    Draws that leave a seed undefined (NaN) are left out; without draws, or where half are, there is no range.
    """
    mean = float(whole.mean())
    known = defined(drawn)
    if known is None:
        return interval(mean, None, LEVEL)
    spread = draw_seeds([whole - mean], seed_freedom([whole[:, None]]), len(known), DRAW_SEED)
    return interval(mean, known.mean(axis=1) + spread, LEVEL)


def defined(drawn: Numbers | None) -> Numbers | None:
    """The draws (B, S) that define every seed, None where half of them do not."""
    if drawn is None:
        return None
    known = drawn[~np.isnan(drawn).any(axis=1)]
    return known if 2 * len(known) > len(drawn) else None

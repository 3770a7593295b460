"""How sure the shape of a space is: alignment over drawn queries, uniformity and anisotropy over drawn texts.

Uniformity and anisotropy are means over pairs of texts, and pairs that share a text are not independent. So texts are
drawn, and of those drawn every pair of different texts counts, as often as both were drawn: a text drawn twice is no
pair with itself, which would call every space closer than it is. Of texts that fill the sphere evenly, or nearly so,
the interval is wider than it need be, never narrower.
"""

# P pairs, N texts, D dimensions, B draws, C texts at once

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import FEWER_DRAWS, draw_weights
from bsc_core.evaluation.drawn_values import DrawnValue
from bsc_core.evaluation.geometry import MOST, ROWS_AT_ONCE, alignment, anisotropy, drawn_rows, uniformity
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.retrieval import Vectors, unit_rows


def drawn_alignment(
    left: Vectors, right: Vectors, groups: ArrayLike, *, seed: int, draws: int = FEWER_DRAWS
) -> DrawnValue:
    """Mean `alignment` of positive pairs, the pairs of one group drawn together.

    left, right: (P, D); groups: (P,) equal for the pairs of one query. Raises DataError without a pair, and as
    `alignment` does.
    """
    lengths = alignment(left, right)
    if not len(lengths):
        raise DataError("alignment: there is no positive pair; give at least one")
    _, owner = np.unique(np.asarray(groups), return_inverse=True)
    sums, sizes = np.bincount(owner, lengths), np.bincount(owner)
    found = np.empty(draws)
    for part, weights in draw_weights(len(sums), draws, seed):
        found[part] = (weights @ sums) / (weights @ sizes)
    return DrawnValue(float(lengths.mean()), found if len(sums) > 1 else None, len(sums))


def drawn_uniformity(
    vectors: Vectors, *, seed: int, scale: float = 2.0, most: int = MOST, draws: int = FEWER_DRAWS
) -> DrawnValue | None:
    """`uniformity` of (N, D) over drawn texts, those that it takes; None for fewer than two texts.

    Takes draws x n^2 products for n = min(N, most) texts.
    """
    value = uniformity(vectors, seed=seed, scale=scale, most=most)
    if value is None:
        return None
    units = unit_rows(drawn_rows(vectors, most, seed))
    shares = np.empty((draws, len(units)), dtype=np.float32)
    for part, weights in draw_weights(len(units), draws, seed):
        shares[part] = weights
    total = np.zeros(draws)
    for start in range(0, len(units), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        kernel = np.exp(2 * scale * (np.minimum(units[rows] @ units.T, 1) - 1))  # (C, N)
        np.fill_diagonal(kernel[:, start:], 0)  # no text is paired with itself
        total += np.einsum("bc,bc->b", shares[:, rows], shares @ kernel.T, dtype=np.float64)
    drawn = _of_pairs(total, np.einsum("bn,bn->b", shares, shares, dtype=np.float64))
    return DrawnValue(value, None if drawn is None else np.log(drawn), len(units))


def drawn_anisotropy(vectors: Vectors, *, seed: int, draws: int = FEWER_DRAWS) -> DrawnValue | None:
    """`anisotropy` of (N, D) over drawn texts, all of which it takes; None for fewer than two texts."""
    value = anisotropy(vectors)
    if value is None:
        return None
    units = unit_rows(np.asarray(vectors, dtype=np.float32))
    own = np.einsum("nd,nd->n", units, units, dtype=np.float64)  # 1, but 0 of zero vectors
    total, repeats = np.empty(draws), np.empty(draws)
    for part, weights in draw_weights(len(units), draws, seed):
        sums = (weights.astype(np.float32) @ units).astype(np.float64)  # (b, D)
        total[part] = np.einsum("bd,bd->b", sums, sums) - weights**2 @ own
        repeats[part] = np.einsum("bn,bn->b", weights, weights)
    return DrawnValue(value, _of_pairs(total, repeats), len(units))


def _of_pairs(total: Numbers, repeats: Numbers) -> Numbers | None:
    """(B,) means over pairs of different texts, without the draws of one text alone; None where these are half of all.

    total: their sums, weighted by the shares of both texts; repeats: the weight of a text with itself.
    """
    several = repeats < 1 - 1e-6
    return total[several] / (1 - repeats[several]) if 2 * int(several.sum()) > len(total) else None

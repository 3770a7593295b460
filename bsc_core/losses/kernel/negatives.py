"""Treatment of the negatives of a softmax: a false-negative mask, hardness weights, the decoupled denominator."""

# B anchors; M candidates; E cells; G width of the mask's vectors; r rows and c columns of a tile

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bsc_core.neighbors import ACCUMULATED, ROUNDING, has_bf16_instructions

MIN_ROUNDED = 2**20
"""Cells of a matrix above which a guide is compared as bfloat16 first."""
ROUNDED_ERROR = (1 + ROUNDING) ** 3 - 1 + ACCUMULATED
"""Largest difference of a cosine that is computed of bfloat16 and rounded to it; both vectors are rounded before."""
MANY = 1 / 32
"""Share of the cells of a tile up to which single cells are computed as float32, or removed."""


@dataclass(frozen=True)
class Cosines:
    """Cosines of a score matrix without gradient, by tile.

    Attributes:
        left: (B, G) unit vectors; None where the scores are the cosines divided by the temperature.
        right: (M, G) likewise.
        rounded: Both as bfloat16, whose products are fast to compute; None if they are not rounded.
    """

    left: Tensor | None = None
    right: Tensor | None = None
    rounded: tuple[Tensor, Tensor] | None = None

    @classmethod
    def for_limits(cls, left: Tensor, right: Tensor) -> Cosines:
        """Return the cosines of unit vectors (B, G) and (M, G) that are only compared with limits.

        Of many vectors, they are rounded where the processor has instructions for it.
        """
        large = len(left) * len(right) >= MIN_ROUNDED and left.dtype == torch.float32
        if not (large and left.device.type == "cpu" and has_bf16_instructions()):
            return cls(left, right)
        return cls(left, right, (left.bfloat16(), right.bfloat16()))

    def tile(self, scores: Tensor, scale: float, rows: slice, columns: slice, *, factor: float) -> Tensor:
        """Return the cosines of a tile, (r, c), multiplied by a factor.

        Args:
            scores: (r, c) scores of the loss.
            scale: Factor between cosines and scores, used if there are no vectors.
            rows: Rows of the tile.
            columns: Columns of the tile.
            factor: The factor.
        """
        if self.left is None or self.right is None:
            return scores * (factor / scale)
        return (self.left[rows] @ self.right[columns].T).mul_(factor)


@dataclass(frozen=True)
class FalseNegativeMask:
    """Removes candidates that are more similar to the anchor than a limit: likely false negatives.

    Attributes:
        cosines: Similarities of the model or of the guide.
        limits: (B,) highest similarity that a negative of each anchor may have, with rows or columns as anchors.
        labeled: (E, 2) (row, column) cells that are never removed; None for none.
    """

    cosines: Cosines
    limits: Tensor
    labeled: Tensor | None = None

    def similarities(
        self, left: Tensor, right: Tensor, rows: slice, columns: slice, axes: tuple[int, ...]
    ) -> Tensor | None:
        """Return the similarities of a tile (r, c), exact where they may exceed a limit; None if they are all below.

        Args:
            left: (B, G) vectors of `cosines`.
            right: (M, G) likewise.
            rows: Rows of the tile.
            columns: Columns of the tile.
            axes: Axes of the anchors whose limits count, 1 for rows and 0 for columns.
        """
        left, right, rounded = left[rows], right[columns], self.cosines.rounded
        if rounded is None:
            return left @ right.T
        values = rounded[0][rows] @ rounded[1][columns].T
        limits = self.limits - ROUNDED_ERROR
        if not exceed(values, limits, rows, columns, axes):
            return None
        values = values.float()
        uncertain = functools.reduce(torch.logical_or, (_above(values, limits, rows, columns, axis) for axis in axes))
        row, column = uncertain.nonzero(as_tuple=True)
        if len(row) > MANY * values.numel():
            return left @ right.T
        values[row, column] = (left[row] * right[column]).sum(1)
        return values

    def removed_cells(
        self, values: Tensor, limits: Tensor, rows: slice, columns: slice, axis: int
    ) -> tuple[Tensor, Tensor] | None:
        """Return the index of the cells that `kept_cells` removes, long (E,) each; None if they are many."""
        removed = _above(values, limits, rows, columns, axis)
        if _crosses(rows, columns):
            removed.diagonal(rows.start - columns.start).fill_(False)
        if self.labeled is not None:
            removed[cells_in_tile(self.labeled, rows, columns)] = False
        row, column = removed.nonzero(as_tuple=True)
        return None if len(row) > MANY * values.numel() else (row, column)

    def kept_cells(self, values: Tensor, limits: Tensor, rows: slice, columns: slice, axis: int) -> Tensor:
        """Return 1 for the candidates of a tile that stay and 0 for others, (r, c).

        Args:
            values: (r, c) similarities of `cosines`, or an increasing function of them.
            limits: (B,) the same function of the limits.
            rows: Rows of the tile.
            columns: Columns of the tile.
            axis: 1 if rows are the anchors, else 0.
        """
        kept = torch.le(values, limits[rows, None] if axis == 1 else limits[columns], out=torch.empty_like(values))
        if _crosses(rows, columns):
            kept.diagonal(rows.start - columns.start).fill_(1.0)
        if self.labeled is not None:
            kept[cells_in_tile(self.labeled, rows, columns)] = 1.0
        return kept

    def transposed(self, pairs: int) -> FalseNegativeMask:
        """Return the mask with the first `pairs` columns as rows and the rows as columns."""
        cosines, labeled = self.cosines, self.labeled
        if cosines.left is not None and cosines.right is not None:
            cosines = Cosines.for_limits(cosines.right[:pairs], cosines.left)
        if labeled is not None:
            labeled = labeled[labeled[:, 1] < pairs].flip(1)
        return FalseNegativeMask(cosines, self.limits, labeled)

    def within(self, side: str, pairs: int) -> FalseNegativeMask:
        """Return the mask of the first `pairs` texts of a side, "left" or "right", against all texts of it."""
        vectors: Tensor | None = getattr(self.cosines, side)
        cosines = Cosines() if vectors is None else Cosines.for_limits(vectors[:pairs], vectors)
        return FalseNegativeMask(cosines, self.limits)


@dataclass(frozen=True)
class HardnessWeights:
    """Adds strength * cosine, without gradient, to the logits of some candidates of each row.

    Extra documents belong to the rows in turn; see `bsc_core.losses.kernel.candidate_rules.SameSide`.

    Attributes:
        cosines: Similarities of the model.
        strength: Factor of the cosine, >= 0.
        kind: "in_batch_negatives": documents of other rows. "hard_negatives": extra documents of the row.
            "all_negatives": both.
        pairs: B.
        choices: M.
    """

    cosines: Cosines
    strength: float
    kind: str
    pairs: int
    choices: int

    def bumps(self, scores: Tensor, scale: float, rows: slice, columns: slice) -> Tensor:
        """Return what is added to the logits of a tile, (r, c); 0 on the diagonal."""
        bumps = self.cosines.tile(scores, scale, rows, columns, factor=self.strength)
        copies = self.choices // self.pairs if self.choices % self.pairs == 0 else 1
        if self.kind == "hard_negatives":
            bumps, every = torch.zeros_like(bumps), bumps
            for copy in range(1, copies):
                _diagonal(bumps, rows, columns, copy * self.pairs).copy_(
                    _diagonal(every, rows, columns, copy * self.pairs)
                )
            return bumps
        for copy in range(copies if self.kind == "in_batch_negatives" else 1):
            _diagonal(bumps, rows, columns, copy * self.pairs).zero_()
        return bumps


def exceed(values: Tensor, limits: Tensor, rows: slice, columns: slice, axes: tuple[int, ...]) -> bool:
    """Return whether a value of a tile (r, c) exceeds the limit of its anchor, on any of these axes.

    The diagonal of the matrix does not count: the mask never removes it.
    """
    own = values.diagonal(rows.start - columns.start) if _crosses(rows, columns) else values.new_empty(0)
    stored = own.clone()
    own.fill_(-torch.inf)
    exceeds = False
    for axis in axes:
        limit = limits[rows if axis == 1 else columns]
        if values.dtype == torch.bfloat16 and bool((limit >= 0).all()):
            highest = values.view(torch.int16).amax(axis).view(torch.bfloat16)  # bits have the order of numbers >= 0
        else:
            highest = values.amax(axis)
        exceeds = exceeds or bool((highest > limit).any())
    own.copy_(stored)
    return exceeds


def _crosses(rows: slice, columns: slice) -> bool:
    """Return whether the diagonal of the matrix crosses a tile."""
    return bool(rows.start < columns.stop and columns.start < rows.stop)


def _above(values: Tensor, limits: Tensor, rows: slice, columns: slice, axis: int) -> Tensor:
    """Return bool (r, c), the values of a tile above the limits of the anchors, rows (axis 1) or columns (axis 0)."""
    return values > (limits[rows, None] if axis == 1 else limits[columns])


def _diagonal(values: Tensor, rows: slice, columns: slice, offset: int) -> Tensor:
    """Return the cells (i, i + offset) of the score matrix that are in a tile, as a view."""
    return values.diagonal(rows.start + offset - columns.start)


@dataclass(frozen=True)
class Negatives:
    """How the candidates of a softmax are treated.

    Attributes:
        mask: Removes candidates; None: none.
        hardness: Weights of candidates with the rows as anchors; None: no weights.
        decoupled: Leave the positives out of the denominator.
        all_anchors: Compute the log-sum of anchors without positives too.
    """

    mask: FalseNegativeMask | None = None
    hardness: HardnessWeights | None = None
    decoupled: bool = False
    all_anchors: bool = False


def cells_in_tile(cells: Tensor, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
    """Return the index of the (row, column) cells, long (E, 2), that are inside a tile, relative to it."""
    down, across = cells[:, 0], cells[:, 1]
    inside = (down >= rows.start) & (down < rows.stop) & (across >= columns.start) & (across < columns.stop)
    return down[inside] - rows.start, across[inside] - columns.start


def debiased(log_sum: Tensor, positive: Tensor, count: Tensor, prior: float, temperature: Tensor | float) -> Tensor:
    """Return the debiased log-sum-exp of the negatives, (B,): equations 7 and 8 of Chuang et al., 2020 (2007.00224).

    Of N sampled negatives, the share `prior` is assumed to be positives in truth, whose score is estimated by that of
    the positive: log N + log max((mean exp(negative) - prior exp(positive)) / (1 - prior), e^(-1 / tau)). The lower
    bound is the smallest value that a cosine allows, so the estimate is always positive.

    Args:
        log_sum: (B,) log-sum-exp of the negatives; finite.
        positive: (B,) logits of the positives.
        count: (B,) N, at least 1.
        prior: tau plus, in [0, 1).
        temperature: tau of the logits.
    """
    mean = log_sum - count.log()
    gap = positive + math.log(prior) - mean if prior else torch.full_like(mean, -torch.inf)
    lowest = -1.0 / torch.as_tensor(temperature, dtype=mean.dtype, device=mean.device)
    with torch.no_grad():
        estimate = mean + torch.log1p(-gap.clamp(max=0.0).exp()) - math.log1p(-prior)
        above = estimate > lowest
    inside = torch.where(above, gap, -1.0)  # elsewhere the bound applies, and the logarithm may be infinite
    corrected = mean + torch.log1p(-inside.exp()) - math.log1p(-prior)
    return count.log() + torch.where(above, corrected, lowest)

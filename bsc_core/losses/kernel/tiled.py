"""Masked softmax with written-out gradient, computed in tiles.

Both directions share every tile. If scores are small, they also share one exp; otherwise each direction computes a
separate log-sum-exp.
"""

# B rows, M columns, D dimensions; r rows and c columns of a tile

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsc_core.losses.kernel.candidate_rules import Diagonal, Rule, diagonal_tiles, transpose_rule
from bsc_core.losses.kernel.negatives import FalseNegativeMask, Negatives, exceed
from bsc_core.neighbors import TIE

TILE_ROWS, TILE_COLUMNS = 1024, 4096
STORED_SCORES = 4096 * 4096
"""Number of scores stored for the backward pass; further tiles are recomputed."""
MAX_STORED = 4
"""Times this number above which no scores are stored: 8,192 pairs, of which a quarter is."""
SAFE_SCORE = 40.0
"""Scores up to this magnitude can share one exp(score - largest): exp(-80) is a normal float32."""


class _Direction:
    """One direction of a batch: anchors along one axis of the scores, candidates along the other."""

    def __init__(
        self, rule: Rule, axis: int, paired: Tensor, shape: tuple[int, int], negatives: Negatives | None
    ) -> None:
        """Initialize the sums over the candidates of each anchor.

        Args:
            rule: Which cells of the scores are candidates and positives.
            axis: 1 if rows are the anchors, else 0.
            paired: (P,) scores of the diagonal.
            shape: Rows and columns of the scores.
            negatives: How candidates are treated; None: no negatives are counted.
        """
        self.rule, self.axis, self.treatment = rule, axis, negatives or Negatives()
        self.hardness = self.treatment.hardness if axis == 1 else None
        size = shape[1 - axis]
        self.positive_scores = paired.new_zeros(size)  # summed over the positives
        self.positives = paired.new_zeros(size)  # their number
        self.log_sum = paired.new_full((size,), -torch.inf)  # log-sum-exp of the candidates
        self.negatives = None if negatives is None else paired.new_zeros(size)  # number of candidates but the positives
        self.removed = None if self.treatment.mask is None else paired.new_zeros(size)  # by the mask
        if isinstance(rule, Diagonal):
            self.positive_scores[: len(paired)] = paired
            self.positives[: len(paired)] = 1.0
            if rule.counted is not None:
                self.positives *= rule.counted[:size]
            if self.negatives is not None:
                candidates = rule.candidates
                self.negatives += shape[axis] if candidates is None else candidates.sum()
                self.negatives[: len(paired)] -= (
                    1.0 if candidates is None else candidates[: len(paired)].to(paired.dtype)
                )

    def masks(self, tile: _Tile, *, count: bool = False) -> tuple[Tensor | None, Tensor | None]:
        """Return positives (None: the diagonal) and candidates (None: all) of a tile, and count them if asked to.

        With the decoupled diagonal, the positives are candidates here, and their exps are 0.
        """
        if isinstance(self.rule, Diagonal):
            candidates = self.rule.candidates
            if candidates is not None:
                candidates = candidates[tile.columns] if self.axis == 1 else candidates[tile.rows][:, None]
            kept = self._kept(tile)
            if kept is None:
                if count and tile.removed is not None:
                    self._count_removed(tile, tile.removed[self.axis], candidates)
                return None, candidates
            if count and self.removed is not None and self.negatives is not None:
                number = kept.shape[self.axis] - kept.sum(self.axis)
                if candidates is not None:
                    number = ((1.0 - kept) * candidates).sum(self.axis)
                self.removed[self._anchors(tile)] += number
                self.negatives[self._anchors(tile)] -= number
            return None, kept if candidates is None else kept * candidates
        positives, candidates = self.rule(tile.rows, tile.columns)
        if self.negatives is None:
            return positives, None if candidates is None else candidates | positives
        negatives = ~positives if candidates is None else candidates & ~positives
        kept = self._kept(tile)
        if kept is not None:
            before, negatives = negatives, negatives & (kept > 0)
            if count and self.removed is not None:
                self.removed[self._anchors(tile)] += (before & ~negatives).sum(self.axis)
        if count:
            self.negatives[self._anchors(tile)] += negatives.sum(self.axis)
        return positives, negatives if self.treatment.decoupled else negatives | positives

    def add_tile(self, tile: _Tile) -> None:
        """Add one tile of scores."""
        anchors = self._anchors(tile)
        positives, candidates = self.masks(tile, count=True)
        if positives is not None:
            self.positive_scores[anchors] += (tile.scores * positives).sum(self.axis)
            self.positives[anchors] += positives.sum(self.axis)
        if tile.exps is not None:
            exps = self._exps(tile, positives)
            exps = exps if candidates is None else exps * candidates
            if tile.removed is None:
                summed = exps.sum(self.axis).log()
            else:
                cells = tile.removed[self.axis]
                values = exps[cells]
                exps[cells] = 0.0
                summed = exps.sum(self.axis).log()
                exps[cells] = values  # the other direction and the backward pass need them
        else:
            summed = self._allowed(tile, positives, candidates).logsumexp(self.axis)
        self.log_sum[anchors] = torch.logaddexp(self.log_sum[anchors], summed)

    def sums(self, shift: float) -> tuple[Tensor, Tensor]:
        """Return (anchors,) log-sum-exp of the candidates and mean score of the positives.

        Both are 0 for anchors without positives, unless all anchors count. Afterwards `log_sum` is +inf for anchors
        that have no gradient, so that their probabilities are 0.
        """
        has_positive = self.positives > 0
        counted = torch.ones_like(has_positive) if self.treatment.all_anchors else has_positive
        sums = torch.where(counted, self.log_sum + shift, 0.0)
        self.log_sum = torch.where(counted & sums.isfinite(), sums, torch.inf)
        return sums, torch.where(has_positive, self.positive_scores / self.positives.clamp(min=1), 0.0)

    def start_backward(self, of_sums: Tensor, of_positives: Tensor, shift: float) -> None:
        """Store the gradients of the two results of `sums`, (anchors,) each."""
        self.gradient = torch.where(self.log_sum.isfinite(), of_sums, 0.0)
        self.positive_weight = torch.where(self.positives > 0, -of_positives, 0.0) / self.positives.clamp(min=1)
        self.weight = self.gradient * (shift - self.log_sum).exp()  # of exp(score - shift)

    def candidate_gradient(self, tile: _Tile) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return exps of the candidates (r, c), factors whose product with them is the gradient, and the positives."""
        anchors = self._anchors(tile)
        positives, candidates = self.masks(tile)
        if tile.exps is not None:
            weights = self._along(self.weight[anchors])
            return self._exps(tile, positives), weights if candidates is None else weights * candidates, positives
        allowed = self._allowed(tile, positives, candidates)
        exps = (allowed - self._along(self.log_sum[anchors])).exp_()
        return exps, self._along(self.gradient[anchors]), positives

    def subtract_positives(self, gradient: Tensor, positives: Tensor | None, rows: slice, columns: slice) -> None:
        """Subtract the gradient by the positives from a tile (r, c), in place."""
        if positives is not None:
            gradient -= positives * self._along(self.positive_weight[rows if self.axis == 1 else columns])
            return
        first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if first < last:  # the diagonal crosses the tile
            cells = gradient[first - rows.start : last - rows.start, first - columns.start : last - columns.start]
            cells.diagonal().sub_(self.positive_weight[first:last])

    def _count_removed(self, tile: _Tile, cells: tuple[Tensor, Tensor], candidates: Tensor | None) -> None:
        """Count the candidates of each anchor that the mask removes."""
        assert self.removed is not None
        anchors = self._anchors(tile)
        counted = None if candidates is None else candidates.expand_as(tile.scores)[cells].to(self.removed.dtype)
        number = torch.bincount(cells[1 - self.axis], counted, minlength=len(self.removed[anchors]))
        self.removed[anchors] += number
        if self.negatives is not None:
            self.negatives[anchors] -= number

    def _exps(self, tile: _Tile, positives: Tensor | None) -> Tensor:
        """Return exp(logit - shift) of a tile (r, c); positives off the diagonal have no hardness weights."""
        assert tile.exps is not None
        if self.hardness is None or tile.weighted_exps is None:
            return tile.exps
        return tile.weighted_exps if positives is None else torch.where(positives, tile.exps, tile.weighted_exps)

    def _allowed(self, tile: _Tile, positives: Tensor | None, candidates: Tensor | None) -> Tensor:
        """Return the logits of the candidates of a tile (r, c), -inf for others."""
        logits = tile.scores
        if self.hardness is not None and tile.bumps is not None:
            logits = logits + (tile.bumps if positives is None else tile.bumps * ~positives)
        return logits if candidates is None else logits.masked_fill(candidates == 0, -torch.inf)

    def _kept(self, tile: _Tile) -> Tensor | None:
        """Return 0 for the cells of a tile that the mask removes, else 1, (r, c); None without a mask."""
        mask = self.treatment.mask
        if mask is None or tile.mask_values is None:
            return None
        return mask.kept_cells(*tile.mask_values, tile.rows, tile.columns, self.axis)

    def _anchors(self, tile: _Tile) -> slice:
        return tile.rows if self.axis == 1 else tile.columns

    def _along(self, values: Tensor) -> Tensor:
        return values[:, None] if self.axis == 1 else values


@dataclass
class _Tile:
    """Scores of a tile, (r, c)."""

    rows: slice
    columns: slice
    scores: Tensor
    exps: Tensor | None = None  # exp(score - shift), where all directions may share it
    mask_values: tuple[Tensor, Tensor] | None = None  # similarities of the mask and limits of all anchors
    removed: dict[int, tuple[Tensor, Tensor]] | None = None  # instead, by axis the cells that the mask removes, if few
    weighted_exps: Tensor | None = None  # likewise with hardness weights, of rows as anchors
    bumps: Tensor | None = None  # hardness weights, added to the logits of rows as anchors, where there are no exps

    @property
    def arrays(self) -> int:
        """Number of its arrays (r, c)."""
        values = None if self.mask_values is None else self.mask_values[0]
        parts = (self.scores, self.exps, self.weighted_exps, self.bumps, values)
        return len({part.data_ptr() for part in parts if part is not None})


class TiledSoftmax(torch.autograd.Function):
    """Sums of the softmax of each row, and of each column where there is a rule for them.

    Inputs: left (B, D), right (M, D), tau, rows, columns, negatives, tile and calls, as for `softmax_sums`. Results:
    the four fields of `SoftmaxSums` for the rows, (B,) each, and for the columns, (M,) each; two have gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        tau: Tensor,
        rows: Rule,
        columns: Rule | None,
        negatives: Negatives | None,
        tile: int | None,
        calls: int,
    ) -> tuple[Tensor | None, ...]:
        """Return the sums; see `bsc_core.losses.kernel.softmax.softmax_sums`."""
        scale = 1.0 / float(tau)
        pairs, shape = min(len(left), len(right)), (len(left), len(right))
        paired = (left[:pairs] * right[:pairs]).sum(dim=1) * scale  # (P,)
        diagonal = all(isinstance(rule, Diagonal) for rule in (rows, columns) if rule is not None)
        if negatives is not None and not diagonal:
            rows = diagonal_tiles(rows, left.device) if isinstance(rows, Diagonal) else rows
            columns = transpose_rule(diagonal_tiles(columns, left.device)) if isinstance(columns, Diagonal) else columns
        directions = [_Direction(rows, 1, paired, shape, negatives)]
        if columns is not None:
            directions.append(_Direction(columns, 0, paired, shape, negatives))
        treatment = negatives or Negatives()
        largest = float(_max_norm(left) * _max_norm(right)) * scale
        strength = 0.0 if treatment.hardness is None else treatment.hardness.strength
        shift = largest if largest + strength <= SAFE_SCORE else None
        is_large = negatives is not None and len(left) * len(right) > STORED_SCORES  # its tiles have more arrays
        tiles = list(_tiles(len(left), len(right), tile, small=not diagonal or is_large))
        axes = tuple(direction.axis for direction in directions)
        builder = _TileBuilder(left, right, scale, shift, treatment, diagonal, axes)
        is_stored = tile is None and len(left) * len(right) <= MAX_STORED * STORED_SCORES  # else it would save little
        remaining = STORED_SCORES // calls if is_stored else 0
        if treatment.hardness is not None and len(left) * len(right) <= remaining:
            remaining *= 2  # rather than to recompute a part of the tiles
        stored: dict[int, _Tile] = {}  # by tile number
        for number, (first, second) in enumerate(tiles):
            part = builder.build(first, second, keep_scores=not diagonal)
            for direction in directions:
                direction.add_tile(part)
            remaining -= part.scores.numel() * part.arrays
            if remaining >= 0:
                stored[number] = part
        ctx.save_for_backward(left, right)
        ctx.directions, ctx.tiles, ctx.stored, ctx.builder = directions, tiles, stored, builder
        results: list[Tensor | None] = []
        for direction in directions:
            results += [*direction.sums(0.0 if shift is None else shift), direction.negatives, direction.removed]
        ctx.mark_non_differentiable(*(r for n, r in enumerate(results) if n % 4 > 1 and r is not None))
        return (*results, *[None] * (8 - len(results)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of left, right and tau."""
        left, right = ctx.saved_tensors
        directions, builder, scale = ctx.directions, ctx.builder, ctx.builder.scale
        for direction, start in zip(directions, (0, 4), strict=False):
            direction.start_backward(gradients[start], gradients[start + 1], builder.shift or 0.0)
        to_left, to_right = torch.zeros_like(left), torch.zeros_like(right)
        for number, (first, second) in enumerate(ctx.tiles):
            tile = ctx.stored.pop(number, None)  # overwritten below; a second backward pass recomputes it
            gradient = _tile_gradient(directions, tile or builder.build(first, second))
            to_left[first].addmm_(gradient, right[second], alpha=scale)
            to_right[second].addmm_(gradient.T, left[first], alpha=scale)
        to_tau = -(left * to_left).sum() * scale if ctx.needs_input_grad[2] else None
        return to_left, to_right, to_tau, None, None, None, None, None


def _tile_gradient(directions: list[_Direction], tile: _Tile) -> Tensor:
    """Return the gradient with respect to a tile's scores (r, c). Its exps are overwritten."""
    parts = [direction.candidate_gradient(tile) for direction in directions]
    exps, weights = [part[0] for part in parts], [part[1] for part in parts]
    removed = []
    for direction, own, factors in zip(directions, exps, weights, strict=True):
        if tile.removed is not None:
            cells = tile.removed[direction.axis]
            removed.append((cells, own[cells] * factors.expand_as(own)[cells]))
    if all(own is exps[0] for own in exps):
        gradient = exps[0].mul_(weights[0] if len(weights) == 1 else weights[0] + weights[1])
    else:
        gradient = exps[0].mul_(weights[0]).addcmul_(exps[1], weights[1])
    for cells, value in removed:
        gradient[cells] -= value
    for direction, (_, _, positives) in zip(directions, parts, strict=True):
        direction.subtract_positives(gradient, positives, tile.rows, tile.columns)
    return gradient


@dataclass
class _TileBuilder:
    """Computes the tiles of a score matrix."""

    left: Tensor
    right: Tensor
    scale: float  # 1 / tau
    shift: float | None  # the largest possible score; None where exps cannot be shared
    treatment: Negatives
    diagonal: bool  # whether every positive is on the diagonal
    axes: tuple[int, ...]  # of the directions

    def build(self, rows: slice, columns: slice, *, keep_scores: bool = False) -> _Tile:
        """Return a tile; without `keep_scores`, its scores are overwritten where there are exps."""
        scores = (self.left[rows] @ self.right[columns].T).mul_(self.scale)  # (r, c)
        tile = _Tile(rows, columns, scores)
        if self.treatment.hardness is not None:
            tile.bumps = self.treatment.hardness.bumps(scores, self.scale, rows, columns)
        if self.shift is not None:
            shifted = scores - self.shift if keep_scores else scores.sub_(self.shift)
            if tile.bumps is not None:
                tile.weighted_exps, tile.bumps = tile.bumps.add_(shifted).exp_(), None
            tile.exps = shifted.exp_()
        if self.diagonal and self.treatment.decoupled:
            for values in (scores,) if tile.exps is None else (tile.exps, tile.weighted_exps):
                if values is not None:
                    _fill_diagonal(values, rows, columns, -torch.inf if tile.exps is None else 0.0)
        if self.treatment.mask is not None:
            tile.mask_values = self._mask_values(self.treatment.mask, tile)
            if tile.mask_values is not None and self.diagonal and tile.exps is not None:
                self._remove_few(self.treatment.mask, tile, *tile.mask_values)
        return tile

    def _remove_few(self, mask: FalseNegativeMask, tile: _Tile, values: Tensor, limits: Tensor) -> None:
        """Replace the similarities of the mask by the cells that it removes, if they are few in each direction."""
        removed = {}
        for axis in self.axes:
            cells = mask.removed_cells(values, limits, tile.rows, tile.columns, axis)
            if cells is None:
                return
            removed[axis] = cells
        tile.removed, tile.mask_values = removed, None

    def _mask_values(self, mask: FalseNegativeMask, tile: _Tile) -> tuple[Tensor, Tensor] | None:
        """Return similarities of the mask in a tile and the limits, both under the same increasing function.

        None if no similarity exceeds the limit of an anchor.
        """
        limits, values = mask.limits + TIE, tile.scores
        left, right = mask.cosines.left, mask.cosines.right
        if left is not None and right is not None:
            similarities = mask.similarities(left, right, tile.rows, tile.columns, self.axes)
            if similarities is None:
                return None
            values = similarities
        elif tile.exps is not None and self.shift is not None:
            values, limits = tile.exps, (limits * self.scale - self.shift).exp()
        else:
            limits = limits * self.scale
        return (values, limits) if exceed(values, limits, tile.rows, tile.columns, self.axes) else None


def _fill_diagonal(values: Tensor, rows: slice, columns: slice, value: float) -> None:
    """Set the cells of the matrix diagonal in a tile."""
    first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if first < last:
        cells = values[first - rows.start : last - rows.start, first - columns.start : last - columns.start]
        cells.diagonal().fill_(value)


def _tiles(height: int, width: int, tile: int | None, *, small: bool) -> Iterator[tuple[slice, slice]]:
    """Yield the tiles; those that need several arrays of their size can be small."""
    rows, columns = (TILE_ROWS, TILE_COLUMNS // 4) if small else (TILE_ROWS, TILE_COLUMNS)
    if tile:
        rows = columns = tile
    for top, start in product(range(0, height, rows), range(0, width, columns)):
        yield slice(top, min(top + rows, height)), slice(start, min(start + columns, width))


def _max_norm(vectors: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=1).amax()
    return norm

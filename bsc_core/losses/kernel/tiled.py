"""Masked softmax with written-out gradient, computed in tiles.

Both directions share every tile. If scores are small, they also share one exp; otherwise each direction computes a
separate log-sum-exp.
"""

# B rows, M columns, D dimensions; r rows and c columns of a tile

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsc_core.losses.kernel.masks import Diagonal, Rule

TILE_ROWS, TILE_COLUMNS = 1024, 4096
STORED_SCORES = 4096 * 4096
"""Number of scores stored for the backward pass; further tiles are recomputed."""
SAFE_SCORE = 40.0
"""Scores up to this magnitude can share one exp(score - largest): exp(-80) is a normal float32."""


class _Direction:
    """One direction of a batch: anchors along one axis of the scores, candidates along the other."""

    def __init__(self, rule: Rule, axis: int, paired: Tensor, size: int) -> None:
        """Initialize. axis: 1 if rows are the anchors, else 0. paired: (P,) scores of the diagonal."""
        self.rule, self.axis = rule, axis
        self.positive_scores = paired.new_zeros(size)  # summed over the positives
        self.positives = paired.new_zeros(size)  # their number
        self.log_sum = paired.new_full((size,), -torch.inf)  # log-sum-exp of the candidates
        if isinstance(rule, Diagonal):
            self.positive_scores[: len(paired)] = paired
            self.positives[: len(paired)] = 1.0
            if rule.counted is not None:
                self.positives *= rule.counted[:size]

    def masks(self, rows: slice, columns: slice) -> tuple[Tensor | None, Tensor | None]:
        """Return positives (None: the diagonal) and candidates (None: all) of a tile."""
        if not isinstance(self.rule, Diagonal):
            positives, candidates = self.rule(rows, columns)
            return positives, None if candidates is None else candidates | positives
        if self.rule.candidates is None:
            return None, None
        return None, self.rule.candidates[columns] if self.axis == 1 else self.rule.candidates[rows][:, None]

    def add_tile(self, scores: Tensor, exps: Tensor | None, rows: slice, columns: slice) -> None:
        """Add one tile of scores (r, c), with their exps (r, c) if these may be used."""
        anchors = rows if self.axis == 1 else columns
        positives, candidates = self.masks(rows, columns)
        if positives is not None:
            self.positive_scores[anchors] += (scores * positives).sum(self.axis)
            self.positives[anchors] += positives.sum(self.axis)
        if exps is not None:
            summed = (exps if candidates is None else exps * candidates).sum(self.axis).log()
        else:
            allowed = scores if candidates is None else scores.masked_fill(~candidates, -torch.inf)
            summed = allowed.logsumexp(self.axis)
        self.log_sum[anchors] = torch.logaddexp(self.log_sum[anchors], summed)

    def losses(self, shift: float) -> Tensor:
        """Return (anchors,) log-sum-exp of the candidates minus the mean of the positives; 0 without positives.

        Afterwards `log_sum` is +inf for anchors without positives, so that their probabilities are 0.
        """
        counted = self.positives > 0
        self.log_sum = torch.where(counted, self.log_sum + shift, torch.inf)
        losses = self.log_sum - self.positive_scores / self.positives.clamp(min=1)
        return torch.where(counted, losses.clamp_(min=0.0), 0.0)  # below 0 is rounding

    def start_backward(self, gradient: Tensor, shift: float) -> None:
        """Store the gradient of the losses, (anchors,)."""
        self.gradient = torch.where(self.positives > 0, gradient, 0.0)
        self.positive_weight = self.gradient / self.positives.clamp(min=1)
        self.weight = self.gradient * (shift - self.log_sum).exp()  # of exp(score - shift)

    def candidate_gradient(
        self, scores: Tensor, exps: Tensor | None, rows: slice, columns: slice
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient by the candidates (r, c), or the factor of exps if given, and the positives' mask."""
        anchors = rows if self.axis == 1 else columns
        positives, candidates = self.masks(rows, columns)
        if exps is not None:
            weights = self._along(self.weight[anchors])
            return weights if candidates is None else weights * candidates, positives
        allowed = scores if candidates is None else scores.masked_fill(~candidates, -torch.inf)  # its exp may be inf
        return (allowed - self._along(self.log_sum[anchors])).exp_() * self._along(self.gradient[anchors]), positives

    def subtract_positives(self, gradient: Tensor, positives: Tensor | None, rows: slice, columns: slice) -> None:
        """Subtract the gradient by the positives from a tile (r, c), in place."""
        if positives is not None:
            gradient -= positives * self._along(self.positive_weight[rows if self.axis == 1 else columns])
            return
        first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if first < last:  # the diagonal crosses the tile
            cells = gradient[first - rows.start : last - rows.start, first - columns.start : last - columns.start]
            cells.diagonal().sub_(self.positive_weight[first:last])

    def _along(self, values: Tensor) -> Tensor:
        return values[:, None] if self.axis == 1 else values


class TiledSoftmax(torch.autograd.Function):
    """Map (left (B, D), right (M, D), tau, rows, columns, tile) to losses of the rows (B,) and columns (M,)."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, tau: Tensor, rows: Rule, columns: Rule | None, tile: int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the losses; see `bsc_core.losses.kernel.softmax.masked_softmax`."""
        scale = 1.0 / float(tau)
        pairs = min(len(left), len(right))
        paired = (left[:pairs] * right[:pairs]).sum(dim=1) * scale  # (P,)
        directions = [_Direction(rows, 1, paired, len(left))]
        if columns is not None:
            directions.append(_Direction(columns, 0, paired, len(right)))
        largest = float(_max_norm(left) * _max_norm(right)) * scale
        shift = largest if largest <= SAFE_SCORE else None
        masked = not all(isinstance(direction.rule, Diagonal) for direction in directions)
        tiles = list(_tiles(len(left), len(right), tile, masked=masked))
        remaining = STORED_SCORES if tile is None else 0
        stored: dict[int, Tensor] = {}  # by tile number
        for number, (first, second) in enumerate(tiles):
            scores = _scores(left[first], right[second], scale)
            exps = None if shift is None else _exps(scores, shift, directions)
            for direction in directions:
                direction.add_tile(scores, exps, first, second)
            remaining -= scores.numel()
            if remaining >= 0:
                stored[number] = scores if exps is None else exps
        ctx.save_for_backward(left, right)
        ctx.directions, ctx.tiles, ctx.stored, ctx.shift, ctx.scale = directions, tiles, stored, shift, scale
        losses = [direction.losses(0.0 if shift is None else shift) for direction in directions]
        return losses[0], losses[1] if columns is not None else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor, of_columns: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of left, right and tau."""
        left, right = ctx.saved_tensors
        directions, shift, scale = ctx.directions, ctx.shift, ctx.scale
        for direction, gradient in zip(directions, (of_rows, of_columns), strict=False):
            direction.start_backward(gradient, 0.0 if shift is None else shift)
        to_left, to_right = torch.zeros_like(left), torch.zeros_like(right)
        for number, (first, second) in enumerate(ctx.tiles):
            scores = exps = ctx.stored.pop(number, None)  # overwritten below; a second backward pass recomputes it
            if scores is None:
                scores = exps = _scores(left[first], right[second], scale)
                if shift is not None:
                    exps = exps.sub_(shift).exp_()
            gradient = _tile_gradient(directions, scores, None if shift is None else exps, (first, second))
            to_left[first].addmm_(gradient, right[second], alpha=scale)
            to_right[second].addmm_(gradient.T, left[first], alpha=scale)
        to_tau = -(left * to_left).sum() * scale if ctx.needs_input_grad[2] else None
        return to_left, to_right, to_tau, None, None, None


def _tile_gradient(
    directions: list[_Direction], scores: Tensor, exps: Tensor | None, tile: tuple[slice, slice]
) -> Tensor:
    """Return the gradient with respect to a tile's scores (r, c). exps is overwritten."""
    parts = [direction.candidate_gradient(scores, exps, *tile) for direction in directions]
    weights = parts[0][0] if len(parts) == 1 else parts[0][0] + parts[1][0]
    gradient = weights if exps is None else exps.mul_(weights)
    for direction, (_, positives) in zip(directions, parts, strict=True):
        direction.subtract_positives(gradient, positives, *tile)
    return gradient


def _tiles(height: int, width: int, tile: int | None, *, masked: bool) -> Iterator[tuple[slice, slice]]:
    """Yield the tiles; masked ones need several arrays of their size and are smaller."""
    rows, columns = (TILE_ROWS, TILE_COLUMNS // 4) if masked else (TILE_ROWS, TILE_COLUMNS)
    if tile:
        rows = columns = tile
    for top, start in product(range(0, height, rows), range(0, width, columns)):
        yield slice(top, min(top + rows, height)), slice(start, min(start + columns, width))


def _scores(left: Tensor, right: Tensor, scale: float) -> Tensor:
    return (left @ right.T).mul_(scale)  # (r, c)


def _exps(scores: Tensor, shift: float, directions: list[_Direction]) -> Tensor:
    """Return exp(scores - shift), in place if no direction needs the scores afterwards."""
    in_place = all(isinstance(direction.rule, Diagonal) for direction in directions)
    return (scores.sub_(shift) if in_place else scores - shift).exp_()


def _max_norm(vectors: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=1).amax()
    return norm

"""Softmax losses and their gradient, tile by tile: log-sum-exp by blocks, and the blocks again on the way back.

Rows and columns share every tile, so that both directions cost little more than one. Where no score can be large, one
exp serves both; elsewhere each direction keeps its own log-sum-exp.
"""

# B rows, M columns, D dimensions; r rows and c columns of a tile

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsc_core.losses.rules import Diagonal, Rule

TILE_ROWS, TILE_COLUMNS = 1024, 4096
KEPT_SCORES = 4096 * 4096
"""So many scores are kept for the gradient, the first ones; the tiles of the others are computed twice."""
SAFE_SCORE = 40.0
"""Scores below this in size can share one exp(score - largest): exp(-80) is still a float32."""


class _Direction:
    """One direction of a batch: choosers, along one axis of the scores, and what they choose, along the other."""

    def __init__(self, rule: Rule, axis: int, paired: Tensor, size: int) -> None:
        """axis: 1 where rows choose among columns, 0 the other way. paired: (P,) scores of the diagonal."""
        self.rule, self.axis = rule, axis
        self.attracted = paired.new_zeros(size)  # sum of the positives' scores
        self.positives = paired.new_zeros(size)  # their number
        self.spread = paired.new_full((size,), -torch.inf)  # log of the candidates' summed exp
        if isinstance(rule, Diagonal):
            self.attracted[: len(paired)] = paired
            self.positives[: len(paired)] = 1.0
            if rule.counted is not None:
                self.positives *= rule.counted[:size]

    def masks(self, rows: slice, columns: slice) -> tuple[Tensor | None, Tensor | None]:
        """Positives (None: the diagonal) and candidates (None: all) of a tile."""
        if not isinstance(self.rule, Diagonal):
            positives, candidates = self.rule(rows, columns)
            return positives, None if candidates is None else candidates | positives
        if self.rule.candidates is None:
            return None, None
        return None, self.rule.candidates[columns] if self.axis == 1 else self.rule.candidates[rows][:, None]

    def see(self, scores: Tensor, exps: Tensor | None, rows: slice, columns: slice) -> None:
        """Take in one tile: scores (r, c), and exps (r, c) of the scores where they may be used."""
        own = rows if self.axis == 1 else columns
        positives, candidates = self.masks(rows, columns)
        if positives is not None:
            self.attracted[own] += (scores * positives).sum(self.axis)
            self.positives[own] += positives.sum(self.axis)
        if exps is not None:
            summed = (exps if candidates is None else exps * candidates).sum(self.axis).log()
        else:
            allowed = scores if candidates is None else scores.masked_fill(~candidates, -torch.inf)
            summed = allowed.logsumexp(self.axis)
        self.spread[own] = torch.logaddexp(self.spread[own], summed)

    def losses(self, shift: float) -> Tensor:
        """(choosers,) log-sum-exp of the candidates minus the mean of the positives; 0 without positives.

        From here on `spread` is +inf where nothing counts, so that its probabilities are 0.
        """
        counted = self.positives > 0
        self.spread = torch.where(counted, self.spread + shift, torch.inf)
        losses = self.spread - self.attracted / self.positives.clamp(min=1)
        return torch.where(counted, losses.clamp_(min=0.0), 0.0)  # below 0 is rounding

    def weigh(self, gradient: Tensor, shift: float) -> None:
        """Take the gradient of the losses, (choosers,)."""
        self.gradient = torch.where(self.positives > 0, gradient, 0.0)
        self.pull = self.gradient / self.positives.clamp(min=1)
        self.share = self.gradient * (shift - self.spread).exp()  # of one exp(score - shift)

    def push(self, scores: Tensor, exps: Tensor | None, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        """Gradient of a tile's scores by the candidates, (r, c) or what to scale exps with, and positives' masks."""
        own = rows if self.axis == 1 else columns
        positives, candidates = self.masks(rows, columns)
        if exps is not None:
            weights = self._along(self.share[own])
            return weights if candidates is None else weights * candidates, positives
        allowed = scores if candidates is None else scores.masked_fill(~candidates, -torch.inf)  # its exp may be inf
        return (allowed - self._along(self.spread[own])).exp_() * self._along(self.gradient[own]), positives

    def pull_from(self, gradient: Tensor, positives: Tensor | None, rows: slice, columns: slice) -> None:
        """Subtract the positives' part from a tile's gradient (r, c), in place."""
        if positives is not None:
            gradient -= positives * self._along(self.pull[rows if self.axis == 1 else columns])
            return
        first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if first < last:  # the diagonal crosses the tile
            cells = gradient[first - rows.start : last - rows.start, first - columns.start : last - columns.start]
            cells.diagonal().sub_(self.pull[first:last])

    def _along(self, values: Tensor) -> Tensor:
        return values[:, None] if self.axis == 1 else values


class TiledSoftmax(torch.autograd.Function):
    """(left (B, D), right (M, D), tau, rows, columns, tile) -> losses of the rows (B,) and of the columns (M,)."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, tau: Tensor, rows: Rule, columns: Rule | None, tile: int | None
    ) -> tuple[Tensor, Tensor | None]:
        scale = 1.0 / float(tau)
        pairs = min(len(left), len(right))
        paired = (left[:pairs] * right[:pairs]).sum(dim=1) * scale  # (P,)
        directions = [_Direction(rows, 1, paired, len(left))]
        if columns is not None:
            directions.append(_Direction(columns, 0, paired, len(right)))
        largest = float(_longest(left) * _longest(right)) * scale
        shift = largest if largest <= SAFE_SCORE else None
        masked = not all(isinstance(direction.rule, Diagonal) for direction in directions)
        tiles = list(_tiles(len(left), len(right), tile, masked=masked))
        room = KEPT_SCORES if tile is None else 0
        kept: dict[int, Tensor] = {}  # by number of the tile
        for number, (first, second) in enumerate(tiles):
            scores = _scores(left[first], right[second], scale)
            exps = None if shift is None else _exps(scores, shift, directions)
            for direction in directions:
                direction.see(scores, exps, first, second)
            room -= scores.numel()
            if room >= 0:
                kept[number] = scores if exps is None else exps
        ctx.save_for_backward(left, right)
        ctx.directions, ctx.tiles, ctx.kept, ctx.shift, ctx.scale = directions, tiles, kept, shift, scale
        losses = [direction.losses(0.0 if shift is None else shift) for direction in directions]
        return losses[0], losses[1] if columns is not None else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor, of_columns: Tensor | None) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        directions, shift, scale = ctx.directions, ctx.shift, ctx.scale
        for direction, gradient in zip(directions, (of_rows, of_columns), strict=False):
            direction.weigh(gradient, 0.0 if shift is None else shift)
        to_left, to_right = torch.zeros_like(left), torch.zeros_like(right)
        for number, (first, second) in enumerate(ctx.tiles):
            scores = exps = ctx.kept.pop(number, None)  # used up below; a second pass computes it anew
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
    """(r, c) gradient of the losses with respect to a tile's scores. exps is used up."""
    pushes = [direction.push(scores, exps, *tile) for direction in directions]
    weights = pushes[0][0] if len(pushes) == 1 else pushes[0][0] + pushes[1][0]
    gradient = weights if exps is None else exps.mul_(weights)
    for direction, (_, positives) in zip(directions, pushes, strict=True):
        direction.pull_from(gradient, positives, *tile)
    return gradient


def _tiles(height: int, width: int, tile: int | None, *, masked: bool) -> Iterator[tuple[slice, slice]]:
    """masked: whether tiles have masks, and so several arrays of their size at a time; then they are smaller."""
    rows, columns = (TILE_ROWS, TILE_COLUMNS // 4) if masked else (TILE_ROWS, TILE_COLUMNS)
    if tile:
        rows = columns = tile
    for top, start in product(range(0, height, rows), range(0, width, columns)):
        yield slice(top, min(top + rows, height)), slice(start, min(start + columns, width))


def _scores(left: Tensor, right: Tensor, scale: float) -> Tensor:
    return (left @ right.T).mul_(scale)  # (r, c)


def _exps(scores: Tensor, shift: float, directions: list[_Direction]) -> Tensor:
    """exp(scores - shift), in place where no direction looks at the scores any more."""
    alone = all(isinstance(direction.rule, Diagonal) for direction in directions)
    return (scores.sub_(shift) if alone else scores - shift).exp_()


def _longest(vectors: Tensor) -> Tensor:
    longest: Tensor = torch.linalg.vector_norm(vectors, dim=1).amax()
    return longest

"""Mask rules: which cells of a score matrix are positives and which are candidates.

A rule is evaluated tile by tile, so that no mask of the full matrix is needed. In one direction, each anchor (a
row) is compared with candidates (the columns); in the other direction documents are the anchors.
"""

# B anchors; M candidates, the first B paired with the anchors; E excluded cells; r rows and c columns of a tile

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bsc_core.errors import InputError

TileRule: TypeAlias = Callable[[slice, slice], tuple[Tensor, Tensor | None]]
"""(rows, columns) -> bool (r, c) positives and bool (r, c) candidates, None where every cell is a candidate.
Positives are always candidates."""


@dataclass(frozen=True)
class Diagonal:
    """Rule of plain in-batch negatives: the only positive of anchor i is candidate i.

    Attributes:
        counted: bool (B,), anchors that have a positive; None for all.
        candidates: bool (M,), columns that are candidates; None for all. The positive of a counted anchor must be one.
    """

    counted: Tensor | None = None
    candidates: Tensor | None = None


Rule: TypeAlias = TileRule | Diagonal


def transpose_rule(rule: Rule) -> Rule:
    """Return the rule for anchors that are the columns of the score matrix; its tiles stay (rows, columns)."""
    if isinstance(rule, Diagonal):
        return rule  # independent of the orientation

    def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        positives, candidates = rule(columns, rows)
        return positives.T, None if candidates is None else candidates.T

    return tile


@dataclass(frozen=True)
class Direction:
    """One direction of a batch with repeated texts."""

    anchor_ids: Tensor  # (B,) text ids of the anchors
    candidate_ids: Tensor  # (M,) text ids of the candidates
    counted: Tensor  # bool (B,), the positive pairs
    candidates: Tensor | None  # bool (M,), columns that are candidates; None for all

    def merged(self) -> TileRule:
        """Return the rule for duplicates "merge": of every other text only the first copy is a candidate."""
        first = _first_of_each(self.candidate_ids, self.candidates)  # (M,)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
            paired = _diagonal(rows, columns, self.candidate_ids.device) & self.counted[rows, None]
            other = self.candidate_ids[: len(self.anchor_ids)][rows, None] != self.candidate_ids[columns]
            return paired, first[columns] & other

        return tile

    def multi_positive(self) -> TileRule:
        """Return the rule for duplicates "multi_positive".

        Positives are the copies of the paired candidate, and the positive candidates of the anchor's copies, averaged
        outside the logarithm (equations 3 and 4 of the BSC paper).
        """
        counted = _padded(self.counted, len(self.candidate_ids), False)
        anchor_of = _padded(self.anchor_ids, len(self.candidate_ids), -1)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
            copies = self.candidate_ids[: len(self.anchor_ids)][rows, None] == self.candidate_ids[columns]
            same_anchor = (self.anchor_ids[rows, None] == anchor_of[columns]) & counted[columns]
            candidates = None if self.candidates is None else self.candidates[columns].expand(copies.shape)
            return (copies | same_anchor) & self.counted[rows, None], candidates

        return tile


def excluded_cells(ids: dict[str, Tensor], anchors: int, candidates: int) -> Tensor | None:
    """Return the excluded (anchor, candidate) cells of a batch, long (E, 2); None if ids["excluded"] has none.

    Every softmax ignores the excluded cells, such as the pairs that a person marked as false negatives.

    Raises:
        InputError: A cell is outside the batch.
    """
    cells = ids.get("excluded")
    if cells is None or not len(cells):
        return None
    inside = (cells >= 0).all() and (cells[:, 0] < anchors).all() and (cells[:, 1] < candidates).all()
    if cells.ndim != 2 or cells.shape[1] != 2 or not inside:
        raise InputError(
            f"excluded has cells outside the {anchors} queries and {candidates} documents; "
            "give (query, document) positions in the batch"
        )
    return cells


def swapped(cells: Tensor | None, candidates: int) -> Tensor | None:
    """Return the cells with documents as anchors, without those of extra documents."""
    if cells is None:
        return None
    paired = cells[cells[:, 1] < candidates].flip(1)
    return paired if len(paired) else None


def without(rule: Rule, cells: Tensor | None) -> Rule:
    """Return the rule without the excluded candidates. A positive stays positive even if its cell is excluded."""
    if cells is None:
        return rule
    return _Without(_diagonal_tiles(rule, cells.device) if isinstance(rule, Diagonal) else rule, cells)


@dataclass(frozen=True)
class _Without:
    """A tile rule whose candidates lack the excluded cells."""

    rule: TileRule
    cells: Tensor

    def __call__(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        positives, candidates = self.rule(rows, columns)
        down, across = self.cells[:, 0], self.cells[:, 1]
        inside = (down >= rows.start) & (down < rows.stop) & (across >= columns.start) & (across < columns.stop)
        allowed = torch.ones_like(positives) if candidates is None else candidates.clone()
        allowed[down[inside] - rows.start, across[inside] - columns.start] = False
        return positives, allowed


def _diagonal_tiles(rule: Diagonal, device: torch.device) -> TileRule:
    """Return a diagonal rule as a tile rule."""

    def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        paired = _diagonal(rows, columns, device)
        if rule.counted is not None:
            paired = paired & rule.counted[rows, None]
        return paired, None if rule.candidates is None else rule.candidates[columns].expand(paired.shape)

    return tile


def _diagonal(rows: slice, columns: slice, device: torch.device) -> Tensor:
    """Return bool (r, c), the cells of the matrix diagonal in a tile."""
    down = torch.arange(rows.start, rows.stop, device=device)
    return down[:, None] == torch.arange(columns.start, columns.stop, device=device)


def _first_of_each(ids: Tensor, candidates: Tensor | None) -> Tensor:
    """Return bool (M,), the first candidate of each text id."""
    positions = torch.arange(len(ids), device=ids.device)
    if candidates is not None:
        positions = torch.where(candidates, positions, len(ids))
    inverse: Tensor = torch.unique(ids, return_inverse=True)[1]
    first = torch.full_like(positions, len(ids)).scatter_reduce(0, inverse, positions, "amin")  # by distinct id
    return positions == first[inverse] if candidates is None else (positions == first[inverse]) & candidates


def _padded(values: Tensor, length: int, fill: int | bool) -> Tensor:
    return torch.cat([values, values.new_full((length - len(values),), fill)]) if length > len(values) else values

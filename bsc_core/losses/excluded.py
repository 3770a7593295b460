"""Cells that no softmax may look at: pairs that a person marked as false negatives."""

# B choosers, M choices, E excluded cells; r rows and c columns of a tile

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bsc_core.errors import InputError
from bsc_core.losses.rules import Diagonal, Rule, TileRule


def excluded_cells(ids: dict[str, Tensor], choosers: int, choices: int) -> Tensor | None:
    """The excluded (chooser, choice) cells of a batch, long (E, 2), from ids["excluded"]; None where there are none.

    Raises InputError for a cell outside the batch.
    """
    cells = ids.get("excluded")
    if cells is None or not len(cells):
        return None
    inside = (cells >= 0).all() and (cells[:, 0] < choosers).all() and (cells[:, 1] < choices).all()
    if cells.ndim != 2 or cells.shape[1] != 2 or not inside:
        raise InputError(
            f"excluded holds cells outside the {choosers} queries and {choices} documents; "
            "give places of a query and a document"
        )
    return cells


def swapped(cells: Tensor | None, choices: int) -> Tensor | None:
    """The same cells with documents as choosers; those of extra documents, which ask nothing, are left out."""
    if cells is None:
        return None
    kept = cells[cells[:, 1] < choices].flip(1)
    return kept if len(kept) else None


def without(rule: Rule, cells: Tensor | None) -> Rule:
    """The rule with some candidates taken away. A positive stays one, even where its cell is excluded."""
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
    """A diagonal rule told tile by tile."""

    def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        down = torch.arange(rows.start, rows.stop, device=device)
        own = down[:, None] == torch.arange(columns.start, columns.stop, device=device)
        if rule.counted is not None:
            own = own & rule.counted[rows, None]
        return own, None if rule.candidates is None else rule.candidates[columns].expand(own.shape)

    return tile

"""Which cells of a matrix of scores are positives and which are candidates, told tile by tile or by a diagonal."""

# B rows, M columns; r rows and c columns of a tile

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

TileRule: TypeAlias = Callable[[slice, slice], tuple[Tensor, Tensor | None]]
"""(rows, columns) -> positives, bool (r, c), and candidates, bool (r, c), or None where every cell is one. Positives
always are candidates."""


@dataclass(frozen=True)
class Diagonal:
    """The rule of plain in-batch negatives: the i-th chooser's only positive is the i-th choice.

    counted: bool, one for each chooser, those that have a positive; None: all. candidates: bool, one for each choice;
    None: all. A counted chooser's positive must be a candidate. Rows choose columns, or columns choose rows.
    """

    counted: Tensor | None = None
    candidates: Tensor | None = None


Rule: TypeAlias = TileRule | Diagonal


def turned(rule: Rule) -> Rule:
    """A rule of choosers, for choosers that stand in the columns: its tiles come out as (rows, columns)."""
    if isinstance(rule, Diagonal):
        return rule  # says who chooses and what may be chosen, not where they stand

    def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        positives, candidates = rule(columns, rows)
        return positives.T, None if candidates is None else candidates.T

    return tile

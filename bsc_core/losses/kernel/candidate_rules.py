"""Which cells of a score matrix are positives and which are candidates, by labels and equal texts.

The false-negative mask, which removes candidates by their similarity, is in `negatives.py`.

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
from bsc_core.losses.kernel.negatives import cells_in_tile

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


@dataclass(frozen=True)
class SameSide:
    """Tile rule of anchors against the texts of their own side, queries or documents; no cell is a positive.

    Extra documents belong to the anchors in turn: of B anchors, rows B + i, 2B + i, ... are those of anchor i where
    their number is a multiple of B.
    """

    pairs: int  # B
    texts: int  # M
    device: torch.device
    candidates: Tensor | None = None  # bool (M,), texts that are candidates; None for all
    ids: Tensor | None = None  # (M,) text ids: an equal text is no candidate; None to ignore

    def __call__(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """Return positives, none, and candidates of a tile, bool (r, c)."""
        other = ~owned(rows, columns, self.pairs, self.texts, self.device)
        if self.ids is not None:
            other &= self.ids[rows, None] != self.ids[columns]
        if self.candidates is not None:
            other &= self.candidates[columns]
        return torch.zeros_like(other), other


def owned(rows: slice, columns: slice, pairs: int, texts: int, device: torch.device) -> Tensor:
    """Return bool (r, c), the cells of an anchor and its text or one of its extra documents; see `SameSide`."""
    across = torch.arange(columns.start, columns.stop, device=device)
    if texts % pairs == 0:
        across = across % pairs
    return torch.arange(rows.start, rows.stop, device=device)[:, None] == across


def labeled_cells(positive: Tensor | None, queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (query, document) cells that a label decides, apart from the pairs themselves, long (E, 2) each.

    A batch has the label of cell (i, j) if one of its pairs has the texts of query i and document j.

    Args:
        positive: bool (B,), the positive pairs; None for all.
        queries: (B,) text ids.
        documents: (B + K,) text ids.

    Returns:
        The cells labeled positive, and those labeled negative and not positive.
    """
    pairs, device = len(queries), queries.device
    if positive is None:
        positive = torch.ones(pairs, dtype=torch.bool, device=device)
    texts, query = torch.unique(queries, return_inverse=True)
    named, document = torch.unique(documents, return_inverse=True)
    codes, which = torch.unique(query * len(named) + document[:pairs], return_inverse=True)
    is_positive = torch.bincount(which[positive], minlength=len(codes)) > 0
    rows, row_starts, row_counts = _by_value(query, len(texts))
    columns, column_starts, column_counts = _by_value(document, len(named))
    of_query, of_document = codes // len(named), codes % len(named)
    sizes = row_counts[of_query] * column_counts[of_document]  # cells of each labeled pair of texts
    code = torch.repeat_interleave(torch.arange(len(codes), device=device), sizes)
    within = torch.arange(len(code), device=device) - (sizes.cumsum(0) - sizes)[code]
    width = column_counts[of_document][code]
    row = rows[row_starts[of_query][code] + within // width]
    column = columns[column_starts[of_document][code] + within % width]
    cells, decided = torch.stack([row, column], dim=1), is_positive[code]
    other = row != column
    return cells[other & decided], cells[other & ~decided]


def all_document_ids(ids: Tensor, choices: int) -> Tensor:
    """Return text ids of all documents, (B + K,); extra documents without an id get a new one."""
    missing = choices - len(ids)
    return ids if not missing else torch.cat([ids, ids.min() - 1 - torch.arange(missing, device=ids.device)])


def _by_value(values: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positions (N,) ordered by value, and first position and count of each of `number` values."""
    counts = torch.bincount(values, minlength=number)
    return values.argsort(stable=True), counts.cumsum(0) - counts, counts


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
    return _Without(diagonal_tiles(rule, cells.device) if isinstance(rule, Diagonal) else rule, cells)


@dataclass(frozen=True)
class _Without:
    """A tile rule whose candidates lack the excluded cells."""

    rule: TileRule
    cells: Tensor

    def __call__(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        positives, candidates = self.rule(rows, columns)
        allowed = torch.ones_like(positives) if candidates is None else candidates.clone()
        allowed[cells_in_tile(self.cells, rows, columns)] = False
        return positives, allowed


def diagonal_tiles(rule: Diagonal, device: torch.device) -> TileRule:
    """Return a diagonal rule as a tile rule. Its tiles are (rows, columns) with either side as anchors."""

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

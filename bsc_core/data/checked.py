"""Pairs of a file in pieces, checked row by row as `read_pairs` checks them, in the memory of one piece."""

# R good rows of a piece

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns
from bsc_core.data.classes import are_numbered, reject_classes
from bsc_core.data.columns import as_names, guess_columns
from bsc_core.data.mapping import choose_columns, refuse_nested
from bsc_core.data.readers import check_rows, check_scale, nothing_left, refuse_scale
from bsc_core.data.reports import ReadReport, Rejection
from bsc_core.data.shards import is_shards, open_shards
from bsc_core.data.stream import Say, read_pieces
from bsc_core.data.tables import Table

SHOWN = 20
PLAIN_ROLES = ("query_id", "document_id", "split", "class_label")


@dataclass(frozen=True)
class Piece:
    """The good rows of a piece.

    sides: R texts each of query, document and, where it is mapped, negative. labels: (R,) in [0, 1], or None. cells: R
    cells of each other mapped role: query_id, document_id, split and class_label.
    """

    sides: list[list[str]]
    labels: npt.NDArray[np.float32] | None
    cells: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.sides[0])


@dataclass
class PairPieces:
    """Iterating gives each piece; after the last one the counts are those of the whole file.

    columns None: guessed from the first piece. rejected: how many rows were, and first: the first of them. Raises what
    `read_pairs` raises: of the file and its columns as soon as it is met, of its rows as a whole after the last piece.
    """

    path: Path | str
    columns: Columns | None = None
    limits: tuple[float, float] = (0.0, 1.0)
    threshold: float = 0.5
    say: Say = lambda progress: None
    read: int = 0
    rejected: int = 0
    first: list[Rejection] = field(default_factory=list)
    unit: Literal["line", "row"] = "line"

    def __post_init__(self) -> None:
        check_scale(self.threshold, *self.limits)
        head = next(piece for piece in read_pieces(self.path) if piece.names)
        told = open_shards(self.path).columns if is_shards(self.path) else self.columns
        self.roles, self.guessed = choose_columns(head, told, Columns, guess_columns)
        self.unit = head.unit
        column = self.roles.class_label
        self._numbered = column is not None and are_numbered(head.columns[column])
        self._shaped = self._outside = 0
        self._reach: list[float] = []

    def __iter__(self) -> Iterator[Piece]:
        roles = self.roles.model_dump(exclude_none=True)
        names = list(dict.fromkeys(name for given in roles.values() for name in as_names(given)))
        for table in read_pieces(self.path, names, say=self.say):
            yield self._checked(table)
        refuse_scale(str(self.path), self.roles.label, self.limits, self._reach, self._outside, self._shaped)
        if not self.kept:
            raise nothing_left(str(self.path), self.read, self.first[0].sentence(self.unit))

    @property
    def kept(self) -> int:
        """Good rows so far."""
        return self.read - self.rejected

    def report(self) -> ReadReport:
        """The outcome so far, with the first rejections alone."""
        return ReadReport(str(self.path), self.read, self.kept, tuple(self.first), self.roles, self.guessed, self.unit)

    def _checked(self, table: Table) -> Piece:
        refuse_nested(table, self.roles)
        faults: dict[int, Rejection] = {}
        sides, labels, outside = check_rows(table, self.roles, self.limits, faults)
        column = self.roles.class_label
        if column is not None:
            reject_classes(table.columns[column], table.line, column, faults, numbered=self._numbered)
        self._count(table, faults, outside)
        chosen = {role: getattr(self.roles, role) for role in PLAIN_ROLES}
        cells = {role: table.columns[name] for role, name in chosen.items() if name is not None}
        if faults:
            kept = [row for row in range(len(table)) if row not in faults]
            sides = [[side[row] for row in kept] for side in sides]
            cells = {role: [column[row] for row in kept] for role, column in cells.items()}
            labels = None if labels is None else labels[kept]
        return Piece(sides, labels, {role: [cell.strip() for cell in column] for role, column in cells.items()})

    def _count(self, table: Table, faults: dict[int, Rejection], outside: list[float]) -> None:
        self.read += len(table) + len(table.rejected)
        self.rejected += len(table.rejected) + len(faults)
        if len(self.first) < SHOWN and (faults or table.rejected):
            found = sorted([*table.rejected, *faults.values()], key=lambda rejection: rejection.line)
            self.first += found[: SHOWN - len(self.first)]
        self._shaped += len(table)
        self._outside += len(outside)
        self._reach = [min([*self._reach, *outside]), max([*self._reach, *outside])] if outside else self._reach

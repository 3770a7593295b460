"""The rows that a plan over Parquet files is made of: the same rows, in the same numbers, as reading them whole gives.

Nothing here knows Ray: pieces of files in, Arrow tables out.
"""

# N rows kept of a piece

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from bsc_core.config import Columns, DataConfig
from bsc_core.data.columns import as_names
from bsc_core.data.mapping import EXAMPLE_CELLS, choose_columns
from bsc_core.data.places import check_path
from bsc_core.data.tables import Table
from bsc_core.errors import ColumnError, ConfigError, FileFormatError, PathError

READ_ROWS = 32_768
VECTOR = "vector"
"""The column of vectors, one for the grouped side of each row."""
TEXT_ROLES = ("query", "document", "negative")
KEY_ROLES = ("query_id", "document_id")


@dataclass(frozen=True)
class Piece:
    """One row group of a Parquet file. first: the number of its first kept row."""

    path: str
    row_group: int
    rows: int
    first: int = 0


@dataclass(frozen=True)
class RowSource:
    """Which rows are kept, and what of them.

    A row is kept when its texts are not blank, its label is a number inside the scale, and its split is the training
    split; with `positives_only` also only when the label is above the threshold.
    """

    roles: Columns
    scale: tuple[float, float]
    threshold: float
    split: str
    positives_only: bool
    with_vectors: bool

    @property
    def columns(self) -> dict[str, str]:
        """The column of each role in the tables that `tables` yields, which have the roles' own names."""
        told = {role: role for role in (*TEXT_ROLES, *KEY_ROLES) if getattr(self.roles, role) is not None}
        return told | ({"label": "label"} if self.roles.label is not None else {})

    def tables(self, piece: Piece, *, vectors: bool = False) -> Iterator[pyarrow.Table]:
        """The kept rows of a piece with their numbers, some thousands at a time.

        Columns: row (int64), then those of `columns`, and `vector` where it is wanted.
        """
        first = piece.first
        for table in self._read(piece, vectors):
            kept, _ = self._kept(table)
            chosen = table.filter(kept)
            rows = pyarrow.array(np.arange(first, first + chosen.num_rows, dtype=np.int64))
            first += chosen.num_rows
            yield self._renamed(chosen, rows, vectors)

    def count(self, piece: Piece) -> dict[str, int]:
        """How many rows of a piece are kept, and how many have a label outside the scale."""
        counts = {"kept": 0, "outside": 0}
        for table in self._read(piece, False):
            kept, outside = self._kept(table)
            counts["kept"] += int(kept.sum())
            counts["outside"] += outside
        return counts

    def _read(self, piece: Piece, vectors: bool) -> Iterator[pyarrow.Table]:
        named = [self.roles.label, self.roles.split, VECTOR if vectors else None]
        named += [name for role in (*TEXT_ROLES, *KEY_ROLES) for name in as_names(getattr(self.roles, role) or ())]
        wanted = list(dict.fromkeys(name for name in named if name is not None))
        try:
            with pyarrow.parquet.ParquetFile(piece.path) as file:
                for batch in file.iter_batches(READ_ROWS, row_groups=[piece.row_group], columns=wanted):
                    yield pyarrow.Table.from_batches([batch])
        except (pyarrow.ArrowException, OSError) as error:
            raise FileFormatError(f"{piece.path}: the Parquet file cannot be read ({error}); write it again") from None

    def _kept(self, table: pyarrow.Table) -> tuple[NDArray[np.bool_], int]:
        kept = np.ones(table.num_rows, dtype=bool)
        for role in TEXT_ROLES:
            if getattr(self.roles, role) is not None:
                blank = pyarrow.compute.equal(pyarrow.compute.utf8_trim_whitespace(_texts(table, self.roles, role)), "")
                kept &= ~blank.to_numpy(zero_copy_only=False)
        outside = 0
        if self.roles.label is not None:
            labels, (low, high) = _numbers(table[self.roles.label]), self.scale
            inside = (labels >= low) & (labels <= high)  # false for nan
            outside = int((~inside & ~np.isnan(labels)).sum())
            kept &= inside
            if self.positives_only:
                scaled = ((labels - low) / (high - low)).astype(np.float32)
                kept &= scaled > np.float32(self.threshold)
        if self.roles.split is not None:
            names = pyarrow.compute.utf8_trim_whitespace(_strings(table[self.roles.split]))
            kept &= pyarrow.compute.equal(names, self.split).to_numpy(zero_copy_only=False)
        return kept, outside

    def _renamed(self, table: pyarrow.Table, rows: pyarrow.Array, vectors: bool) -> pyarrow.Table:
        columns: dict[str, Any] = {"row": rows}
        for role in self.columns:
            if role == "label":
                columns[role] = pyarrow.array(_numbers(table[self.roles.label]))
            elif role in TEXT_ROLES:
                columns[role] = _texts(table, self.roles, role)
            else:
                columns[role] = pyarrow.compute.utf8_trim_whitespace(_strings(table[getattr(self.roles, role)]))
        if vectors:
            columns[VECTOR] = table[VECTOR].combine_chunks()
        return pyarrow.table(columns)


def parquet_pieces(paths: Sequence[str]) -> list[Piece]:
    """The row groups of Parquet files, in order; a folder stands for its .parquet files in the order of their names.

    Raises PathError for a path that is missing or a folder without any, FileFormatError for another file.
    """
    pieces = []
    for file in _files(paths):
        try:
            told = pyarrow.parquet.read_metadata(file)
        except (pyarrow.ArrowException, OSError):
            raise FileFormatError(
                f"{file}: not a whole Parquet file; `bsc convert` writes a table of another format as Parquet"
            ) from None
        pieces += [Piece(str(file), group, told.row_group(group).num_rows) for group in range(told.num_row_groups)]
    return pieces


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for path in paths:
        resolved = check_path(path)
        found = sorted(resolved.glob("*.parquet")) if resolved.is_dir() else [resolved]
        if not found:
            raise PathError(f"{path}: a folder without a .parquet file; give one that holds the training pairs")
        yield from found


def row_source(config: DataConfig, pieces: Sequence[Piece], *, positives_only: bool) -> RowSource:
    """What is read of the files, from the names and the first rows of the first one.

    Raises ColumnError when a column is missing from one of the files, ConfigError for settings that need the rows of a
    whole file at once.
    """
    files = list(dict.fromkeys(piece.path for piece in pieces))
    with pyarrow.parquet.ParquetFile(files[0]) as file:
        names = file.schema_arrow.names
        head = next(file.iter_batches(EXAMPLE_CELLS), None)
    values = {name: [] if head is None else head.column(name).to_pylist() for name in names}
    nested = frozenset(name for name, column in values.items() if any(isinstance(cell, list | dict) for cell in column))
    cells = {name: [] if name in nested else [_cell(value) for value in column] for name, column in values.items()}
    lines = list(range(1, 1 if head is None else 1 + head.num_rows))
    table = Table(files[0], tuple(names), cells, lines, (), nested, "row")
    roles, _ = choose_columns(table, config.columns, Columns, _guess)
    if roles.class_label is not None:
        raise ConfigError("data.columns.class_label: shards hold no classes; leave it out, or train without shards")
    _require(files, roles)
    with_vectors = all(VECTOR in pyarrow.parquet.read_schema(file).names for file in files)
    return RowSource(
        roles, (config.label_min, config.label_max), config.threshold, config.train_split, positives_only, with_vectors
    )


def _guess(names: Sequence[str], examples: Any) -> Columns:
    from bsc_core.data.columns import guess_columns

    return guess_columns([name for name in names if name != VECTOR], examples)


def _require(files: Sequence[str], roles: Columns) -> None:
    for file in files[1:]:
        names = pyarrow.parquet.read_schema(file).names
        for role, given in roles.model_dump(exclude_none=True).items():
            for name in as_names(given):
                if name not in names:
                    raise ColumnError(f"{file}: there is no column {name!r} for {role}; write its files alike")


def _texts(table: pyarrow.Table, roles: Columns, role: str) -> pyarrow.Array:
    """The texts of a role; of several columns, their cells that are not blank joined by a space."""
    names = as_names(getattr(roles, role))
    if len(names) == 1:
        return _strings(table[names[0]])
    rows = zip(*(_strings(table[name]).to_pylist() for name in names), strict=True)
    return pyarrow.array([" ".join(cell for cell in cells if cell.strip()) for cells in rows], pyarrow.large_string())


def _strings(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        texts = column.cast(pyarrow.large_string()).combine_chunks()
    else:
        texts = pyarrow.array([_cell(value) for value in column.to_pylist()], pyarrow.large_string())
    return pyarrow.compute.fill_null(texts, "")


def _numbers(column: pyarrow.ChunkedArray) -> NDArray[np.float64]:
    """(rows,) the labels; nan where a cell is no number."""
    return np.fromiter((_number(value) for value in column.to_pylist()), dtype=np.float64, count=len(column))


def _number(value: Any) -> float:
    try:
        return float("nan") if value is None else float(value)
    except (TypeError, ValueError):
        return float("nan")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None or isinstance(value, list | dict | bytes) else str(value)

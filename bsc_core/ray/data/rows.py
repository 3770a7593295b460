"""Rows of Parquet files for a plan, read in pieces as Arrow tables, with the row numbers of `read_pairs`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from bsc_core.config import Columns, DataConfig
from bsc_core.data.io.limits import (
    Sizes,
    arrow_columns,
    check_arrow,
    check_parquet_footer,
    check_parquet_size,
    check_parquet_vectors,
    nested_parquet_columns,
)
from bsc_core.data.io.tables import Table, cells_of
from bsc_core.data.io.validation import EXAMPLE_CELLS, map_columns
from bsc_core.data.schema.columns import as_names, guess_columns
from bsc_core.errors import ColumnError, ConfigError, FileFormatError, PathError
from bsc_core.files import check_regular
from bsc_core.paths import check_path
from bsc_core.types import Mask

READ_ROWS = 32_768
VECTOR = "vector"
"""Column with the vector of each row's grouped side."""
TEXT_ROLES = ("query", "document", "negative")
KEY_ROLES = ("query_id", "document_id")
ROLES = (*TEXT_ROLES, *KEY_ROLES, "label", "split")


@dataclass(frozen=True)
class Piece:
    """One row group of a Parquet file; `first` is the number of its first usable row."""

    path: str
    row_group: int
    rows: int
    first: int = 0


@dataclass(frozen=True)
class RowSource:
    """Selection of usable rows and their columns.

    A row is usable if its texts are not blank, its label is a number inside the scale, and its split is the training
    split; with `positives_only`, its label must also be above the threshold.
    """

    roles: Columns
    scale: tuple[float, float]
    threshold: float
    split: str
    positives_only: bool
    with_vectors: bool

    @property
    def columns(self) -> dict[str, str]:
        """Column of each role in the tables that `tables` yields, named like the role."""
        return {role: role for role in (*TEXT_ROLES, *KEY_ROLES, "label") if getattr(self.roles, role) is not None}

    def tables(self, piece: Piece, *, vectors: bool = False) -> Iterator[pyarrow.Table]:
        """Yield tables of the usable rows of a piece: row number, the columns of `columns`, and optionally `vector`."""
        first = piece.first
        for table in self._read(piece, vectors):
            usable, _ = self._usable(table)
            selected = table.filter(usable).select([*self.columns, *([VECTOR] if vectors else [])])
            rows = pyarrow.array(np.arange(first, first + selected.num_rows, dtype=np.int64))
            first += selected.num_rows
            yield selected.add_column(0, "row", rows)

    def count(self, piece: Piece) -> dict[str, int]:
        """Count the usable rows of a piece (`usable`) and the labels outside the scale (`outside`)."""
        counts = {"usable": 0, "outside": 0}
        for table in self._read(piece, False):
            usable, outside = self._usable(table)
            counts["usable"] += int(usable.sum())
            counts["outside"] += outside
        return counts

    def _read(self, piece: Piece, vectors: bool) -> Iterator[pyarrow.Table]:
        """Yield tables with a column for each role."""
        names = {role: as_names(given) for role, given in self.roles.model_dump(exclude_none=True).items()}
        roles = [role for role in ROLES if role in names]
        columns = list({name for role in roles for name in names[role]})
        try:
            with pyarrow.parquet.ParquetFile(piece.path) as file:
                columns += [VECTOR] * vectors
                for batch in file.iter_batches(READ_ROWS, row_groups=[piece.row_group], columns=columns):
                    check_arrow(batch, piece.path)
                    by_role = {role: _of_role(role, [batch[name] for name in names[role]]) for role in roles}
                    yield pyarrow.table(by_role | ({VECTOR: batch[VECTOR]} if vectors else {}))
        except (pyarrow.ArrowException, OSError) as error:
            raise FileFormatError(f"{piece.path}: the Parquet file cannot be read ({error}); write it again") from None

    def _usable(self, table: pyarrow.Table) -> tuple[Mask, int]:
        """Return the mask of usable rows, and the number of labels outside the scale."""
        usable = np.ones(table.num_rows, dtype=bool)
        for role in TEXT_ROLES:
            if role in table.column_names:
                blank = pyarrow.compute.equal(pyarrow.compute.utf8_trim_whitespace(table[role]), "")
                usable &= ~blank.to_numpy()
        outside = 0
        if "label" in table.column_names:
            labels, (low, high) = table["label"].to_numpy(), self.scale
            inside = (labels >= low) & (labels <= high)  # false for nan
            outside = int((~inside & ~np.isnan(labels)).sum())
            usable &= inside
            if self.positives_only:
                scaled = ((labels - low) / (high - low)).astype(np.float32)
                usable &= scaled > np.float32(self.threshold)
        if "split" in table.column_names:
            usable &= pyarrow.compute.equal(table["split"], self.split).to_numpy()
        return usable, outside


def parquet_pieces(path: str) -> list[Piece]:
    """List the row groups of a Parquet file, or of the .parquet files of a folder in the order of their names.

    Raises:
        PathError: The path is missing, or a folder without such files.
        FileFormatError: The file is of another format.
    """
    resolved = check_path(path)
    files = sorted(resolved.glob("*.parquet")) if resolved.is_dir() else [resolved]
    if not files:
        raise PathError(f"{path}: a folder without a .parquet file; give one that contains the training pairs")
    pieces = []
    for file in files:
        try:
            check_regular(check_path(file), file.stat().st_size)
            check_parquet_footer(file, str(file))
            metadata = pyarrow.parquet.read_metadata(file)
        except (pyarrow.ArrowException, OSError, ValueError):
            raise FileFormatError(
                f"{file}: not a complete Parquet file; `bsc convert` writes a table of another format as Parquet"
            ) from None
        groups = range(metadata.num_row_groups)
        pieces += [Piece(str(file), group, metadata.row_group(group).num_rows) for group in groups]
    return pieces


def row_source(config: DataConfig, pieces: Sequence[Piece], *, positives_only: bool) -> RowSource:
    """Choose the columns from the names and first rows of the first file.

    Raises:
        ColumnError: A file lacks a column.
        ConfigError: A setting needs all rows at once.
        FileFormatError: The columns are far larger than the files.
    """
    files, sizes = list(dict.fromkeys(piece.path for piece in pieces)), Sizes()
    names = pyarrow.parquet.read_schema(files[0]).names
    check_parquet_size(Path(files[0]), names, files[0], sizes)
    with pyarrow.parquet.ParquetFile(files[0]) as file:
        nested = nested_parquet_columns(file.schema_arrow)
        head = next(file.iter_batches(EXAMPLE_CELLS, columns=[name for name in names if name not in nested]), None)
    found = {} if head is None else arrow_columns(head, files[0])
    values = {name: found.get(name, []) for name in names}
    lines = list(range(1, 1 if head is None else 1 + head.num_rows))
    cells = cells_of(values) | {name: [""] * len(lines) for name in nested}
    table = Table(files[0], tuple(names), cells, lines, (), nested, "row")
    roles, _ = map_columns(
        table,
        config.columns,
        Columns,
        lambda names, examples: guess_columns([name for name in names if name != VECTOR], examples),
    )
    if roles.class_label is not None:
        raise ConfigError(
            "data.columns.class_label is set; shards have no classes, so leave it out or train without shards"
        )
    required = {name: role for role, given in roles.model_dump(exclude_none=True).items() for name in as_names(given)}
    with_vectors = True
    for file in files:
        schema = pyarrow.parquet.read_schema(file)
        with_vectors &= VECTOR in schema.names and _is_vector(schema.field(VECTOR).type)
        for name, role in required.items():
            if name not in schema.names:
                raise ColumnError(f"{file}: there is no column {name!r} for {role}; all files need the same columns")
            if name in nested_parquet_columns(schema):
                raise ColumnError(f"{file}: column {name!r} for {role} has lists, objects or bytes; give one of texts")
        if file != files[0]:
            check_parquet_size(Path(file), required, file, sizes)
    for file in files if with_vectors else ():
        check_parquet_vectors(Path(file), VECTOR, file)
    return RowSource(
        roles, (config.label_min, config.label_max), config.threshold, config.train_split, positives_only, with_vectors
    )


def _is_vector(kind: pyarrow.DataType) -> bool:
    """Return whether a type is a list of floating-point numbers."""
    types = pyarrow.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and bool(types.is_floating(kind.value_type))


def _of_role(role: str, columns: Sequence[pyarrow.Array]) -> pyarrow.Array:
    """Return labels as numbers, NaN for a cell that is none; other cells as text, joined by a space, keys trimmed."""
    if role == "label":
        return pyarrow.array([_number(value) for value in columns[0].to_pylist()], pyarrow.float64())
    texts = [_strings(column) for column in columns]
    if len(texts) > 1:
        rows = zip(*(column.to_pylist() for column in texts), strict=True)
        return pyarrow.array(
            [" ".join(cell for cell in cells if cell.strip()) for cells in rows], pyarrow.large_string()
        )
    return texts[0] if role in TEXT_ROLES else pyarrow.compute.utf8_trim_whitespace(texts[0])


def _strings(column: pyarrow.Array) -> pyarrow.Array:
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        return pyarrow.compute.fill_null(column.cast(pyarrow.large_string()), "")
    return pyarrow.array(cells_of({"": column.to_pylist()})[""], pyarrow.large_string())


def _number(value: Any) -> float:
    try:
        return float("nan") if value is None else float(value)
    except (TypeError, ValueError):
        return float("nan")

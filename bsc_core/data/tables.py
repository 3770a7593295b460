"""A file as named columns of strings, with the line of each row; nothing is guessed, and `null` or `NA` stay texts."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bsc_core.data.formats import decode, file_kind, read_bytes, refuse_other_format
from bsc_core.data.hub import is_data_set, read_data_set
from bsc_core.data.lines import checked_names, delimited_rows, json_cells, json_rows, nested_columns, no_objects
from bsc_core.data.reports import Rejection
from bsc_core.data.shards import is_shards, open_shards
from bsc_core.errors import FileFormatError

DELIMITERS = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True)
class Table:
    """The rows of a file that have the right shape.

    columns: for each name its cells, a missing one is ""; line: where each row starts; rejected: rows of a wrong shape;
    nested: columns that hold lists, objects or bytes, whose cells are "" here.
    """

    source: str
    names: tuple[str, ...]
    columns: dict[str, list[str]]
    line: list[int]
    rejected: tuple[Rejection, ...] = ()
    nested: frozenset[str] = frozenset()
    unit: Literal["line", "row"] = "line"

    def __len__(self) -> int:
        return len(self.line)

    def examples(self, count: int = 5) -> dict[str, list[str]]:
        """The first cells of each column that are not empty."""
        return {name: list(_first_filled(cells, count)) for name, cells in self.columns.items()}


def _first_filled(cells: Sequence[str], count: int) -> Iterator[str]:
    filled = (cell for cell in cells if cell.strip())
    for _, cell in zip(range(count), filled, strict=False):
        yield cell


def read_table(path: Path | str) -> Table:
    """Read a CSV, TSV, JSONL (each also .gz) or Parquet file, a folder of shards, or a data set of `datasets`.

    A data set is a folder that `save_to_disk` wrote, or `hf://owner/name` on the hub. Raises PathError, or
    FileFormatError when the file as a whole cannot be used: empty, without rows, not UTF-8, of another format, or with
    unmatched quotation marks.
    """
    if is_data_set(path):
        return _rows_of_values(str(path), read_data_set(path))
    if is_shards(path):
        return _read_shards(path)
    raw = read_bytes(path)
    kind = file_kind(Path(path))
    if kind == "parquet":
        table = _parse_parquet(raw, path)
    elif kind == "jsonl":
        table = _parse_json_lines(decode(raw, path, kind), str(path))
    else:
        table = _parse_delimited(decode(raw, path, kind), str(path), DELIMITERS[kind])
    if not table.line and not table.rejected:
        raise FileFormatError(f"{path}: there is a header but no row below it; add rows")
    return table


def _parse_delimited(text: str, source: str, delimiter: str) -> Table:
    names, found = delimited_rows(io.StringIO(text, newline=""), source, delimiter)
    rows: list[list[str]] = []
    lines: list[int] = []
    rejected: list[Rejection] = []
    for row in found:
        if isinstance(row, Rejection):
            rejected.append(row)
        else:
            lines.append(row[0])
            rows.append(row[1])
    cells = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return Table(source, names, dict(zip(names, cells, strict=True)), lines, tuple(rejected))


def _parse_json_lines(text: str, source: str) -> Table:
    rows = list(json_rows(text.split("\n")))  # not splitlines: JSON strings may hold U+2028
    objects = [row[1] for row in rows if not isinstance(row, Rejection)]
    if not objects:
        raise no_objects(source)
    names = tuple({name: None for value in objects for name in value})
    values = {name: [value.get(name) for value in objects] for name in names}
    lines = [row[0] for row in rows if not isinstance(row, Rejection)]
    rejected = tuple(row for row in rows if isinstance(row, Rejection))
    return Table(source, names, json_cells(values), lines, rejected, nested_columns(values))


def _parse_parquet(raw: bytes, path: Path | str) -> Table:
    import pyarrow
    import pyarrow.parquet

    refuse_other_format(raw, path, "parquet")
    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw)).read()
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileFormatError(f"{path}: the Parquet file cannot be read ({reason}); write it again") from None
    names = checked_names([str(name) for name in table.column_names], str(path))
    values = {name: column.to_pylist() for name, column in zip(names, table.columns, strict=True)}
    lines = list(range(1, table.num_rows + 1))
    return Table(str(path), names, json_cells(values), lines, (), nested_columns(values), "row")


def _read_shards(path: Path | str) -> Table:
    """The rows of a folder of shards, in the order of its plan."""
    pieces = [batch.to_pydict() for batch in open_shards(path).batches()]
    names = tuple(pieces[0]) if pieces else ()
    return _rows_of_values(str(path), {name: [value for piece in pieces for value in piece[name]] for name in names})


def _rows_of_values(source: str, values: dict[str, list[Any]]) -> Table:
    rows = len(next(iter(values.values()), ()))
    if not rows:
        raise FileFormatError(f"{source}: it has no rows; choose another split or data set")
    names = checked_names(list(values), source)
    return Table(source, names, json_cells(values), list(range(1, rows + 1)), (), nested_columns(values), "row")

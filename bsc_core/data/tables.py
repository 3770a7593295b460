"""A file as named columns of strings, with the line of each row; nothing is guessed, and `null` or `NA` stay texts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bsc_core.data.formats import decode, file_kind, read_bytes, refuse_other_format
from bsc_core.data.reports import Rejection
from bsc_core.errors import FileFormatError

DELIMITERS = {"csv": ",", "tsv": "\t"}
LONGEST_FIELD = 2**31 - 1
SEPARATOR_WORDS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


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
    """Read a CSV, TSV, JSONL (each also .gz) or Parquet file.

    Raises PathError, or FileFormatError when the file as a whole cannot be used: empty, without rows, not UTF-8,
    of another format, or with unmatched quotation marks.
    """
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
    csv.field_size_limit(LONGEST_FIELD)  # a long document is no fault
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start, names = 1, None
    rows: list[list[str]] = []
    lines: list[int] = []
    rejected: list[Rejection] = []
    try:
        for fields in reader:
            if names is None:
                names = _header(fields, source, delimiter) if fields else None
            elif len(fields) == len(names):
                rows.append(fields)
                lines.append(start)
            elif fields:
                rejected.append(Rejection(start, "", f"has {len(fields)} fields where the header has {len(names)}"))
            start = reader.line_num + 1
    except csv.Error as error:
        raise FileFormatError(
            f"{source}: the row that starts at line {start} has unmatched quotation marks ({error}); "
            'put a field that begins with " in quotes and write "" for each " in it'
        ) from None
    names = names or ()
    cells = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return Table(source, names, dict(zip(names, cells, strict=True)), lines, tuple(rejected))


def _header(fields: list[str], source: str, delimiter: str) -> tuple[str, ...]:
    if "\x00" in "".join(fields):
        raise FileFormatError(
            f"{source}: the first line holds zero bytes, so this is no UTF-8 text; save the file as UTF-8"
        )
    if len(fields) == 1:
        for other, word in SEPARATOR_WORDS.items():
            if other != delimiter and other in fields[0]:
                wanted = SEPARATOR_WORDS[delimiter]
                raise FileFormatError(
                    f"{source}: the header has {word} but no {wanted}; "
                    f"save the file with {wanted}, or use .csv for commas and .tsv for tabs"
                )
    return _checked_names([name.strip() or f"column {number}" for number, name in enumerate(fields, 1)], source)


def _checked_names(names: list[str], source: str) -> tuple[str, ...]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FileFormatError(f"{source}: the header names {', '.join(repeated)} more than once; rename one of them")
    return tuple(names)


def _parse_json_lines(text: str, source: str) -> Table:
    objects: list[dict[str, Any]] = []
    lines: list[int] = []
    rejected: list[Rejection] = []
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: JSON strings may hold U+2028
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            objects.append(value)
            lines.append(number)
        else:
            rejected.append(Rejection(number, "", "is not a JSON object"))
    if not objects:
        raise FileFormatError(
            f'{source}: no line is a JSON object; write one object a line, such as {{"query": "..."}}'
        )
    names = tuple({name: None for value in objects for name in value})
    values = {name: [value.get(name) for value in objects] for name in names}
    return Table(source, names, _cells(values), lines, tuple(rejected), _nested(values))


def _parse_parquet(raw: bytes, path: Path | str) -> Table:
    import pyarrow
    import pyarrow.parquet

    refuse_other_format(raw, path, "parquet")
    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw)).read()
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileFormatError(f"{path}: the Parquet file cannot be read ({reason}); write it again") from None
    names = _checked_names([str(name) for name in table.column_names], str(path))
    values = {name: column.to_pylist() for name, column in zip(names, table.columns, strict=True)}
    lines = list(range(1, table.num_rows + 1))
    return Table(str(path), names, _cells(values), lines, (), _nested(values), "row")


def _cells(values: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {name: [_cell(value) for value in column] for name, column in values.items()}


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "1" if value else "0"  # so that a label may be true or false
    return "" if value is None or isinstance(value, list | dict | bytes | tuple) else str(value)


def _nested(values: dict[str, list[Any]]) -> frozenset[str]:
    return frozenset(
        name for name, column in values.items() if any(isinstance(cell, list | dict | bytes | tuple) for cell in column)
    )

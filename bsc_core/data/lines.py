"""Rows of CSV, TSV and JSONL text, one after the other, so that a file may be larger than memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any

from bsc_core.data.reports import Rejection
from bsc_core.errors import FileFormatError

LONGEST_FIELD = 2**31 - 1
SEPARATOR_WORDS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


def delimited_rows(
    lines: Iterable[str], source: str, delimiter: str
) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]] | Rejection]]:
    """The names of the header, () in an empty text, and each row with the line it starts at, or why it is none.

    lines: with their line ends. Raises FileFormatError for a header that cannot be used, and for unmatched quotation
    marks when the rows reach them.
    """
    csv.field_size_limit(LONGEST_FIELD)  # a long document is no fault
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    header: list[str] = []
    try:
        while not header and (fields := next(reader, None)) is not None:
            start, header = reader.line_num + 1, fields
    except csv.Error as error:
        raise _unmatched(source, start, error) from None
    names = _header(header, source, delimiter) if header else ()
    return names, _rows(reader, source, len(names))


def json_rows(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]] | Rejection]:
    """Each JSON object with its line, or why a line is none. Blank lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield (number, value) if isinstance(value, dict) else Rejection(number, "", "is not a JSON object")


def no_objects(source: str) -> FileFormatError:
    """What to raise when no line is a JSON object."""
    return FileFormatError(f'{source}: no line is a JSON object; write one object a line, such as {{"query": "..."}}')


def checked_names(names: list[str], source: str) -> tuple[str, ...]:
    """The names of columns. Raises FileFormatError when one stands there twice."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FileFormatError(f"{source}: the header names {', '.join(repeated)} more than once; rename one of them")
    return tuple(names)


def json_cells(values: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Columns of JSON or Parquet values as cells; a missing or nested value is ""."""
    return {name: [_cell(value) for value in column] for name, column in values.items()}


def nested_columns(values: dict[str, list[Any]]) -> frozenset[str]:
    """Names of the columns that hold lists, objects or bytes."""
    return frozenset(
        name for name, column in values.items() if any(isinstance(cell, list | dict | bytes | tuple) for cell in column)
    )


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "1" if value else "0"  # so that a label may be true or false
    return "" if value is None or isinstance(value, list | dict | bytes | tuple) else str(value)


def _rows(reader: Any, source: str, width: int) -> Iterator[tuple[int, list[str]] | Rejection]:
    start = reader.line_num + 1
    try:
        for fields in reader:
            if len(fields) == width:
                yield start, fields
            elif fields:
                yield Rejection(start, "", f"has {len(fields)} fields where the header has {width}")
            start = reader.line_num + 1
    except csv.Error as error:
        raise _unmatched(source, start, error) from None


def _unmatched(source: str, start: int, error: csv.Error) -> FileFormatError:
    return FileFormatError(
        f"{source}: the row that starts at line {start} has unmatched quotation marks ({error}); "
        'put a field that begins with " in quotes and write "" for each " in it'
    )


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
    return checked_names([name.strip() or f"column {number}" for number, name in enumerate(fields, 1)], source)

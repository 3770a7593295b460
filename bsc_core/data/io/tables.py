"""Tables of text cells, read from any source at once or in chunks; `null` and `NA` stay texts."""

# R rows of a chunk

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bsc_core.data.io.gzip_stream import decompressed
from bsc_core.data.io.hub_dataset import open_hub_dataset
from bsc_core.data.io.limits import (
    UNCHECKED_CELLS,
    Sizes,
    arrow_columns,
    check_cells,
    check_column_count,
    check_parquet_footer,
    check_parquet_size,
    nested_parquet_columns,
)
from bsc_core.data.io.saved_dataset import SPLIT, class_name, open_saved, saved_batches, schema_classes
from bsc_core.data.io.shards import open_shards
from bsc_core.data.io.sources import Source, check_signature, check_text_start, open_source
from bsc_core.data.read_report import Rejection
from bsc_core.errors import DataError, FileFormatError, PathError
from bsc_core.files import error_reason
from bsc_core.paths import check_path

if TYPE_CHECKING:
    import pyarrow

CHUNK_ROWS = 65_536
MIN_ROW_CELLS = 2
"""Cells that a row counts as at least: its line number and its place in the lists need memory as well."""
LINES_PER_CHECK = 4096
"""Lines inside of rows after which their number is checked again."""
ROWS_PER_CHECK = 256
"""Rows after which the number of cells is checked again."""
MISSING_CELLS = 8
MAX_LINE_MB = "BSC_MAX_LINE_MB"
"""Environment variable: maximum size of a line, and of a field over several lines, in megabytes."""
DEFAULT_LINE_MB = 10
MAX_CHUNK_CELLS = 2_000_000  # of the rows of a delimited file that are divided at a time
DELIMITERS = {"csv": ",", "tsv": "\t"}
SEPARATOR_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
HEAD_BYTES = 4096
MAX_REJECTED = 100_000  # rows of a file, if they are most of its rows
MAX_BLANK = 1_000_000  # empty lines of a file, if they are most of its lines
MAX_OPENED = 1_000_000  # lists and objects in a line of JSON
MAX_DIGITS = 100  # of a whole number in JSON; the time of reading it grows with their square
SURROGATE = "\\ud"  # start of the escape sequence of a surrogate
GZIP_ERRORS = (EOFError, zlib.error)
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class Table:
    """Rows of a source as columns of text.

    Attributes:
        source: Name of the source, for messages.
        names: Column names.
        columns: The cells of each column; a missing cell is "".
        line: Position of each row in the source.
        rejected: Rows of the wrong shape.
        nested: Columns that contain lists, objects or bytes, whose cells are "" here.
        unit: Unit of `line`.
        roles: The column of each role where the source itself names them, as shards do.
        not_read: Columns of the file so far that are not in `names`.
        named: Columns of classes whose names the file gives.
        separator: Name of the separator of the columns, where the ending of the file stands for another one.
    """

    source: str
    names: tuple[str, ...]
    columns: dict[str, list[str]]
    line: list[int]
    rejected: tuple[Rejection, ...] = ()
    nested: frozenset[str] = frozenset()
    unit: Literal["line", "row"] = "line"
    roles: Mapping[str, str] | None = None
    not_read: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    separator: str = ""

    def __len__(self) -> int:
        return len(self.line)

    def examples(self, count: int = 5) -> dict[str, list[str]]:
        """Return the first non-empty cells of each column."""
        return {name: list(islice(filter(str.strip, cells), count)) for name, cells in self.columns.items()}


@dataclass(frozen=True)
class ReadProgress:
    """Progress of reading a source. done, total: bytes of a text file, rows of another source; rows: rows so far."""

    rows: int
    done: int
    total: int


OnProgress = Callable[[ReadProgress], object]


def read_table(path: Path | str | Source, *, sizes: Sizes | None = None) -> Table:
    """Read a CSV, TSV, JSONL (each also .gz) or Parquet file, a folder of shards, or a dataset of Hugging Face.

    Args:
        path: File, folder or dataset.
        sizes: Sizes of the files that are read together, to which this file is added.

    Raises:
        PathError: The path cannot be read.
        FileFormatError: The file is unusable: empty, without rows, not UTF-8, of another format, or with unmatched
            quotation marks.
    """
    return _concatenate(list(read_chunks(path, rows=sys.maxsize, sizes=sizes)))


def read_chunks(
    path: Path | str | Source,
    columns: Sequence[str] | None = None,
    *,
    rows: int | None = None,
    on_progress: OnProgress = lambda progress: None,
    sizes: Sizes | None = None,
) -> Iterator[Table]:
    """Yield the rows of `read_table` in tables of at most `rows` rows, with the same lines, rejections and errors.

    Args:
        path: File, folder or dataset, as in `read_table`.
        columns: Columns to read; None: all, for JSON lines those of the first chunk.
        rows: Maximum number of rows of a table; None: CHUNK_ROWS.
        on_progress: Called with the progress.
        sizes: As in `read_table`.
    """
    source, sizes = open_source(path), sizes or Sizes()
    rows = rows or CHUNK_ROWS
    if source.format == "hub":
        yield from _hub_chunks(source, columns, rows, on_progress, sizes)
    elif source.format == "saved":
        splits = open_saved(source.name, source.path)
        total = sum(split.rows for split in splits)
        yield from _value_chunks(source, saved_batches(source.name, splits, rows, sizes), total, columns, on_progress)
    elif source.format == "shards":
        shards = open_shards(source.name)
        batches = (arrow_columns(batch, source.name) for batch in shards.batches(rows=rows, sizes=sizes))
        for table in _value_chunks(source, batches, len(shards), columns, on_progress):
            yield replace(table, roles=shards.columns)
    elif source.format == "parquet":
        yield from _parquet_chunks(source, columns, rows, on_progress, sizes)
    else:
        yield from _text_chunks(source, columns, rows, on_progress, sizes)


def check_complete(table: Table) -> None:
    """Raise DataError if a row of a table was rejected."""
    if table.rejected:
        raise DataError(f"{table.source}: {table.rejected[0].sentence(table.unit)}; correct this row")


def read_text(path: Path | str) -> str:
    """Read a plain text file as UTF-8.

    Raises:
        PathError: The path cannot be read.
        FileFormatError: The file is empty or unusable.
    """
    with _open_text(str(path), check_path(path), "text", gzipped=False, sizes=Sizes()) as (_, text):
        content = text.read()
    if not content.strip():
        raise FileFormatError(f"{path}: the file is empty; give one with text")
    return content


def _concatenate(tables: list[Table]) -> Table:
    first, *others = tables
    if not others:
        return first
    names = tuple(dict.fromkeys(name for table in tables for name in table.names))
    return replace(
        first,
        names=names,
        columns={
            name: [cell for table in tables for cell in table.columns.get(name, [""] * len(table))] for name in names
        },
        line=[line for table in tables for line in table.line],
        rejected=tuple(rejection for table in tables for rejection in table.rejected),
        nested=frozenset().union(*(table.nested for table in tables)),
    )


def _hub_chunks(
    source: Source, columns: Sequence[str] | None, rows: int, on_progress: OnProgress, sizes: Sizes
) -> Iterator[Table]:
    """Yield the rows of the files of a dataset; several splits get a column of split names."""
    splits = open_hub_dataset(source.name)
    several = len(splits) > 1
    total = sum(file.path.stat().st_size for split in splits for file in split.files)
    done = lines = count = 0
    for split in splits:
        position = 0  # in the split
        for file in split.files:
            wanted = None if columns is None else [name for name in columns if not (several and name == SPLIT)]
            size, last = file.path.stat().st_size, 0

            def report(part: ReadProgress, count: int = count, done: int = done, size: int = size) -> None:
                on_progress(ReadProgress(count + part.rows, done + size * part.done // max(1, part.total), total))

            for read in read_chunks(file, wanted, rows=rows, on_progress=report, sizes=sizes):
                if several and columns is None and SPLIT in read.names:
                    raise DataError(
                        f"{source.name}: has several splits and also a column {SPLIT!r}; choose one split, as with "
                        "?split=train"
                    )
                last = max([last, *read.line[-1:], *(rejection.line for rejection in read.rejected)])
                table = _slice(read, split.start - position, None if split.stop is None else split.stop - position)
                position, count = position + len(read), count + len(table)
                cells = dict(table.columns)
                for name, names in split.class_names.items():
                    if name in cells and name not in table.named:
                        _check_class_names(cells[name], names, name, source.name)
                        cells[name] = [class_name(cell, names) for cell in cells[name]]
                cells |= {SPLIT: [split.name] * len(table)} if several else {}
                yield replace(
                    table,
                    source=source.name,
                    names=tuple(cells),
                    columns=cells,
                    line=[lines + line for line in table.line],
                    rejected=tuple(replace(one, line=lines + one.line) for one in table.rejected),
                )
                if split.stop is not None and position >= split.stop:
                    break
            lines, done = lines + last, done + size
            if split.stop is not None and position >= split.stop:
                break
    if not count:
        raise FileFormatError(f"{source.name}: it has no rows; choose another split or dataset")


def _slice(table: Table, start: int, stop: int | None) -> Table:
    """Return the rows from `start` to `stop`, which may lie before or after the table."""
    rows = slice(max(0, start), None if stop is None else max(0, stop))
    if rows == slice(0, None):
        return table
    columns = {name: cells[rows] for name, cells in table.columns.items()}
    return replace(table, columns=columns, line=table.line[rows])


def _text_chunks(
    source: Source, columns: Sequence[str] | None, rows: int, on_progress: OnProgress, sizes: Sizes
) -> Iterator[Table]:
    path = source.path
    sizes.start_file(source.path)
    read = _json_chunks if source.format == "jsonl" else _delimited_chunks
    with _open_text(source.name, path, source.format, gzipped=source.gzipped, sizes=sizes) as (raw, text):
        total, count = path.stat().st_size, 0
        for table in read(text, source, columns, rows, sizes):
            count += len(table) + len(table.rejected)
            on_progress(ReadProgress(count, raw.tell(), total))
            yield table


def _delimited_chunks(
    lines: Iterable[str], source: Source, columns: Sequence[str] | None, rows: int, sizes: Sizes
) -> Iterator[Table]:
    lines, delimiter = _with_delimiter(lines, DELIMITERS[source.format])
    parsed = _delimited_rows(lines, source, delimiter)
    separator = "" if delimiter == DELIMITERS[source.format] else SEPARATOR_NAMES[delimiter]
    names = next(parsed, None)
    if names is None:
        raise FileFormatError(f"{source.name}: the file is empty; it needs a header and at least one row")
    chosen = [number for number, name in enumerate(names) if columns is None or name in columns]
    rows = min(rows, max(1, MAX_CHUNK_CELLS // len(names)))
    empty = True
    for numbers, values, rejected in _chunks(_counted(parsed, lambda: len(chosen), source, sizes), rows):
        empty = False
        cells = {names[number]: [fields[number] for fields in values] for number in chosen}
        not_read = frozenset(names).difference(cells)
        yield Table(source.name, tuple(cells), cells, numbers, rejected, not_read=not_read, separator=separator)
    if empty:
        raise FileFormatError(f"{source.name}: it has no rows; add rows")


def _json_chunks(
    lines: Iterable[str], source: Source, columns: Sequence[str] | None, rows: int, sizes: Sizes
) -> Iterator[Table]:
    names = None if columns is None else tuple(columns)
    seen: set[str] = set()
    found = _json_rows(lines, source, seen)
    parsed = _counted(found, lambda: len(seen if names is None else names), source, sizes)
    empty = True
    for numbers, objects, rejected in _chunks(parsed, rows):
        empty = empty and not objects
        if names is None and objects:
            names = tuple({name: None for value in objects for name in value})
        values = {name: [value.get(name) for value in objects] for name in names or ()}
        not_read = frozenset(seen.difference(names or ()))
        nested = nested_columns(values)
        yield Table(source.name, names or (), cells_of(values), numbers, rejected, nested, not_read=not_read)
    if empty:
        raise FileFormatError(
            f"{source.name}: no line is a JSON object; write one object per line, with each key once, such as "
            '{"query": "..."}'
        )


def _check_class_names(cells: Iterable[str], names: Sequence[str], column: str, source: str) -> None:
    """Raise FileFormatError if a cell is the number of one class and the name of another one."""
    both = {name for number, name in enumerate(names) if name.isdecimal() and name != str(number)}
    if cell := min(both.intersection(cells), default=None):
        raise FileFormatError(
            f"{source}: {cell} in column {column!r} is the name of one class and the number of another; replace the "
            "numbers by texts such as 'class 1', in the names too"
        )


def _counted(rows: Iterator[Any], width: Callable[[], int], source: Source, sizes: Sizes) -> Iterator[Any]:
    """Yield the rows of a file, valid or not, while their cells, at least `width` in each, are not too many.

    Above UNCHECKED_CELLS, a cell that a JSON object lacks counts as MISSING_CELLS: it needs no space in the file.

    Raises:
        FileFormatError: There are too many cells, or most rows are rejected and these are many.
    """
    stored, count, rejected, given = source.path.stat().st_size, 0, 0, 0

    def check() -> None:
        cells = count * max(MIN_ROW_CELLS, width())
        missing = max(0, cells - given) if cells > UNCHECKED_CELLS else 0
        sizes.check_cells(cells + (MISSING_CELLS - 1) * missing, stored, source.name)

    for count, row in enumerate(rows, 1):
        given += width() if isinstance(row, Rejection) else len(row[1])
        if count % ROWS_PER_CHECK == 0:
            check()
        if isinstance(row, Rejection):
            rejected += 1
            if rejected > MAX_REJECTED and 2 * rejected > count:
                raise FileFormatError(
                    f"{source.name}: more than {MAX_REJECTED:,} rows cannot be used, most of the file; the last one is "
                    f"{row.sentence()}"
                )
        yield row
    check()


def _is_unicode(value: dict[str, Any]) -> bool:
    """Return whether no text of a JSON object has half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _chunks(rows: Iterator[Any], size: int) -> Iterator[tuple[list[int], list[Any], tuple[Rejection, ...]]]:
    """Yield the lines and values of the rows, and the rejections, of each chunk."""
    while chunk := list(islice(rows, size)):
        valid = [row for row in chunk if not isinstance(row, Rejection)]
        rejected = tuple(row for row in chunk if isinstance(row, Rejection))
        yield [line for line, _ in valid], [value for _, value in valid], rejected


def _parquet_chunks(
    source: Source, columns: Sequence[str] | None, rows: int, on_progress: OnProgress, sizes: Sizes
) -> Iterator[Table]:
    import pyarrow
    import pyarrow.parquet

    path = source.path
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(0, path.stat().st_size - 4))
        check_signature(head + file.read(4), source.name, "parquet")
    try:
        check_parquet_footer(path, source.name)
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            names = _check_names([str(name) for name in file.schema_arrow.names], source.name)
            chosen = [name for name in names if columns is None or name in columns]
            total = file.metadata.num_rows
            if not total:
                raise FileFormatError(f"{source.name}: it has no rows; add rows")
            check_parquet_size(path, chosen, source.name, sizes)
            nested = nested_parquet_columns(file.schema_arrow)
            read = [name for name in chosen if name not in nested]
            batches = file.iter_batches(min(rows, total), columns=read, use_threads=False)
            values = (_parquet_values(batch, chosen, source.name) for batch in batches)
            classes = schema_classes(file.schema_arrow)
            not_read, named = frozenset(names).difference(chosen), frozenset(classes).intersection(chosen)
            found = 0
            for table in _value_chunks(source, values, total, None, on_progress):
                found += len(table)
                cells = {name: [class_name(cell, classes[name]) for cell in table.columns[name]] for name in named}
                yield replace(table, columns=table.columns | cells, not_read=not_read, named=named)
            if found != total:  # pyarrow skips pages of other types, and reads others in their place
                raise FileFormatError(f"{source.name}: {found:,} of its {total:,} rows can be read; write it again")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{source.name}: the Parquet file cannot be read ({error_reason(error)}); write it again"
        ) from None


def _parquet_values(batch: pyarrow.RecordBatch, names: Sequence[str], source: str) -> dict[str, list[Any]]:
    """Return the values of each column; those of a nested column are not read, and empty tuples here."""
    values = arrow_columns(batch, source)
    return {name: values[name] if name in values else [()] * batch.num_rows for name in names}


def _value_chunks(
    source: Source,
    batches: Iterable[dict[str, list[Any]]],
    total: int,
    columns: Sequence[str] | None,
    on_progress: OnProgress,
) -> Iterator[Table]:
    """Yield tables of batches of values; rows are numbered from 1."""
    if not total:
        raise FileFormatError(f"{source.name}: it has no rows; choose another split or dataset")
    count = 0
    for batch in batches:
        size = len(next(iter(batch.values()), ()))
        names = _check_names(list(batch), source.name) if columns is None else [n for n in columns if n in batch]
        values = {name: batch[name] for name in names}
        lines = list(range(count + 1, count + size + 1))
        count += size
        on_progress(ReadProgress(count, count, total))
        not_read = frozenset(batch).difference(values)
        nested = nested_columns(values)
        yield Table(source.name, tuple(values), cells_of(values), lines, (), nested, "row", not_read=not_read)


def max_line() -> int:
    """Return the maximum number of bytes of a line, and of characters of a row over several lines."""
    text = os.environ.get(MAX_LINE_MB, "").strip() or str(DEFAULT_LINE_MB)
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size <= 2_000:
        raise FileFormatError(f"{MAX_LINE_MB} is {text!r}; give a number of megabytes, at most 2000")
    return int(size * 1_000_000)


class _CheckedStream(io.BufferedIOBase):
    """Bytes of a file; raises FileFormatError for a line above the limit or a decompression bomb."""

    def __init__(
        self, stream: io.BufferedIOBase, raw: io.BufferedReader, source: str, newline: str, sizes: Sizes
    ) -> None:
        """Wrap a stream.

        Args:
            stream: Uncompressed bytes.
            raw: The file that `stream` reads, compressed or not.
            source: Name of the file in error messages.
            newline: As in `open`: empty if carriage returns end lines too.
            sizes: Sizes of the files that are read together.
        """
        self.stream, self.raw, self.name, self.newline, self.sizes = stream, raw, source, newline, sizes
        self.limit, self.line, self.line_bytes, self.bytes = max_line(), 1, 0, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return b"".join(iter(lambda: self.read1(BUFFER_BYTES), b"")) if size is None or size < 0 else self.read1(size)

    def read1(self, size: int = -1, /) -> bytes:
        block = self.stream.read1(size)
        end = max(block.rfind(one) for one in ((b"\n",) if self.newline else (b"\n", b"\r")))
        self.line_bytes = self.line_bytes + len(block) if end < 0 else len(block) - end
        self.line += block.count(b"\n")
        self.bytes += len(block)
        if self.line_bytes > self.limit:
            raise FileFormatError(
                f"{self.name}: line {self.line} is longer than {self.limit:,} bytes; divide its text, or set "
                f"{MAX_LINE_MB} (megabytes)"
            )
        self.sizes.check_expansion(self.bytes, self.raw.tell(), self.name)
        return block


def _delimited_rows(lines: Iterable[str], file: Source, delimiter: str) -> Iterator[Any]:
    """Yield the names in the header, then each row with its first line, or its rejection; nothing for an empty text."""
    csv.field_size_limit(limit := max_line())
    source, of_row = file.name, list[str]()  # the lines of the present row
    reader = csv.reader(_recorded(lines, of_row, limit, file), delimiter=delimiter, strict=True)
    start = 1
    names: tuple[str, ...] = ()
    blank = 0
    all_quoted = True  # whether all rows so far begin with a quotation mark
    try:
        for fields in reader:
            all_quoted = all_quoted and (not fields or of_row[0].startswith('"'))
            if not fields or (not names and len(fields) == 1 and not fields[0].strip()):
                blank += 1
                _check_blank(blank, reader.line_num - blank, source)
            elif not names:
                names = _header(fields, source, delimiter)
                yield names
            elif len(of_row) > 1 and delimiter == "\t" and _is_unquoted(of_row, fields, len(names), all_quoted):
                raise csv.Error(f"the next one is in line {reader.line_num}")
            elif len(fields) == len(names):
                yield start, fields
            else:
                yield Rejection(start, "", f"has {len(fields)} fields where the header has {len(names)}")
            start = reader.line_num + 1
            of_row.clear()
    except csv.Error as error:
        if "limit" in str(error):
            raise FileFormatError(
                f"{source}: the row that starts at line {start} has more than {limit:,} characters; close its "
                f"quotation mark if one is missing, divide its text, or set {MAX_LINE_MB} (megabytes)"
            ) from None
        what = "every text and the header" if len(names) == 1 else 'a field that begins with "'
        raise FileFormatError(
            f"{source}: the row that starts at line {start} has unmatched quotation marks ({error}); "
            f'put {what} in quotes and write "" for each " in it'
        ) from None


def _with_delimiter(lines: Iterable[str], delimiter: str) -> tuple[Iterable[str], str]:
    """Return the lines and what separates their columns: for commas, semicolons if only these divide the header."""
    rest, blank, header = iter(lines), 0, ""
    if delimiter != DELIMITERS["csv"]:
        return rest, delimiter
    for header in rest:
        if header.strip() or blank > MAX_BLANK:
            break
        blank += 1
    else:
        return repeat("\n", blank), delimiter
    by_commas, by_semicolons = (_column_count(header, one) for one in (delimiter, ";"))
    return chain(repeat("\n", blank), [header], rest), ";" if by_commas == 1 < by_semicolons else delimiter


def _column_count(header: str, delimiter: str) -> int:
    """Return the number of columns of a header outside quotes; 0 if it is invalid."""
    try:
        return len(next(csv.reader([header], delimiter=delimiter), ()))
    except csv.Error:
        return 0


def _recorded(lines: Iterable[str], record: list[str], limit: int, file: Source) -> Iterator[str]:
    """Yield the lines, and append each one to a list before.

    Raises:
        csv.Error: The list, which the caller clears after each row, has more than `limit` characters.
        FileFormatError: Rows have too many lines after their first, which count as cells.
    """
    size = inside = 0
    for line in lines:
        size = len(line) + (size if record else 0)
        if record:
            inside += 1
            if inside % LINES_PER_CHECK == 0:
                check_cells(inside, file.path.stat().st_size, file.name)
        record.append(line)
        if size > limit:
            raise csv.Error("row larger than the limit")
        yield line


def _is_unquoted(lines: Sequence[str], fields: Sequence[str], width: int, all_quoted: bool) -> bool:
    """Return whether the lines of one row of a .tsv are probably several rows, in which quotation marks are text.

    So it is if at least two lines have all the fields of a row, and not all fields of the row are quoted. With a single
    column, any line has all the fields, and a row is quoted if all rows before are.
    """
    several = sum(line.count("\t") == width - 1 for line in lines) > 1
    quoted = "\t".join('"' + field.replace('"', '""') + '"' for field in fields)
    return several and not (all_quoted if width == 1 else "".join(lines).rstrip("\r\n") == quoted)


def _json_rows(lines: Iterable[str], source: Source, names: set[str]) -> Iterator[Any]:
    """Yield each JSON object with its line, or the rejection of a line; blank lines are skipped.

    names: Receives the names of all columns so far.

    The parts of lists and objects, also of rejected lines and of columns that are not used, count as cells, since
    reading them takes time.
    """
    blank = parts = width = 0
    nested: list[bool] = []  # of the objects in a line, also of the values of a key that is repeated
    repeated: list[bool] = []  # of the same objects: whether a key is repeated

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        nested.append(any(isinstance(value, list | dict) for _, value in pairs))
        repeated.append(len(value) < len(pairs))
        return value

    checked = json.JSONDecoder(parse_int=_whole_number, object_pairs_hook=build)  # slower
    for number, line in enumerate(lines, 1):
        if not line.strip():
            blank += 1
            _check_blank(blank, number - blank, source.name)
            continue
        nested.clear()
        repeated.clear()
        opened, colons = line.count("{") + line.count("["), line.count(":")
        is_plain = opened <= line.startswith("{") and colons == width  # with other keys, or a colon in a text
        try:  # nothing else runs while the decoder reads a line
            value: Any = None if opened > MAX_OPENED else (JSON if is_plain else checked).decode(line)
            if is_plain and isinstance(value, dict) and len(value) < colons:
                value = checked.decode(line)
        except (ValueError, RecursionError):
            value = None
        is_object = isinstance(value, dict)
        is_nested = is_object and any(nested)
        if is_nested or not is_object:
            parts += sum(map(line.count, ",[{"))
            check_cells(parts, source.path.stat().st_size, source.name)
        if not is_object:
            too_many = f"has more than {MAX_OPENED:,} lists and objects"
            yield Rejection(number, "", too_many if opened > MAX_OPENED else "is not a JSON object")
            continue
        if any(repeated):
            yield Rejection(number, "", "has a key more than once")
            continue
        width = len(value)
        if is_nested:  # lists and objects would need much memory
            value = {name: () if isinstance(cell, list | dict) else cell for name, cell in value.items()}
        if "\\" in line and SURROGATE in line.lower() and not _is_unicode(value):
            yield Rejection(number, "", "the text contains an unpaired surrogate, which is not Unicode")
            continue
        if not value.keys() <= names:
            names.update(value)
            check_column_count(len(names), source.name)
        yield number, value


def _check_blank(blank: int, rows: int, source: str) -> None:
    if blank > max(MAX_BLANK, rows):
        raise FileFormatError(f"{source}: more than {MAX_BLANK:,} lines are empty, most of the file; remove them")


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)


JSON = json.JSONDecoder(parse_int=_whole_number)


def _check_names(names: list[str], source: str) -> tuple[str, ...]:
    check_column_count(len(names), source)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FileFormatError(f"{source}: the header names {', '.join(repeated)} more than once; rename one of them")
    return tuple(names)


def cells_of(values: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Convert columns of JSON or Arrow values to text; a missing or nested value becomes ""."""
    return {name: [_cell(value) for value in column] for name, column in values.items()}


def nested_columns(values: dict[str, list[Any]]) -> frozenset[str]:
    """Return the names of columns that contain lists, objects or bytes."""
    return frozenset(
        name for name, column in values.items() if any(isinstance(cell, list | dict | bytes | tuple) for cell in column)
    )


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "1" if value else "0"  # so that a label may be true or false
    is_missing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return "" if is_missing or isinstance(value, list | dict | bytes | tuple) else str(value)


def _header(fields: list[str], source: str, delimiter: str) -> tuple[str, ...]:
    if "\x00" in "".join(fields):
        raise FileFormatError(f"{source}: the first line contains zero bytes and is not UTF-8; save the file as UTF-8")
    if len(fields) == 1:
        for other, name in SEPARATOR_NAMES.items():
            if other != delimiter and other in fields[0]:
                wanted = SEPARATOR_NAMES[delimiter]
                raise FileFormatError(
                    f"{source}: the header has {name} but no {wanted}; "
                    f"save the file with {wanted}, or use .csv for commas and .tsv for tabs"
                )
    return _check_names([name.strip() or f"column {number}" for number, name in enumerate(fields, 1)], source)


@contextmanager
def _open_text(
    name: str, path: Path, kind: str, *, gzipped: bool, sizes: Sizes
) -> Iterator[tuple[io.BufferedReader, io.TextIOWrapper]]:
    """Yield the raw file, for its position, and its text; convert the errors of reading."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PathError(f"{name}: not a regular file; give the path of a file")
        if not status.st_size:  # also the files of /proc, some of which never end
            raise FileFormatError(f"{name}: the file is empty; it needs a header and at least one row")
        with path.open("rb") as raw:
            stream = decompressed(raw, name) if gzipped else raw
            head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
            if not head:
                raise FileFormatError(f"{name}: the file is empty; it needs a header and at least one row")
            check_signature(head, name, kind)
            check_text_start(head.decode("utf-8-sig", "ignore")[:200], name, kind)
            newline: Literal["", "\n"] = "\n" if kind == "jsonl" else ""
            checked = _CheckedStream(stream, raw, name, newline, sizes)
            yield raw, io.TextIOWrapper(checked, encoding="utf-8-sig", newline=newline)
    except UnicodeDecodeError:
        try:
            line, byte = _first_undecodable(name, path, gzipped=gzipped)
        except GZIP_ERRORS:
            raise _incomplete_gzip(name) from None
        raise FileFormatError(f"{name}: line {line} (byte {byte:,}) is not UTF-8; save the file as UTF-8") from None
    except GZIP_ERRORS:
        raise _incomplete_gzip(name) from None
    except OSError as error:
        raise PathError(
            f"{name}: cannot be read ({error_reason(error)}); give a file that this user may read"
        ) from None


def _incomplete_gzip(name: str) -> FileFormatError:
    return FileFormatError(
        f"{name}: not a complete gzip file, though its name ends in .gz; compress it again or rename it"
    )


def _first_undecodable(name: str, path: Path, *, gzipped: bool) -> tuple[int, int]:
    """Return line, from 1, and byte, from 0, of the first byte that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, start = 1, 0
    with path.open("rb") as raw:
        file = decompressed(raw, name) if gzipped else raw
        while block := file.read(BUFFER_BYTES):
            pending = len(decoder.getstate()[0])  # bytes of an incomplete character
            try:
                lines += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                before = max(0, error.start - pending)
                return lines + block[:before].count(b"\n"), start - pending + error.start
            start += len(block)
    return lines, start - len(decoder.getstate()[0])  # the file ends within a character

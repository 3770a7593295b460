"""Files in pieces, so that ten million rows are read in the memory of one piece."""

# R rows of a piece

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bsc_core.data.formats import ACCEPTED, file_kind, refuse_other_format, refuse_other_start
from bsc_core.data.hub import data_set_batches, data_set_size, is_data_set
from bsc_core.data.lines import checked_names, delimited_rows, json_cells, json_rows, nested_columns, no_objects
from bsc_core.data.places import check_path
from bsc_core.data.reports import Rejection
from bsc_core.data.shards import is_shards, open_shards
from bsc_core.data.tables import DELIMITERS, Table
from bsc_core.errors import FileFormatError, PathError

PIECE_ROWS = 65_536
START = 4096
BUFFER = 1 << 20

Row = tuple[int, Any]


@dataclass(frozen=True)
class Progress:
    """How far a file is read. done, whole: bytes of a text file, rows of another source; rows: rows so far."""

    rows: int
    done: int
    whole: int


Say = Callable[[Progress], object]


def read_pieces(
    path: Path | str, columns: Sequence[str] | None = None, *, rows: int | None = None, say: Say = lambda _: None
) -> Iterator[Table]:
    """The rows of a source that `read_table` reads, at most `rows` at a time, each piece a table.

    columns: those to read, or all; of JSON lines without it, those of the first piece. Lines are numbered as by
    `read_table`, the same rows are rejected and the same errors raised, each when the reading gets there.
    """
    rows = rows or PIECE_ROWS
    if is_data_set(path) or is_shards(path):
        yield from _value_pieces(path, columns, rows, say)
    elif file_kind(Path(path)) == "parquet":
        yield from _parquet_pieces(path, columns, rows, say)
    else:
        yield from _text_pieces(path, columns, rows, say)


def _text_pieces(path: Path | str, columns: Sequence[str] | None, rows: int, say: Say) -> Iterator[Table]:
    kind = file_kind(Path(path))
    with _opened(path, kind) as (raw, text):
        whole, seen = Path(path).expanduser().stat().st_size, 0
        pieces = _json_pieces if kind == "jsonl" else _delimited_pieces
        for piece in pieces(text, str(path), kind, columns, rows):
            seen += len(piece) + len(piece.rejected)
            say(Progress(seen, raw.tell(), whole))
            yield piece


def _delimited_pieces(
    text: io.TextIOWrapper, source: str, kind: str, columns: Sequence[str] | None, rows: int
) -> Iterator[Table]:
    names, found = delimited_rows(text, source, DELIMITERS[kind])
    if not names:
        raise FileFormatError(f"{source}: the file is empty; it needs a header and at least one row")
    places = [place for place, name in enumerate(names) if columns is None or name in columns]
    empty = True
    for chunk in _chunks(found, rows):
        empty = False
        good = [row for row in chunk if not isinstance(row, Rejection)]
        cells = {names[place]: [fields[place] for _, fields in good] for place in places}
        yield Table(source, tuple(cells), cells, [line for line, _ in good], _rejections(chunk))
    if empty:
        raise FileFormatError(f"{source}: there is a header but no row below it; add rows")


def _json_pieces(
    text: io.TextIOWrapper, source: str, kind: str, columns: Sequence[str] | None, rows: int
) -> Iterator[Table]:
    names = None if columns is None else tuple(columns)
    objects = False
    for chunk in _chunks(json_rows(text), rows):
        good = [row for row in chunk if not isinstance(row, Rejection)]
        objects = objects or bool(good)
        if names is None and good:
            names = tuple({name: None for _, value in good for name in value})
        values = {name: [value.get(name) for _, value in good] for name in names or ()}
        lines = [line for line, _ in good]
        yield Table(source, names or (), json_cells(values), lines, _rejections(chunk), nested_columns(values))
    if not objects:
        raise no_objects(source)


def _parquet_pieces(path: Path | str, columns: Sequence[str] | None, rows: int, say: Say) -> Iterator[Table]:
    import pyarrow
    import pyarrow.parquet

    resolved = _file(path)
    with resolved.open("rb") as file:
        head = file.read(START)
        file.seek(max(0, resolved.stat().st_size - 4))
        refuse_other_format(head + file.read(4), path, "parquet")
    try:
        with pyarrow.parquet.ParquetFile(resolved, pre_buffer=False, buffer_size=BUFFER) as file:
            names = checked_names([str(name) for name in file.schema_arrow.names], str(path))
            chosen = [name for name in names if columns is None or name in columns]
            if not file.metadata.num_rows:
                raise FileFormatError(f"{path}: there is a header but no row below it; add rows")
            batches = file.iter_batches(rows, columns=chosen, use_threads=False)
            values = (batch.to_pydict() for batch in batches)
            yield from _numbered(str(path), values, file.metadata.num_rows, say)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileFormatError(f"{path}: the Parquet file cannot be read ({reason}); write it again") from None


def _value_pieces(path: Path | str, columns: Sequence[str] | None, rows: int, say: Say) -> Iterator[Table]:
    if is_data_set(path):
        values, whole = data_set_batches(path, rows), data_set_size(path)
    else:
        shards = open_shards(path)
        values, whole = (batch.to_pydict() for batch in shards.batches(rows=rows)), len(shards)
    if not whole:
        raise FileFormatError(f"{path}: it has no rows; choose another split or data set")
    if columns is not None:
        values = ({name: batch[name] for name in columns if name in batch} for batch in values)
    yield from _numbered(str(path), values, whole, say)


def _numbered(source: str, batches: Iterable[dict[str, list[Any]]], whole: int, say: Say) -> Iterator[Table]:
    seen = 0
    for values in batches:
        size = len(next(iter(values.values()), ()))
        lines = list(range(seen + 1, seen + size + 1))
        seen += size
        say(Progress(seen, seen, whole))
        yield Table(source, tuple(values), json_cells(values), lines, (), nested_columns(values), "row")


def _chunks(found: Iterable[Row | Rejection], rows: int) -> Iterator[list[Row | Rejection]]:
    chunk: list[Row | Rejection] = []
    for row in found:
        chunk.append(row)
        if len(chunk) == rows:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _rejections(chunk: list[Row | Rejection]) -> tuple[Rejection, ...]:
    return tuple(row for row in chunk if isinstance(row, Rejection))


def _file(path: Path | str) -> Path:
    resolved = check_path(path)
    if not resolved.is_file():
        raise PathError(f"{path}: this is no file but a folder or device; give the path of a file ({ACCEPTED})")
    return resolved


@contextmanager
def _opened(path: Path | str, kind: str) -> Iterator[tuple[io.BufferedReader, io.TextIOWrapper]]:
    """The file as it lies on the disk, for its position, and its text; what reading raises is said clearly."""
    resolved = _file(path)
    packed = Path(path).name.lower().endswith(".gz")
    try:
        with resolved.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if packed and resolved.stat().st_size else raw
            head = stream.peek(START)[:START]
            if not head:
                raise FileFormatError(f"{path}: the file is empty; it needs a header and at least one row")
            refuse_other_format(head, path, kind)
            refuse_other_start(head.decode("utf-8-sig", "ignore")[:200], path, kind)
            newline: Literal["", "\n"] = "\n" if kind == "jsonl" else ""
            yield raw, io.TextIOWrapper(stream, encoding="utf-8-sig", newline=newline)
    except UnicodeDecodeError:
        line, byte = _first_undecodable(resolved, packed)
        raise FileFormatError(f"{path}: line {line} (byte {byte:,}) is not UTF-8; save the file as UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise FileFormatError(
            f"{path}: not a whole gzip file, though its name ends in .gz; compress it again or rename it"
        ) from None
    except OSError as error:
        raise PathError(
            f"{path}: cannot be read ({error.strerror or error}); give a file that this user may read"
        ) from None


def _first_undecodable(resolved: Path, packed: bool) -> tuple[int, int]:
    """Line, from 1, and byte, from 0, of the first byte that is not UTF-8."""
    start = 0
    with gzip.open(resolved) if packed else resolved.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number, start + error.start
            start += len(line)
    return 1, 0

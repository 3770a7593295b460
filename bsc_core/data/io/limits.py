"""Limits of data files: what a file may expand to, checked before or while it is read."""

from __future__ import annotations

import base64
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bsc_core.errors import FileFormatError
from bsc_core.files import error_reason
from bsc_core.types import MAX_DIMENSIONS

if TYPE_CHECKING:
    import pyarrow

MAX_DATA_MB = "BSC_MAX_DATA_MB"
"""Environment variable: maximum size of the data of a file in megabytes, decompressed; by default unlimited."""
MAX_COLUMNS = 1_000
MAX_EXPANSION = 200
"""Maximum ratio of the data to the compressed file; text reaches 20, and repeated rows 100."""
UNCHECKED_BYTES = 1 << 22
"""Data up to this size are read at any ratio."""
MAX_CELLS_PER_BYTE = 2
"""Maximum ratio of the cells to the bytes of the file; that of texts is far below 1."""
SLOW_CELLS = 10
"""Cells that a date, a time or a decimal number counts as, since its conversion to text takes longer."""
NUMBER_BYTES = 20
"""Size of a number as text, which can be stored in less than a bit."""
MAX_NUMBER_SIZE = 8
"""Size of a number of a vector in memory."""
MAX_NUMBER_BYTES = 32
"""Size of the longest decimal."""
UNCHECKED_CELLS = 2_000_000
"""Files of at most this many cells are read at any ratio: a million rows of two columns with few distinct texts."""
MAX_READS = 5
"""How often a file may be read for a config: for training, dev, test and the corpus."""
UNCHECKED_PAGES = 100_000
"""Parquet files of at most this many pages are read, however short, and Arrow files of as many columns of batches."""
MIN_PAGE_BYTES = 1_000
"""Minimum mean size of the pages, or of the columns of batches, of other files."""
HEADER_BYTES = 512
"""Bytes that contain most headers of pages; those with long texts as minimum and maximum have more."""
MAX_HEADER_BYTES = 1 << 24
MAX_HEADER_VALUES = 32
"""Maximum number of values in the header of a page, which has at most 23 as of version 2.12 of the format."""
MAX_FOOTER_VALUES = 3_000_000
"""Maximum number of values in the footer of a Parquet file: about 40 for each column of a row group."""
ARROW_SCHEMA = b"ARROW:schema"
"""Key of the Arrow schema in the footer of a Parquet file."""
NEXT_TEXT = b"\x18"
"""Start of the next field of a structure, if it is a text, as the value after a key."""
MAX_SCHEMA_FIELDS, MAX_SCHEMA_BYTES = 20_000, 2**24
"""Maximum number of fields of an Arrow schema with those inside of others, and bytes of their names and metadata."""
PAIR_BYTES = 100
"""Bytes that each text of the metadata counts as in addition to its length."""
TIMESTAMP, UNION = 10, 14
"""Types of Arrow with a time zone or a list of types in field 1."""
MAX_FOOTER_BYTES = 2**26
"""Maximum size of the footer of a Parquet file; pyarrow copies a text in it eight times."""
MAX_FIELD = 2**15 - 1
"""Maximum number of a field, which has 16 bits."""
INT_32, INT_64, TEXT, LIST, STRUCTURE = 5, 6, 8, 9, 12
"""Types of values in the compact protocol of Thrift."""
COLUMN = {3: {5: INT_64, 6: INT_64, 7: INT_64, 9: INT_64, 11: INT_64}}
"""Numbers and types of the fields of a column in the footer of a Parquet file."""
FOOTER = {4: [{1: [COLUMN], 3: INT_64}]}
PAGE_HEADER = {1: INT_32, 2: INT_32, 3: INT_32, 5: {1: INT_32}, 7: {1: INT_32}, 8: {1: INT_32}}
PAGE_KINDS = {0: 5, 2: 7, 3: 8}
"""Field of the header that describes a page of data, a dictionary, or data of version 2."""
DICTIONARY = 2


def check_expansion(size: int, stored: int, source: str) -> None:
    """Raise FileFormatError if `stored` bytes of a file expand to far more bytes (`size`): a decompression bomb."""
    megabytes = float(os.environ.get(MAX_DATA_MB) or "inf")
    if size > 1e6 * megabytes:
        raise FileFormatError(
            f"{source}: it has more than {megabytes:,g} MB of data; divide the file, or set {MAX_DATA_MB} (megabytes)"
        )
    _check_ratio(size, stored, f"{source}: {stored:,} bytes of the file expand")


def check_cells(cells: int, stored: int, source: str) -> None:
    """Raise FileFormatError if a file of `stored` bytes has far more cells than bytes, each of which needs memory."""
    limit = _cell_limit(stored)
    if cells > limit:
        raise FileFormatError(
            f"{source}: a file of {stored:,} bytes may have {limit:,} cells, and this one has at least {cells:,}; "
            "keep the columns of texts, labels and ids, or divide the file"
        )


def _check_ratio(size: int, stored: int, subject: str) -> None:
    if size > max(UNCHECKED_BYTES, MAX_EXPANSION * stored):
        raise FileFormatError(
            f"{subject} to at least {size:,} bytes; the limit is {MAX_EXPANSION} times. Decompress the file and check "
            "its content"
        )


def _cell_limit(stored: int) -> int:
    return max(UNCHECKED_CELLS, MAX_CELLS_PER_BYTE * stored)


class Sizes:
    """Sizes of files that are read together: each file has the limits, and all of them have those of one file.

    Else small files, which may expand at any ratio, could add up. Call `start_file` before each file.
    """

    def __init__(self) -> None:
        self._stored = self._size = self._cells = 0  # of the files before
        self._file_stored = self._file_size = self._file_cells = 0
        self._reads: Counter[tuple[int, int]] = Counter()  # by file, under whatever names

    def start_file(self, *paths: Path) -> None:
        """Add the sizes of the present file, as far as it was checked, to those of the files before.

        Args:
            paths: The files that are read next, as one.

        Raises:
            FileFormatError: One of them was read several times, such as by links to it.
        """
        for path in paths:
            facts = path.stat()
            self._reads[facts.st_dev, facts.st_ino] += 1
            if self._reads[facts.st_dev, facts.st_ino] > MAX_READS:
                raise FileFormatError(f"{path}: the same file is read under several names; name each file once")
        self._stored += self._file_stored
        self._size += self._file_size
        self._cells += self._file_cells
        self._file_stored = self._file_size = self._file_cells = 0

    def check_expansion(self, size: int, stored: int, source: str) -> None:
        """Raise FileFormatError as `check_expansion` does, for the present file and for all."""
        check_expansion(size, stored, source)
        self._file_size, self._file_stored = max(self._file_size, size), max(self._file_stored, stored)
        if self._stored:
            stored += self._stored
            _check_ratio(self._size + size, stored, f"{source}: with the files before it, {stored:,} bytes expand")

    def check_cells(self, cells: int, stored: int, source: str) -> None:
        """Raise FileFormatError as `check_cells` does, for the present file and for all."""
        check_cells(cells, stored, source)
        self._file_cells, self._file_stored = cells, stored
        if self._stored and self._cells + cells > (limit := _cell_limit(self._stored + stored)):
            raise FileFormatError(
                f"{source}: with the files before it, {self._stored + stored:,} bytes may have {limit:,} cells, and "
                f"these have at least {self._cells + cells:,}; keep the columns of texts, labels and ids, or remove "
                "files"
            )


def check_column_count(count: int, source: str) -> None:
    """Raise FileFormatError if a file has more than MAX_COLUMNS columns."""
    if count > MAX_COLUMNS:
        raise FileFormatError(
            f"{source}: it has more than {MAX_COLUMNS:,} columns; keep the columns of texts, labels and ids"
        )


class FlatBuffer:
    """Tables of a FlatBuffers message, given by their positions.

    Every method raises struct.error for a position outside of the message.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    def target(self, position: int) -> int:
        """Return the position to which the offset at a position refers."""
        (offset,) = struct.unpack_from("<I", self.content, position)
        return position + int(offset)

    def field(self, table: int, number: int) -> int:
        """Return the position of a field of a table; 0 if the table does not have it."""
        (back,) = struct.unpack_from("<i", self.content, table)
        (size,) = struct.unpack_from("<H", self.content, table - back)
        entry = 4 + 2 * number
        (offset,) = struct.unpack_from("<H", self.content, table - back + entry) if entry < size else (0,)
        return table + offset if offset else 0

    def part(self, table: int, number: int) -> int:
        """Return the position of the table, text or vector of a field; 0 if the table does not have it."""
        position = self.field(table, number)
        return self.target(position) if position else 0

    def length(self, vector: int) -> int:
        """Return the number of elements of a vector or the bytes of a text; 0 for position 0."""
        return int(struct.unpack_from("<I", self.content, vector)[0]) if vector else 0

    def tables(self, vector: int) -> list[int]:
        """Return the positions of the tables in a vector; none for position 0."""
        return [self.target(vector + 4 + 4 * number) for number in range(self.length(vector))]


def check_arrow_schema(message: bytes) -> None:
    """Raise ValueError if the fields of an Arrow schema need far more memory than its message, which they can share.

    Args:
        message: The message of the schema, without its length.
    """
    buffer = FlatBuffer(message)
    size = count = 0

    def metadata_bytes(table: int, number: int) -> int:
        pairs = buffer.tables(buffer.part(table, number))
        return sum(PAIR_BYTES + buffer.length(buffer.part(pair, part)) for pair in pairs for part in (0, 1))

    try:
        schema = buffer.part(buffer.target(0), 2)
        size += metadata_bytes(schema, 2)
        vectors = [buffer.part(schema, 1)]
        while vectors and max(size / MAX_SCHEMA_BYTES, count / MAX_SCHEMA_FIELDS) <= 1:
            for field in buffer.tables(vectors.pop())[: MAX_SCHEMA_FIELDS + 1]:
                count += 1
                size += buffer.length(buffer.part(field, 0)) + metadata_bytes(field, 6)
                kind = buffer.field(field, 2)
                if kind and buffer.content[kind] in (TIMESTAMP, UNION):
                    size += buffer.length(buffer.part(buffer.part(field, 3), 1))
                vectors.append(buffer.part(field, 5))
                if size > MAX_SCHEMA_BYTES:
                    break
    except (struct.error, IndexError):
        raise ValueError("its schema is damaged") from None
    if vectors:
        raise ValueError("its schema has too many fields, or too long names or metadata")


def check_parquet_footer(path: Path, source: str) -> None:
    """Raise FileFormatError if the footer of a Parquet file, which pyarrow reads on opening, is too large.

    It has too many values, or the Arrow schema in it fails `check_arrow_schema`.
    """
    try:
        with path.open("rb") as file:
            footer = _footer_bytes(file, path.stat().st_size)
        _Thrift(footer, MAX_FOOTER_VALUES).structure({})
        _, found, rest = footer.partition(ARROW_SCHEMA)
        if ARROW_SCHEMA in rest or (found and not rest.startswith(NEXT_TEXT)):
            raise ValueError("it has several Arrow schemas, or a damaged one")
        if found:
            message = base64.b64decode(_Thrift(rest, limit=0, position=1).text(), validate=True)
            check_arrow_schema(message[8:] if message.startswith(b"\xff" * 4) else message[4:])
    except OverflowError:
        raise _too_many_values(source) from None
    except (ValueError, IndexError, RecursionError) as error:
        raise FileFormatError(f"{source}: the Parquet file cannot be read ({error}); write it again") from None


def check_parquet_size(path: Path, columns: Iterable[str], source: str, sizes: Sizes | None = None) -> None:
    """Raise FileFormatError for a Parquet file whose columns are far larger than the file, before they are read.

    Constant columns need no space, and a dictionary-encoded column can repeat a long text any number of times. The
    headers of the pages are compared with the footer before a page is decoded.

    Args:
        path: The file.
        columns: The columns that will be read; those of `nested_parquet_columns` count as empty cells.
        source: Name of the file in error messages.
        sizes: Sizes of the files that are read together with it.
    """
    import pyarrow.compute
    import pyarrow.parquet

    sizes = sizes or Sizes()
    sizes.start_file(path)
    stored, size, names = path.stat().st_size, 0, set(columns)
    metadata = pyarrow.parquet.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes.check_expansion(max(metadata.num_rows, sum(group.total_byte_size for group in groups)), stored, source)
    schema = metadata.schema.to_arrow_schema()
    slow = {field.name for field in schema if is_slow(field.type)}
    sizes.check_cells(metadata.num_rows * sum(SLOW_CELLS if name in slow else 1 for name in names), stored, source)
    names -= nested_parquet_columns(schema)
    _check_pages(path, metadata, names, source)
    texts = [field.name for field in schema if field.name in names and _is_text(field.type)]
    _check_numbers(metadata, names.difference(texts), source)
    size += NUMBER_BYTES * metadata.num_rows * len(names.difference(texts))
    sizes.check_expansion(size, stored, source)
    if not texts:
        return
    options = {"pre_buffer": False, "read_dictionary": texts, "arrow_extensions_enabled": False}
    with pyarrow.parquet.ParquetFile(path, **options) as file:
        for number in range(len(groups)):
            table = file.read_row_group(number, columns=texts, use_threads=False)
            for chunk in (chunk for column in table.columns for chunk in column.chunks):
                if isinstance(chunk, pyarrow.DictionaryArray):
                    lengths = pyarrow.compute.binary_length(chunk.dictionary).take(chunk.indices)
                    size += pyarrow.compute.sum(lengths.cast(pyarrow.int64())).as_py() or 0
                else:
                    size += chunk.nbytes
                sizes.check_expansion(size, stored, source)


def _check_numbers(metadata: Any, names: Collection[str], source: str) -> None:
    """Raise FileFormatError if columns without texts have values of any length, which decimals of bytes can have."""
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    for column in columns:
        is_bytes = column.physical_type == "BYTE_ARRAY"
        is_bytes = is_bytes or (column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length > MAX_NUMBER_BYTES)
        if is_bytes and column.path in names:
            raise FileFormatError(
                f"{source}: column {column.path!r} stores its numbers as bytes of any length; write it as integers or "
                "floating-point numbers"
            )


def check_parquet_vectors(path: Path, name: str, source: str) -> None:
    """Raise FileFormatError for a Parquet file whose column of vectors is far larger than the file.

    Args:
        path: The file.
        name: The column, a list of numbers for each row.
        source: Name of the file in error messages.
    """
    import pyarrow.parquet

    metadata = pyarrow.parquet.read_metadata(path)
    columns = (metadata.schema.column(number).path for number in range(metadata.num_columns))
    leaves = {column for column in columns if column.partition(".")[0] == name}
    numbers = _check_pages(path, metadata, leaves, source, longest=MAX_DIMENSIONS)
    check_expansion(MAX_NUMBER_SIZE * numbers, path.stat().st_size, source)


def _check_pages(path: Path, metadata: Any, names: set[str], source: str, *, longest: int = 1) -> int:
    """Return the number of values of columns.

    Raises FileFormatError if their pages have other sizes or rows than the footer of a Parquet file says, or on average
    more than `longest` values for a row.

    pyarrow allocates the decompressed size that the header of a page states, and reads the rows of the row groups. The
    footer is read here since `RowGroupMetaData.column` of pyarrow ends the process if a column is damaged.
    """
    stored, size, pages, values = path.stat().st_size, 0, 0, 0
    columns = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    name = ""
    with path.open("rb") as file:
        try:
            groups = _footer(file, stored)
            if sum(group[3] for group in groups) != metadata.num_rows:
                raise ValueError("the row groups have other rows than the file")
            for group in groups:
                for name, column in zip(columns, group[1], strict=True):
                    values += column[3][5] if name in names else 0
                    for unpacked in _page_sizes(file, column[3], group[3], longest) if name in names else ():
                        size, pages = size + unpacked, pages + 1
                        check_expansion(size, stored, source)
                        if pages > max(UNCHECKED_PAGES, stored // MIN_PAGE_BYTES):
                            raise FileFormatError(
                                f"{source}: it has more than {pages - 1:,} pages, which are very short; write it again "
                                "with larger pages or row groups"
                            )
        except (KeyError, IndexError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, OverflowError) and not name:
                raise _too_many_values(source) from None
            part = f"pages of column {name!r}" if name else "row groups"
            raise FileFormatError(
                f"{source}: the {part} have other sizes than the footer of the Parquet file says, or are damaged; "
                "write it again"
            ) from None
    return values


def _footer(file: BinaryIO, stored: int) -> list[dict[int, Any]]:
    """Return the row groups of a Parquet file of `stored` bytes, as far as FOOTER has their fields."""
    content = _footer_bytes(file, stored)
    groups: list[dict[int, Any]] = _Thrift(content, MAX_FOOTER_VALUES).structure(FOOTER)[4]
    if any(group[3] < 0 for group in groups):
        raise ValueError("a row group has a negative number of rows")
    return groups


def _too_many_values(source: str) -> FileFormatError:
    return FileFormatError(
        f"{source}: the footer of the Parquet file has more than {MAX_FOOTER_VALUES:,} values; write it again with "
        "larger row groups or fewer columns"
    )


def _footer_bytes(file: BinaryIO, stored: int) -> bytes:
    file.seek(stored - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(stored - 8 - length)
    if length > MAX_FOOTER_BYTES:
        raise ValueError(f"its footer has more than {MAX_FOOTER_BYTES // 2**20} MiB")
    return file.read(length)


def _page_sizes(file: BinaryIO, column: dict[int, int], rows: int, longest: int) -> Iterator[int]:
    """Yield the decompressed size of each page of a column in a row group.

    Raises:
        KeyError, IndexError, ValueError: A header is damaged or contradicts the footer.
    """
    values, unpacked, packed, position = column[5], column[6], column[7], column[9]
    if 0 < column.get(11, 0) < position:
        position = column[11]
    if not rows <= values <= rows * longest:
        raise ValueError("the column has other rows than the row group")
    while values > 0:
        header, length = _page_header(file, position)
        kind, size, stored = header[1], header[2], header[3]
        count = header[PAGE_KINDS[kind]][1] if kind in PAGE_KINDS else 0  # pyarrow skips pages of other types
        unpacked, packed = unpacked - size, packed - stored
        if kind != DICTIONARY:
            values -= count
        elif count > size:
            raise ValueError("the dictionary has more values than bytes")
        if min(size, stored, count, unpacked, packed, values) < 0:
            raise ValueError("a size is negative or above that of the footer")
        position += length + stored
        yield size


def _page_header(file: BinaryIO, position: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the header of a page, and its length."""
    size = HEADER_BYTES
    while True:
        file.seek(position)
        data = _Thrift(file.read(size), MAX_HEADER_VALUES)
        try:
            return data.structure(PAGE_HEADER), data.position
        except IndexError:
            if len(data.content) < size or size >= MAX_HEADER_BYTES:
                raise
            size *= 8


class _Thrift:
    """Values in the compact protocol of Thrift, of which only the requested ones are returned.

    Every method raises IndexError if the values end early, OverflowError if they are too many, and ValueError if
    another reader could read them differently: a field occurs twice or has another type.
    """

    def __init__(self, content: bytes, limit: int, position: int = 0) -> None:
        self.content, self.position, self.left = content, position, limit

    def text(self) -> bytes:
        """Return the text at the position."""
        length = self._unsigned(32)
        return self.content[self.position : self.position + length]

    def structure(self, wanted: dict[int, Any]) -> dict[int, Any]:
        """Return the fields with the numbers and types of `wanted`."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer(16)
            if number in fields or number > MAX_FIELD:
                raise ValueError("a field occurs twice, or its number is not one")
            value = self._value(head & 15, wanted.get(number))
            if number in wanted:
                fields[number] = value
        return fields

    def _value(self, kind: int, wanted: Any) -> Any:
        self.left -= 1
        expected = STRUCTURE if isinstance(wanted, dict) else LIST if isinstance(wanted, list) else wanted
        if self.left < 0:
            raise OverflowError("there are too many values")
        if expected not in (None, kind):
            raise ValueError("a value has another type")
        if kind == STRUCTURE:
            return self.structure(wanted or {})
        if kind == LIST:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned(32)
            of = wanted[0] if wanted else None
            if head & 15 in (1, 2):
                raise ValueError("a list has truth values, which are of another size there")
            values = (self._value(head & 15, of) for _ in range(count))
            return list(values) if wanted else sum(1 for _ in values)
        if kind in (4, INT_32, INT_64):
            return self._integer({4: 16, INT_32: 32, INT_64: 64}[kind])
        if kind not in (1, 2, 3, 7, TEXT):
            raise ValueError("a value has an unknown type")
        length = self._unsigned(32) if kind == TEXT else {3: 1, 7: 8}.get(kind, 0)
        self.position += length
        return None

    def _byte(self) -> int:
        self.position += 1
        return self.content[self.position - 1]

    def _integer(self, bits: int) -> int:
        value = self._unsigned(bits)
        return value >> 1 ^ -(value & 1)

    def _unsigned(self, bits: int) -> int:
        value = 0
        for shift in range(0, bits, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                break
        if byte > 127 or value >> bits:
            raise ValueError("a number is too long")
        return value


def nested_parquet_columns(schema: pyarrow.Schema) -> frozenset[str]:
    """Return the names of columns of lists, objects or bytes, which are not read: their size is unknown before.

    pyarrow selects columns by path, so column "a.b" cannot be read without the field b of a nested column "a".
    """
    nested = [field.name for field in schema if _is_nested(field.type)]
    return frozenset(
        name
        for name in schema.names
        if any(f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.") for other in nested)
    )


def arrow_columns(batch: pyarrow.RecordBatch | pyarrow.Table, source: str) -> dict[str, list[Any]]:
    """Return the values of each column; those of lists, objects or bytes are not read and count as empty.

    Raises:
        FileFormatError: They are damaged: a text is not UTF-8 or outside of the data, or a date is out of range.
    """
    import pyarrow

    check_arrow(batch, source)
    try:
        return {
            field.name: [()] * batch.num_rows if _is_nested(field.type) else column.to_pylist()
            for field, column in zip(batch.schema, batch.columns, strict=True)
        }
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _damaged(source, error) from None


def check_arrow(batch: pyarrow.RecordBatch | pyarrow.Table, source: str) -> None:
    """Raise FileFormatError if a text is not UTF-8, or an offset is outside of the data."""
    import pyarrow

    try:
        batch.validate(full=True)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _damaged(source, error) from None


def _damaged(source: str, error: Exception) -> FileFormatError:
    return FileFormatError(f"{source}: its data are damaged ({error_reason(error).rstrip('.')}); write it again")


def _value_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type of the stored values of a dictionary or of an extension."""
    import pyarrow

    if isinstance(kind, pyarrow.DictionaryType):
        return _value_type(kind.value_type)
    return _value_type(kind.storage_type) if isinstance(kind, pyarrow.BaseExtensionType) else kind


def _is_nested(kind: pyarrow.DataType) -> bool:
    import pyarrow
    from pyarrow import types

    stored = _value_type(kind)
    if types.is_fixed_size_binary(stored):
        return not isinstance(kind, pyarrow.UuidType)
    is_bytes = types.is_binary(stored) or types.is_large_binary(stored) or types.is_binary_view(stored)
    return bool(is_bytes or types.is_nested(stored))


def is_slow(kind: pyarrow.DataType) -> bool:
    """Return whether the values of a type take long to convert."""
    from pyarrow import types

    stored = _value_type(kind)
    return bool(types.is_decimal(stored) or types.is_temporal(stored))


def _is_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    stored = _value_type(kind)
    return bool(types.is_string(stored) or types.is_large_string(stored) or types.is_string_view(stored))

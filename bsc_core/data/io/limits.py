"""Limits of data files: what a file may expand to, checked before or while it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.errors import FileFormatError
from bsc_core.files import error_reason

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
UNCHECKED_CELLS = 10_000_000
"""Files of at most this many cells are read at any ratio: 4 million rows of two columns with few distinct texts."""


def check_expansion(size: int, stored: int, source: str) -> None:
    """Raise FileFormatError if `stored` bytes of a file expand to far more bytes (`size`): a decompression bomb."""
    megabytes = float(os.environ.get(MAX_DATA_MB) or "inf")
    if size > 1e6 * megabytes:
        raise FileFormatError(
            f"{source}: it has more than {megabytes:,g} MB of data; divide the file, or set {MAX_DATA_MB} (megabytes)"
        )
    if size > max(UNCHECKED_BYTES, MAX_EXPANSION * stored):
        raise FileFormatError(
            f"{source}: {stored:,} bytes of the file expand to at least {size:,} bytes; the limit is {MAX_EXPANSION} "
            "times. Decompress the file and check its content"
        )


def check_cells(cells: int, stored: int, source: str) -> None:
    """Raise FileFormatError if a file of `stored` bytes has far more cells than bytes, each of which needs memory."""
    limit = max(UNCHECKED_CELLS, MAX_CELLS_PER_BYTE * stored)
    if cells > limit:
        raise FileFormatError(
            f"{source}: a file of {stored:,} bytes may have {limit:,} cells, and this one has at least {cells:,}; "
            "keep the columns of texts, labels and ids, or divide the file"
        )


def check_column_count(count: int, source: str) -> None:
    """Raise FileFormatError if a file has more than MAX_COLUMNS columns."""
    if count > MAX_COLUMNS:
        raise FileFormatError(
            f"{source}: it has more than {MAX_COLUMNS:,} columns; keep the columns of texts, labels and ids"
        )


def check_parquet_size(path: Path, columns: Iterable[str], source: str) -> None:
    """Raise FileFormatError for a Parquet file whose columns are far larger than the file, before they are read.

    Constant columns need no space, and a dictionary-encoded column can repeat a long text any number of times.

    Args:
        path: The file.
        columns: The columns that will be read; those of `nested_parquet_columns` count as empty cells.
        source: Name of the file in error messages.
    """
    import pyarrow.compute
    import pyarrow.parquet

    stored, size, names = path.stat().st_size, 0, set(columns)
    metadata = pyarrow.parquet.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    check_expansion(max(metadata.num_rows, sum(group.total_byte_size for group in groups)), stored, source)
    schema = metadata.schema.to_arrow_schema()
    slow = {field.name for field in schema if is_slow(field.type)}
    check_cells(metadata.num_rows * sum(SLOW_CELLS if name in slow else 1 for name in names), stored, source)
    names -= nested_parquet_columns(schema)
    texts = [field.name for field in schema if field.name in names and _is_text(field.type)]
    size += NUMBER_BYTES * metadata.num_rows * len(names.difference(texts))
    check_expansion(size, stored, source)
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
                check_expansion(size, stored, source)


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

    try:
        batch.validate(full=True)  # else offsets outside of the data are followed
        return {
            field.name: [()] * batch.num_rows if _is_nested(field.type) else column.to_pylist()
            for field, column in zip(batch.schema, batch.columns, strict=True)
        }
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise FileFormatError(
            f"{source}: its data are damaged ({error_reason(error).rstrip('.')}); write it again"
        ) from None


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

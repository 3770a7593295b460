"""Folders that `save_to_disk` of Hugging Face `datasets` wrote.

The package `datasets` is not used for them: the types of a saved dataset, written by its author, name functions that it
calls. Here, they can only name classes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.data.io.limits import (
    MIN_PAGE_BYTES,
    SLOW_CELLS,
    UNCHECKED_PAGES,
    FlatBuffer,
    Sizes,
    arrow_columns,
    check_arrow,
    check_arrow_schema,
    check_cells,
    is_slow,
)
from bsc_core.errors import DataError, FileFormatError
from bsc_core.files import MAX_LARGE_DOCUMENT_BYTES, error_reason, read_regular
from bsc_core.paths import check_path, plain_name

if TYPE_CHECKING:
    import pyarrow

SPLIT = "split"
NO_CLASS = "-"
INFO = "dataset_info.json"
SAVED_FILES = ("dataset_dict.json", "state.json")
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error)
MAX_BATCH_ROWS = 65_536
MAX_FILES = 10_000  # of a dataset
MAX_CLASSES = 10_000  # of a column
MAX_LABELS = 100  # columns with names of classes
MAX_NAME_LENGTH = 1_000


@dataclass(frozen=True)
class SavedSplit:
    """One split of a saved dataset.

    Attributes:
        name: Name of the split; "" for a dataset without splits.
        files: Its Arrow files, in order.
        class_names: Names of the classes of each column with class numbers.
        columns: Names of its columns.
        rows: Number of rows.
        cells: Number of cells; one that takes long to convert counts as several.
    """

    name: str
    files: tuple[Path, ...]
    class_names: Mapping[str, Sequence[str]]
    columns: tuple[str, ...]
    rows: int
    cells: int


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a path is a folder that `save_to_disk` wrote."""
    try:
        return folder.is_dir() and any((folder / name).is_file() for name in SAVED_FILES)
    except OSError:
        return False


def open_saved(path: str, folder: Path) -> list[SavedSplit]:
    """Check the files of a saved dataset and return its splits.

    Raises:
        FileFormatError: The dataset is incomplete, names files outside of its folder, or has too many cells.
        PathError: A file of it links to one that may not be read.
    """
    import pyarrow

    try:
        names = _document(folder / SAVED_FILES[0])["splits"] if (folder / SAVED_FILES[0]).is_file() else None
        if names is not None and len(set(names)) < len(names):
            raise ValueError("it names a split twice")
        sizes, splits = Sizes(), []
        for name in [""] if names is None else map(plain_name, names):
            splits.append(_open_split(name, folder / name, sizes))
            if sum(len(split.files) for split in splits) > MAX_FILES:
                raise ValueError(f"it has more than {MAX_FILES:,} files")
    except (*UNREADABLE, pyarrow.ArrowException) as error:
        raise FileFormatError(
            f"{path}: this folder of a saved dataset cannot be read ({error_reason(error).rstrip('.')}); save it again"
        ) from None
    for split in splits:
        check_cells(split.cells, _stored_bytes(split), path)
    return splits


def _open_split(name: str, folder: Path, sizes: Sizes) -> SavedSplit:
    """Check that a split has only regular files of its folder, and return it.

    Raises:
        ValueError: It names another file, or its files have different columns.
        PathError: A file links to one that may not be read.
        FileFormatError: A file is named several times, by links to it.
        pyarrow.ArrowException: A file is damaged.
    """
    files: dict[Path, None] = {}
    columns: tuple[str, ...] = ()
    rows = cells = 0
    for entry in _document(folder / SAVED_FILES[1])["_data_files"][: MAX_FILES + 1]:
        file = folder / plain_name(entry["filename"])
        if not file.is_file():
            raise ValueError(f"{file.name} is missing")
        if file in files:
            raise ValueError(f"{file.name} is named twice")
        check_path(file)
        sizes.start_file(file)
        found, count, weight = _check_arrow_file(file)
        if files and found != columns:
            raise ValueError(f"{file.name} has other columns than {next(iter(files)).name}")
        files[file] = None
        columns, rows, cells = found, rows + count, cells + count * weight
    return SavedSplit(name, tuple(files), class_names(_document(folder / INFO)["features"]), columns, rows, cells)


def _document(path: Path) -> dict[str, Any]:
    content = json.loads(read_regular(path, MAX_LARGE_DOCUMENT_BYTES))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not an object")
    return content


def _check_arrow_file(path: Path) -> tuple[tuple[str, ...], int, int]:
    """Return the columns, the number of rows, and how many cells a row counts as.

    Raises:
        ValueError: It is compressed or encoded, or its columns share data, which `save_to_disk` never does: its size is
            unknown then.
        pyarrow.ArrowException: It is damaged.
    """
    import pyarrow

    bodies, schema = [], None
    with pyarrow.memory_map(str(path)) as file:
        for message in pyarrow.ipc.MessageReader.open_stream(file):
            if message.type == "schema":
                check_arrow_schema(message.metadata.to_pybytes())
                schema = pyarrow.ipc.read_schema(message)
                encoded = any(_is_encoded(field.type) for field in schema)
            else:
                encoded = message.type != "record batch" or _is_compressed(message.metadata.to_pybytes())
                bodies.append(message.body.size if message.body is not None else 0)
            if encoded:
                raise ValueError(f"{path.name} is compressed or encoded")
        if schema is None:
            raise ValueError(f"{path.name} has no schema")
        if len(bodies) * len(schema) > max(UNCHECKED_PAGES, file.size() // MIN_PAGE_BYTES):
            raise ValueError(f"{path.name} has very short batches of rows")
        file.seek(0)
        rows = 0
        with pyarrow.ipc.open_stream(file) as reader:
            for batch, body in zip(reader, bodies, strict=True):
                buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
                if sum(buffer.size for buffer in buffers) > body:
                    raise ValueError(f"{path.name} has columns that share data")
                rows += batch.num_rows
    if len(set(schema.names)) < len(schema):
        raise ValueError(f"{path.name} names a column twice")
    weight = sum(SLOW_CELLS if is_slow(field.type) else 1 for field in schema)
    return tuple(schema.names), rows, max(1, weight)


def _is_encoded(kind: pyarrow.DataType) -> bool:
    """Return whether values of a type, or of a part of it, can share their data."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        return _is_encoded(kind.storage_type)
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    return any(word in str(kind) for word in ("dictionary<", "run_end_encoded<", "_view")) or any(
        map(_is_encoded, parts)
    )


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch name a compression: field 3 of the header, which is field 2."""
    buffer = FlatBuffer(metadata)
    header = buffer.part(buffer.target(0), 2)
    return bool(header and buffer.field(header, 3))


def saved_batches(path: str, splits: Sequence[SavedSplit], rows: int, sizes: Sizes) -> Iterator[dict[str, list[Any]]]:
    """Yield columns of at most `rows` rows; a class is given by name, and several splits get a column of split names.

    `sizes` are those of the files that are read together with the dataset.

    Raises:
        DataError: There are several splits and also a column named "split".
        FileFormatError: The data are damaged, or the splits have too many cells together.
    """
    for split in splits:
        if split.name and SPLIT in split.columns:
            raise DataError(
                f"{path}: has several splits and also a column {SPLIT!r}; choose the folder of one split inside it"
            )
        stored, size = _stored_bytes(split), 0
        sizes.start_file(*split.files)
        sizes.check_cells(split.cells, stored, path)
        for batch in _arrow_batches(split, min(rows, MAX_BATCH_ROWS)):
            check_arrow(batch, path)  # else `nbytes` follows offsets outside of the data
            size += batch.nbytes
            sizes.check_expansion(size, stored, path)
            values = arrow_columns(batch, path)
            for name in values.keys() & split.class_names.keys():
                values[name] = [class_name(value, split.class_names[name]) for value in values[name]]
            yield values | ({SPLIT: [split.name] * batch.num_rows} if split.name else {})


def _arrow_batches(split: SavedSplit, rows: int) -> Iterator[pyarrow.RecordBatch]:
    """Yield record batches of at most `rows` rows."""
    import pyarrow

    for path in split.files:
        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)


def _stored_bytes(split: SavedSplit) -> int:
    return sum(path.stat().st_size for path in split.files)


def class_names(features: Any) -> dict[str, list[str]]:
    """Return the names of the classes of each column with class numbers, as the metadata of `datasets` give them.

    Raises:
        ValueError: There are more than MAX_LABELS such columns, or more than MAX_CLASSES classes.
    """
    named: dict[str, list[str]] = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names = listed_classes(feature.get("names"))
            named |= {} if names is None else {column: names}
    if len(named) > MAX_LABELS:
        raise ValueError(f"it has more than {MAX_LABELS} columns of classes")
    return named


def schema_classes(schema: pyarrow.Schema) -> dict[str, list[str]]:
    """Return the names of classes as `class_names`, from the metadata that `datasets` writes into a Parquet file."""
    content = (schema.metadata or {}).get(b"huggingface", b"{}")
    if len(content) > MAX_LARGE_DOCUMENT_BYTES:
        return {}
    try:
        return class_names(json.loads(content)["info"]["features"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # no such metadata
        return {}


def listed_classes(names: Any) -> list[str] | None:
    """Return the names of classes in a list or an object by number; None if there are none.

    Raises:
        ValueError: There are more than MAX_CLASSES, or their numbers have gaps.
    """
    if isinstance(names, dict):
        numbers = {str(number): name for number, name in names.items()}
        names = [numbers.get(str(number)) for number in range(len(numbers))]
        if None in names:
            raise ValueError("the numbers of the classes have gaps")
    if not isinstance(names, list):
        return None
    if len(names) > MAX_CLASSES:
        raise ValueError(f"a column has more than {MAX_CLASSES:,} classes")
    return list(map(short_text, names))


def short_text(value: Any) -> str:
    """Return a text or number of metadata as text; "" for anything else, which can be of any size as text."""
    is_short = isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 1 << 64)
    return str(value)[:MAX_NAME_LENGTH].strip() if is_short else ""


def class_name(value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class number, which may be a text; other values are unchanged."""
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return value
    return names[number] if 0 <= number < len(names) else NO_CLASS

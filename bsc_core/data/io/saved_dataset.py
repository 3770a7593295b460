"""Folders that `save_to_disk` of Hugging Face `datasets` wrote; the package is imported only when one is read."""

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsc_core.data.io.limits import arrow_columns, check_cells, check_expansion
from bsc_core.errors import DataError, FileFormatError, InputError
from bsc_core.files import MAX_DOCUMENT_BYTES, check_regular, error_reason, read_regular
from bsc_core.paths import check_path, plain_name

SPLIT = "split"
NO_CLASS = "-"
INFO = "dataset_info.json"
SAVED_FILES = ("dataset_dict.json", "state.json")
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error)
MAX_BATCH_ROWS = 65_536

Splits = dict[str, Any]  # datasets by split name; "" for a single one


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a path is a folder that `save_to_disk` wrote."""
    try:
        return folder.is_dir() and any((folder / name).is_file() for name in SAVED_FILES)
    except OSError:
        return False


def load_saved(path: str, folder: Path) -> Splits:
    """Load a saved dataset.

    Raises:
        InputError: The package `datasets` is not installed.
        FileFormatError: The dataset is incomplete, names files outside of its folder, or has too many cells.
        PathError: A file of it links to one that may not be read.
    """
    datasets = _package(path)
    import pyarrow

    try:
        _check_saved_files(folder)
        splits = _by_split(datasets.load_from_disk(str(folder)))
    except (*UNREADABLE, pyarrow.ArrowException) as error:  # a dataset without rows is an IndexError
        raise FileFormatError(
            f"{path}: this folder of a saved dataset cannot be read ({error_reason(error).rstrip('.')}); save it again"
        ) from None
    for split in splits.values():
        check_cells(len(split) * split.num_columns, _stored_bytes(split), path)
    return splits


def _check_saved_files(folder: Path) -> None:
    """Check that a saved dataset reads only regular files of its folder and of the folders of its splits.

    Raises:
        ValueError: It names another file.
        PathError: A file links to one that may not be read.
    """
    splits, state = SAVED_FILES
    parts = [folder]
    if (folder / splits).is_file():
        parts += [folder / plain_name(name) for name in json.loads(read_regular(folder / splits))["splits"]]
    for part in parts:
        if not (part / state).is_file():
            continue
        if (part / INFO).exists():
            check_regular(part / INFO, limit=MAX_DOCUMENT_BYTES)  # read by the library
        for file in json.loads(read_regular(part / state))["_data_files"]:
            name = plain_name(file["filename"])
            if not (part / name).is_file():
                raise ValueError(f"{name} is missing")
            check_path(part / name)
            _check_arrow_file(part / name)


def _check_arrow_file(path: Path) -> None:
    """Check that a file is not compressed or encoded, which `save_to_disk` never does: its size is unknown then.

    Raises:
        ValueError: It is.
        pyarrow.ArrowException: It is damaged.
    """
    import pyarrow

    with pyarrow.memory_map(str(path)) as file:
        for message in pyarrow.ipc.MessageReader.open_stream(file):
            if message.type == "schema":
                kinds = [str(field.type) for field in pyarrow.ipc.read_schema(message)]
                encoded = any(word in kind for kind in kinds for word in ("dictionary<", "run_end_encoded<", "_view"))
            else:
                encoded = message.type != "record batch" or _is_compressed(message.metadata.to_pybytes())
            if encoded:
                raise ValueError(f"{path.name} is compressed or encoded")


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch name a compression: field 3 of the header, which is field 2."""

    def field(table: int, number: int) -> int:
        """Return the position of a field of a FlatBuffers table; 0 if the table does not have it."""
        (back,) = struct.unpack_from("<i", metadata, table)
        (size,) = struct.unpack_from("<H", metadata, table - back)
        entry = 4 + 2 * number
        (offset,) = struct.unpack_from("<H", metadata, table - back + entry) if entry < size else (0,)
        return table + offset if offset else 0

    def target(position: int) -> int:
        (offset,) = struct.unpack_from("<I", metadata, position)
        return position + int(offset)

    header = field(target(0), 2)
    return bool(header and field(target(header), 3))


def dataset_batches(path: str, splits: Splits, rows: int) -> Iterator[dict[str, list[Any]]]:
    """Yield columns of at most `rows` rows; a class is given by name, and several splits get a column of split names.

    Raises:
        DataError: There are several splits and also a column named "split".
        FileFormatError: The data are damaged.
    """
    for split, dataset in splits.items():
        if split and SPLIT in dataset.column_names:
            raise DataError(
                f"{path}: has several splits and also a column {SPLIT!r}; choose the folder of one split inside it"
            )
        class_names = {name: feature.names for name, feature in dataset.features.items() if hasattr(feature, "int2str")}
        stored, size = _stored_bytes(dataset), 0
        for batch in dataset.with_format("arrow").iter(batch_size=min(rows, MAX_BATCH_ROWS)):
            size += batch.nbytes
            check_expansion(size, stored, path)
            values = arrow_columns(batch, path)
            for name, names in class_names.items():
                values[name] = [_class_name(value, names) for value in values[name]]
            yield values | ({SPLIT: [split] * batch.num_rows} if split else {})


def _stored_bytes(split: Any) -> int:
    return sum(Path(file["filename"]).stat().st_size for file in split.cache_files)


def _by_split(loaded: Any) -> Splits:
    return dict(loaded) if isinstance(loaded, dict) else {"": loaded}


def _package(path: Path | str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise InputError(
            f"{path}: datasets of Hugging Face need the package datasets; install bsc-lab with the extra trainer: "
            "pip install 'bsc-lab[trainer]'"
        ) from None


def _class_name(value: Any, names: list[str]) -> str | None:
    if value is None:
        return None
    return names[value] if 0 <= value < len(names) else NO_CLASS

"""Folders that `save_to_disk` of Hugging Face `datasets` wrote; the package is imported only when one is read."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsc_core.config.reading import HUB
from bsc_core.errors import DataError, FileFormatError, InputError
from bsc_core.files import error_reason

SPLIT = "split"
NO_CLASS = "-"
SAVED_FILES = ("dataset_dict.json", "state.json")
MAX_BATCH_ROWS = 65_536

Splits = dict[str, Any]  # datasets by split name; "" for a single one


def is_hub_id(path: Path | str) -> bool:
    """Return whether a path names a dataset on the hub."""
    return str(path).startswith(HUB)


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
        FileFormatError: The dataset is incomplete.
    """
    datasets = _package(path)
    try:
        return _by_split(datasets.load_from_disk(str(folder)))
    except (OSError, ValueError, LookupError) as error:  # a dataset without rows is an IndexError
        raise FileFormatError(
            f"{path}: this folder of a saved dataset cannot be read ({error_reason(error).rstrip('.')}); save it again"
        ) from None


def dataset_batches(path: str, splits: Splits, rows: int) -> Iterator[dict[str, list[Any]]]:
    """Yield columns of at most `rows` rows; a class is given by name, and several splits get a column of split names.

    Raises:
        DataError: There are several splits and also a column named "split".
    """
    for split, dataset in splits.items():
        if split and SPLIT in dataset.column_names:
            raise DataError(
                f"{path}: has several splits and also a column {SPLIT!r}; choose one split, as with ?split=train on "
                "the hub, or the folder of one split inside a saved folder"
            )
        class_names = {name: feature.names for name, feature in dataset.features.items() if hasattr(feature, "int2str")}
        for batch in dataset.with_format("arrow").iter(batch_size=min(rows, MAX_BATCH_ROWS)):
            values = batch.to_pydict()
            for name, names in class_names.items():
                values[name] = [_class_name(value, names) for value in values[name]]
            yield values | ({SPLIT: [split] * batch.num_rows} if split else {})


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

"""Datasets of Hugging Face `datasets`: folders that `save_to_disk` wrote, and ids on the hub, `hf://owner/name`.

The package `datasets` is imported only when such a source is read.
"""

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bsc_core.config.reading import HUB
from bsc_core.errors import DataError, FileFormatError, InputError
from bsc_core.files import error_reason

SPLIT = "split"
NO_CLASS = "-"
SAVED_FILES = ("dataset_dict.json", "state.json")
HUB_FORMS = "write it as hf://owner/name, hf://owner/name/config or hf://owner/name?split=train"
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


def load_from_hub(path: str) -> Splits:
    """Load a dataset by its hub id.

    Raises:
        InputError: The package `datasets` is not installed.
        DataError: The id is malformed, the dataset cannot be loaded, or it names files outside of its repository.
    """
    datasets = _package(path)
    name, config, options = _parse_hub_id(path)
    try:
        builder = datasets.load_dataset_builder(name, config)
        _check_files(path, name, builder.config.data_files)
        builder.download_and_prepare()
        return _by_split(builder.as_dataset(split=options.get(SPLIT)))
    except DataError:
        raise
    except Exception as error:  # whatever the network, the hub and the builder raise
        if _is_offline():
            raise DataError(
                f"{path}: not in the cache of this machine, and HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids "
                "the network; unset them, or save the dataset to a folder and give that"
            ) from None
        raise DataError(
            f"{path}: could not be loaded from the hub ({error_reason(error).rstrip('.')}); check the name, the "
            "config, the split and the network"
        ) from None


def _check_files(path: str, name: str, files: Mapping[str, Sequence[str]] | None) -> None:
    """Check that the card of a dataset names no files of this machine or of another repository, by split."""
    inside = tuple(f"hf://datasets/{name}{mark}".casefold() for mark in "@/")
    for file in chain.from_iterable((files or {}).values()):
        if not str(file).casefold().startswith(inside):
            raise DataError(f"{path}: the dataset names the file {file}, outside of its repository; choose another one")


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


def _parse_hub_id(path: str) -> tuple[str, str | None, dict[str, str]]:
    """Parse `hf://owner/name/config?split=train` into name, config and options."""
    location, _, query = path.removeprefix(HUB).partition("?")
    parts = location.strip("/").split("/")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise DataError(f"{path}: a dataset on the hub has an owner and a name; {HUB_FORMS}")
    if set(options) - {SPLIT} or not all(options.values()) or (query and not options):
        raise DataError(f"{path}: split is the only option of a dataset; {HUB_FORMS}")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None, options


def _package(path: Path | str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise InputError(
            f"{path}: datasets of Hugging Face need the package datasets; install bsc-lab with the extra trainer: "
            "pip install 'bsc-lab[trainer]'"
        ) from None


def _is_offline() -> bool:
    return any(
        os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _class_name(value: Any, names: list[str]) -> str | None:
    if value is None:
        return None
    return names[value] if 0 <= value < len(names) else NO_CLASS

"""Data sets of Hugging Face `datasets`: folders that `save_to_disk` wrote, and ids on the hub, `hf://owner/name`.

The package `datasets` is imported only where such a source is read.
"""

# N rows

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bsc_core.config.reading import HUB
from bsc_core.data.places import check_path
from bsc_core.errors import DataError, FileFormatError, InputError

SPLIT = "split"
NO_CLASS = "-"
BATCH_ROWS = 65_536
MARKS = ("dataset_dict.json", "state.json")
WRITTEN = "write it as hf://owner/name, hf://owner/name/config or hf://owner/name?split=train"


def is_hub_id(path: Path | str) -> bool:
    """Whether a source is named as a data set on the hub."""
    return str(path).startswith(HUB)


def is_data_set(path: Path | str) -> bool:
    """Whether a source is on the hub, or a folder that `save_to_disk` wrote."""
    return is_hub_id(path) or _is_saved(Path(path).expanduser())


def read_data_set(path: Path | str) -> dict[str, list[Any]]:
    """All rows of a data set, column by column; several splits get a column that names the split of each row.

    A class is told by its name, and by `-` where a row has none. Raises InputError without the package `datasets`,
    DataError for a data set that cannot be had, FileFormatError for one that is not whole.
    """
    values: dict[str, list[Any]] = {}
    rows = 0
    for batch in data_set_batches(path):
        size = len(next(iter(batch.values()), ()))
        for name in dict.fromkeys([*values, *batch]):
            column = values.setdefault(name, [None] * rows)
            column.extend(batch.get(name, [None] * size))
        rows += size
    return values


def data_set_batches(path: Path | str, rows: int = BATCH_ROWS) -> Iterator[dict[str, list[Any]]]:
    """The same rows, at most `rows` at a time."""
    for split, part in _parts(path).items():
        if split and SPLIT in part.column_names:
            raise DataError(
                f"{path}: it has several splits and also a column {SPLIT!r}; choose one, as with ?split=train on the "
                "hub, or the folder of one split inside a saved folder"
            )
        names = {name: feature.names for name, feature in part.features.items() if hasattr(feature, "int2str")}
        for batch in part.with_format("arrow").iter(batch_size=rows):
            values = batch.to_pydict()
            for name, classes in names.items():
                values[name] = [_class_name(value, classes) for value in values[name]]
            yield values | ({SPLIT: [split] * batch.num_rows} if split else {})


def data_set_size(path: Path | str) -> int:
    """How many rows all chosen splits have together."""
    return sum(len(part) for part in _parts(path).values())


def _parts(path: Path | str) -> dict[str, Any]:
    """The data sets by split; of a single one the name is empty."""
    datasets = _package(path)
    loaded = _from_hub(datasets, str(path)) if is_hub_id(path) else _from_disk(datasets, path)
    return dict(loaded) if isinstance(loaded, dict) else {"": loaded}


def _from_hub(datasets: Any, path: str) -> Any:
    name, config, options = _hub_id(path)
    try:
        return datasets.load_dataset(name, config, split=options.get("split"))
    except Exception as error:  # whatever the network, the hub and the builder raise
        if _is_offline():
            raise DataError(
                f"{path}: it is not in the cache of this machine, and HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids "
                "the network; unset them, or save the data set to a folder and give that"
            ) from None
        raise DataError(
            f"{path}: it could not be loaded from the hub ({_reason(error)}); check the name, the config, the split "
            "and the network"
        ) from None


def _from_disk(datasets: Any, path: Path | str) -> Any:
    try:
        return datasets.load_from_disk(str(check_path(path)))
    except (OSError, ValueError, LookupError) as error:  # a data set without rows is an IndexError
        raise FileFormatError(
            f"{path}: this folder of a saved data set cannot be read ({_reason(error)}); save it again"
        ) from None


def _hub_id(path: str) -> tuple[str, str | None, dict[str, str]]:
    """Name, config and options of `hf://owner/name/config?split=train`."""
    place, _, query = path.removeprefix(HUB).partition("?")
    parts = place.strip("/").split("/")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise DataError(f"{path}: a data set on the hub has an owner and a name; {WRITTEN}")
    if set(options) - {SPLIT} or not all(options.values()) or (query and not options):
        raise DataError(f"{path}: split is the one option that a data set takes; {WRITTEN}")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None, options


def _package(path: Path | str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise InputError(
            f"{path}: data sets of Hugging Face need the package datasets; install bsc-lab with the extra trainer: "
            "pip install 'bsc-lab[trainer]'"
        ) from None


def _is_saved(folder: Path) -> bool:
    try:
        return folder.is_dir() and any((folder / mark).is_file() for mark in MARKS)
    except OSError:
        return False


def _is_offline() -> bool:
    return any(
        os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _class_name(value: Any, names: list[str]) -> str | None:
    if value is None:
        return None
    return names[value] if 0 <= value < len(names) else NO_CLASS


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__

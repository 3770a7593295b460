"""Datasets that a user brings: the files in the uploads folder, and beside them how their columns are read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bsc_core.config import DataConfig, explain
from bsc_core.data.hub import is_hub_id
from bsc_core.data.places import check_path
from bsc_core.errors import ConfigError, FileFormatError, InputError
from pages.ui import store

SUFFIXES = ("csv", "tsv", "jsonl", "parquet", "gz")
LARGEST = 512  # MiB of a plain file that a page reads whole
PACKED = {".gz": 4, ".parquet": 4}  # how much more memory a byte of such a file becomes


def save_file(name: str, content: bytes) -> Path:
    """Keep an uploaded file in a folder of its own, named after the file and its content; returns its path.

    The same file brought twice lands in the same place. Raises FileFormatError when it is empty.
    """
    if not content:
        raise FileFormatError(f"{name}: the file is empty; upload one with a header and at least one row")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(name.replace("\0", "")).name).strip("._")[-80:] or "pairs.csv"
    folder = store.uploads_folder() / f"{_stem(safe)}-{hashlib.sha256(content).hexdigest()[:6]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / safe
    if not path.exists():
        draft = folder / f".{safe}"
        draft.write_bytes(content)
        draft.replace(path)
    return path


def source(given: str) -> str:
    """A hub id as it is, or the path of a file or a saved folder that may be read and is not too large for a page.

    Raises PathError or InputError.
    """
    given = given.strip()
    if is_hub_id(given):
        return given
    path = check_path(given)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    mebibytes = sum(file.stat().st_size * PACKED.get(file.suffix, 1) for file in files) / 2**20
    if mebibytes > LARGEST:
        raise InputError(
            f"{path.name}: about {mebibytes:,.0f} MiB of rows, and a page reads up to {LARGEST}; "
            "look at them all with `bsc audit`, bring a part here, or train from a config file with `bsc train`"
        )
    return str(path)


def folder_for(path: Path | str, *others: str) -> Path:
    """Where the description of a dataset is kept whose files lie elsewhere, or that is made with these settings too."""
    digest = hashlib.sha256("\n".join([str(path), *others]).encode()).hexdigest()[:6]
    return store.uploads_folder() / f"{_stem(str(path).rstrip('/').rpartition('/')[2])}-{digest}"


def _stem(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.split(".")[0].lower()).strip("-")[:32] or "dataset"


def checked(values: dict[str, Any]) -> DataConfig:
    """The settings as a config. Raises ConfigError with the core's sentence."""
    try:
        return DataConfig.model_validate(values)
    except ValidationError as fault:
        raise ConfigError(explain(fault)) from None


def describe(folder: Path, label: str, data: DataConfig) -> str:
    """Write how the dataset is read, so that it appears in the context bar; returns its key."""
    _write(folder / "dataset.json", {"label": label, "data": data.model_dump(mode="json")})
    return folder.name


def keep_remedies(key: str, remedies: tuple[str, ...]) -> None:
    """Keep what is mended in a dataset's rows, for every page and run from now on."""
    if key in store.SAMPLES:
        _write(store.settings_file(key), {"remedies": list(remedies)})
        return
    choice = store.datasets()[key]
    folder = store.uploads_folder() / key
    describe(folder, choice.label, checked({**choice.data.model_dump(), "remedies": remedies}))


def _write(path: Path, values: dict[str, Any]) -> None:
    """Write values beside the file and put them in its place, so that a reader never meets half of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
    draft.replace(path)

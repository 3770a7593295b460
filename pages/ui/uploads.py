"""Datasets that a user brings: the files in the uploads folder, and beside them how their columns are read."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from bsc_core.config import DataConfig
from bsc_core.errors import FileFormatError
from pages.ui import store

SUFFIXES = ("csv", "tsv", "jsonl", "parquet", "gz")


def save_file(name: str, content: bytes) -> Path:
    """Keep an uploaded file in a folder of its own, named after the file and its content; returns its path.

    The same file brought twice lands in the same place. Raises FileFormatError when it is empty.
    """
    if not content:
        raise FileFormatError(f"{name}: the file is empty; upload one with a header and at least one row")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(name.replace("\0", "")).name).strip("._")[-80:] or "pairs.csv"
    stem = re.sub(r"[^a-z0-9]+", "-", safe.split(".")[0].lower()).strip("-")[:32] or "dataset"
    folder = store.uploads_folder() / f"{stem}-{hashlib.sha256(content).hexdigest()[:6]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / safe
    if not path.exists():
        draft = folder / f".{safe}"
        draft.write_bytes(content)
        draft.replace(path)
    return path


def folder_for(path: Path) -> Path:
    """Where the description of a dataset is kept whose file lies elsewhere on this machine."""
    stem = re.sub(r"[^a-z0-9]+", "-", path.name.split(".")[0].lower()).strip("-")[:32] or "dataset"
    return store.uploads_folder() / f"{stem}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"


def describe(folder: Path, label: str, data: DataConfig) -> str:
    """Write how the dataset is read, so that it appears in the context bar; returns its key."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"label": label, "data": data.model_dump(mode="json")}, indent=1, ensure_ascii=False)
    draft = folder / ".dataset.json"
    draft.write_text(text, encoding="utf-8")
    draft.replace(folder / "dataset.json")
    return folder.name

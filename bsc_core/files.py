"""Files that appear whole or not at all, and values as JSON can hold them."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def as_json(value: Any, indent: int | None = None) -> bytes:
    """The value as UTF-8 JSON; see `plain`."""
    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False).encode()


def plain(value: Any) -> Any:
    """The value as JSON can hold it: NumPy values as numbers and lists, what is not finite as None, paths as text."""
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def sync(path: Path) -> None:
    """Make the disk hold a file or, where the system can, a folder's names."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes | Callable[[Any], None]) -> None:
    """Write bytes, or what a function writes into the file it is given: aside, synced and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()

"""Signed documents of run folders: what a run executes with, and the cluster that it is sent to.

The key lies in the runs folder. A run folder that was copied from elsewhere therefore sets no environment variables,
which could execute code, is not started without being launched, and names no other machines.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bsc_core.errors import RunError
from bsc_core.files import as_json, atomic_write
from bsc_core.runs import Run

_KEY_FILE = ".key"
_SIGNATURE = "signature"


def write_signed(run: Run, name: str, values: Mapping[str, Any]) -> None:
    """Write values under a name, with their signature."""
    path = run.store.root / _KEY_FILE
    if not path.is_file():
        atomic_write(path, secrets.token_bytes(32))
    run.write_json(name, {**values, _SIGNATURE: _signature(path, name, values)})


def read_signed(run: Run, name: str) -> dict[str, Any] | None:
    """Return the values that were written under a name in this runs folder; None if there are none, or damaged ones."""
    with suppress(RunError, OSError):  # without a key, no run was launched in this folder
        values: dict[str, Any] = run.read_json(name) or {}
        signature = str(values.pop(_SIGNATURE, ""))
        if hmac.compare_digest(signature.encode(), _signature(run.store.root / _KEY_FILE, name, values).encode()):
            return values
    return None


def _signature(key: Path, name: str, values: Mapping[str, Any]) -> str:
    return hmac.new(key.read_bytes(), name.encode() + as_json(dict(sorted(values.items()))), hashlib.sha256).hexdigest()

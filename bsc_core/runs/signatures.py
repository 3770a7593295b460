"""Signatures of documents by the secret key of a runs folder, and the keys that this user trusts."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bsc_core.files import as_json, read_regular, sync
from bsc_core.paths import cache_folder

_KEY_FILE, _SIGNATURE, _MAX_KEY_BYTES = ".key", "signature", 4096


def signed(root: Path, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a document with their signature by the key of a runs folder, created on first use."""
    _create_key(root / _KEY_FILE)
    return {**values, _SIGNATURE: _signature(root / _KEY_FILE, name, values)}


def verified(root: Path, name: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values without the signature that `signed` added in this runs folder; None if it is not valid."""
    contents = {key: value for key, value in values.items() if key != _SIGNATURE}
    with suppress(OSError):  # without a key, nothing was signed in this folder
        expected = _signature(root / _KEY_FILE, name, contents)
        if hmac.compare_digest(str(values.get(_SIGNATURE, "")).encode(), expected.encode()):
            return contents
    return None


def _create_key(path: Path) -> None:
    """Create the key of a runs folder; of several processes that do so at the same time, the first one succeeds."""
    if path.is_file():
        return
    draft = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    writers = path.parent.stat().st_mode & 0o022  # who may write to the folder may read the key
    draft.touch(0o600)
    draft.write_bytes(secrets.token_bytes(32))
    draft.chmod(0o600 | writers << 1)
    sync(draft)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        draft.replace(path)
    draft.unlink(missing_ok=True)
    sync(path.parent)
    trust(path.parent)


def is_trusted(root: Path) -> bool:
    """Whether this user created the key of a runs folder or started runs in it; True for a folder without a key."""
    try:
        return _key_digest(root) in _trusted_file().read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return not (root / _KEY_FILE).exists()


def trust(root: Path) -> None:
    """Remember the key of a runs folder; without a folder that can be written, nothing is remembered."""
    with suppress(OSError, ValueError):
        if not is_trusted(root):
            _trusted_file().parent.mkdir(parents=True, exist_ok=True)
            with _trusted_file().open("a", encoding="ascii") as file:
                file.write(f"{_key_digest(root)}\n")


def _key_digest(root: Path) -> str:
    return hashlib.sha256(read_regular(root / _KEY_FILE, _MAX_KEY_BYTES)).hexdigest()


def _trusted_file() -> Path:
    """Return the file of the trusted keys: with the state of programs, which is not emptied as a cache is."""
    if "BSC_CACHE" in os.environ:
        return cache_folder() / "runs_folders"
    from platformdirs import user_state_path

    return user_state_path("bsc-lab", appauthor=False) / "runs_folders"


def _signature(key: Path, name: str, values: Mapping[str, Any]) -> str:
    content = name.encode() + as_json(dict(sorted(values.items())))
    try:
        return hmac.new(read_regular(key, _MAX_KEY_BYTES), content, hashlib.sha256).hexdigest()
    except ValueError as error:
        raise OSError(f"{key}: not a key ({error}); remove it") from None

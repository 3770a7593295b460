"""The bundled encoder without its last module, so that vectors keep the lengths that pooling gives them.

Losses on raw dot products, and classifiers on raw vectors, see nothing of a temperature or a scale where every vector
has length 1; the papers' own encoders have no such module.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from bsc_core.data.places import cache_folder
from bsc_core.encoders.bundled import WEIGHTS_SHA256, bundled_folder

NORMALIZE = "Normalize"


def raw_folder() -> Path:
    """The raw encoder's folder in the cache, copied from the bundled one where it is not there yet.

    It appears whole or not at all. Cosines are those of the bundled encoder. Raises ModelError as `bundled_folder`.
    """
    folder = cache_folder() / "encoders" / f"raw-{WEIGHTS_SHA256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "new"
        shutil.copytree(bundled_folder(), fresh, ignore=lambda _, names: [name for name in names if NORMALIZE in name])
        _leave_out(fresh / "modules.json")
        if not folder.is_dir():  # another process may have been faster
            fresh.rename(folder)
    return folder


def _leave_out(path: Path) -> None:
    """Take the normalizing module from the list of modules."""
    modules = json.loads(path.read_text(encoding="utf-8"))
    kept = [module for module in modules if not module["type"].endswith(f".{NORMALIZE}")]
    path.write_text(json.dumps(kept, indent=2), encoding="utf-8")

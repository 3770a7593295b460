"""UMAP maps: built in a background task and cached on disk."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bsc_core import background_task
from bsc_core.projection import VectorFile
from pages.ui.components import users

MAX_FOLDERS = 200  # of maps in the cache
SECONDS_FIRST, SECONDS_PER_POINT = 9.0, 0.0022  # measured on one core: start, then per text and map


@dataclass(frozen=True)
class Maps:
    """Maps of the same texts, one per model."""

    rows: np.ndarray  # (N,) text ids
    points: list[np.ndarray]  # (N, 2) coordinates of each map
    neighbor_preservation: list[float | None]  # mean share of a text's neighbors on each map; None for too few texts


def map_folder(base: Path, files: Sequence[VectorFile], rows: np.ndarray, method: str, seed: int) -> Path:
    """Return the cache folder of the map of these vectors and rows."""
    digest = hashlib.sha256(rows.tobytes())
    for file in files:
        stat = file.path.stat()
        digest.update(f"{file.path} {stat.st_mtime_ns} {stat.st_size}".encode())
    return base / f"{method}-{seed}-{digest.hexdigest()[:16]}"


def is_ready(folder: Path) -> bool:
    """Return whether the maps of a folder are built."""
    return (folder / "map.npz").is_file()


def load_maps(folder: Path) -> Maps | None:
    """Load the maps of a folder; None if they are not built yet."""
    if not is_ready(folder):
        return None
    with np.load(folder / "map.npz", allow_pickle=False) as archive:
        preserved = [None if np.isnan(share) else float(share) for share in archive["trust"]]
        return Maps(archive["rows"], [archive[f"points{number}"] for number in range(len(preserved))], preserved)


def start(folder: Path, files: Sequence[VectorFile], rows: np.ndarray, method: str, seed: int) -> None:
    """Start the task that builds the map, if it was not started before."""
    background_task.remove_oldest(folder.parents[1], f"*/*/{background_task.REQUEST}", MAX_FOLDERS)
    paths = [[str(file.path), str(file.texts) if file.texts else None] for file in files]
    request = {"vectors": paths, "rows": rows.tolist(), "method": method, "seed": seed}
    one_thread = {"OMP_NUM_THREADS": "1"}
    background_task.start(folder, "bsc_core.projection", request, one_thread, user=users.task_user(), replaceable=True)


def expected_seconds(points: int, maps: int) -> float:
    """Estimate the time of UMAP."""
    return SECONDS_FIRST + SECONDS_PER_POINT * points * maps

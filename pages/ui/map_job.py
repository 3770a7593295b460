"""Maps that take seconds are made by a child process and kept on disk; the page reads how far it is and goes on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.projection import VectorFile, kept_neighbours, lay_out

SECONDS_FIRST, SECONDS_PER_POINT = 9.0, 0.0022  # measured on one core: imports and compilation, then each text and map


@dataclass(frozen=True)
class Maps:
    """Maps of the same texts, one for each model. rows: (N,) text ids; points: (N, 2) each; trust: shares kept."""

    rows: np.ndarray
    points: list[np.ndarray]
    trust: list[float | None]


def folder_for(base: Path, files: Sequence[VectorFile], rows: np.ndarray, method: str, seed: int) -> Path:
    """Where the map of exactly these vectors and rows is kept."""
    digest = hashlib.sha256(rows.tobytes())
    for file in files:
        stat = file.path.stat()
        digest.update(f"{file.path.parent.name}/{file.path.name} {stat.st_mtime_ns} {stat.st_size}".encode())
    return base / f"{method}-{seed}-{digest.hexdigest()[:16]}"


def finished(folder: Path) -> Maps | None:
    """The maps of a folder, when they are made."""
    if not (folder / "map.npz").is_file():
        return None
    with np.load(folder / "map.npz", allow_pickle=False) as archive:
        trust = [None if np.isnan(share) else float(share) for share in archive["trust"]]
        return Maps(archive["rows"], [archive[f"points{number}"] for number in range(len(trust))], trust)


def at_once(files: Sequence[VectorFile], rows: np.ndarray) -> Maps:
    """PCA maps, made here and now."""
    arrays = [file.of(rows) for file in files]
    points = lay_out(arrays, "pca")
    return Maps(rows, points, [kept_neighbours(array, laid) for array, laid in zip(arrays, points, strict=True)])


def begin(folder: Path, files: Sequence[VectorFile], rows: np.ndarray, method: str, seed: int) -> None:
    """Start the child that makes the map, unless one is at it."""
    if (folder / "request.json").is_file():
        _child(str(folder))
        return
    folder.mkdir(parents=True, exist_ok=True)
    paths = [[str(file.path), str(file.texts) if file.texts else None] for file in files]
    request = {"vectors": paths, "rows": rows.tolist(), "method": method, "seed": seed}
    draft = folder / f"request.{os.getpid()}.json"
    draft.write_text(json.dumps(request), encoding="utf-8")
    draft.replace(folder / "request.json")
    _child(str(folder))


@st.cache_resource(max_entries=64)
def _child(folder: str) -> subprocess.Popen[bytes]:
    """The one child of a folder; the cache keeps it, so that its exit status can be asked for."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with (Path(folder) / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", "bsc_core.projection", folder]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def progress(folder: Path) -> dict[str, Any]:
    """How far the child is: {"done", "of", "doing", "error"}; an `error` when it ended without a map."""
    report: dict[str, Any] = {"done": 0, "of": 1, "doing": "starting UMAP", "error": None}
    if (folder / "progress.json").is_file():
        report |= json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    ended = _child(str(folder)).poll() is not None
    if ended and not report["error"] and finished(folder) is None:
        report["error"] = f"the process that lays out the map ended early; its log is {folder / 'log.txt'}"
    return report


def again(folder: Path) -> None:
    """Forget a child that failed, so that the next look starts another."""
    _child.clear(str(folder))
    for name in ("progress.json", "request.json"):
        (folder / name).unlink(missing_ok=True)


def expected_seconds(points: int, maps: int) -> float:
    """About how long UMAP will take."""
    return SECONDS_FIRST + SECONDS_PER_POINT * points * maps


def age(folder: Path) -> float:
    """Seconds since the map was asked for."""
    return time.time() - (folder / "request.json").stat().st_mtime

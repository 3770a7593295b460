"""Maps of texts: (N, D) vectors to (N, 2) points, how far a map can be trusted, and the child process that makes one.

Two models share one frame: the second layout starts from the first and is then turned onto it (Procrustes), so a text
that kept its neighbours stays where it was. In the docstrings: N vectors of D numbers, R rows asked, k neighbours.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.errors import InputError

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]

SMALLEST_UMAP = 5  # with fewer vectors a neighbour graph says nothing, and the plane through them is exact enough


def project(vectors: Floats, method: str = "umap", *, seed: int = 0, start: Floats | None = None) -> Floats:
    """Lay vectors out in the plane.

    vectors: (N, D). method: a key of METHODS. start: (N, 2) layout to begin from (UMAP; default: PCA). Returns (N, 2).
    The same arguments give the same map. Raises InputError for an unknown method and for values that are not finite.
    """
    if method not in METHODS:
        raise InputError(f"{method} is no way to draw a map; choose one of {', '.join(METHODS)}")
    vectors = np.asarray(vectors, dtype=np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InputError(f"vector {row} holds a value that is not finite; this encoder cannot be mapped")
    return METHODS[method](vectors, seed, start)


def lay_out(
    models: Sequence[Floats], method: str = "umap", *, seed: int = 0, tell: Callable[[int], None] = lambda number: None
) -> list[Floats]:
    """Lay the same N texts out as each model sees them, all in one frame.

    models: arrays (N, D), D may differ. tell: called with the number of the map that is begun. Returns one (N, 2) each;
    later maps are turned, mirrored and moved onto the first, never scaled.
    """
    maps: list[Floats] = []
    for number, vectors in enumerate(models):
        tell(number)
        points = project(vectors, method, seed=seed, start=maps[0] if maps else None)
        maps.append(turn_onto(points, maps[0]) if maps else points)
    return maps


def pca(vectors: Floats, seed: int = 0, start: Floats | None = None) -> Floats:
    """The two directions of largest variance; exact, so `seed` and `start` change nothing. Returns (N, 2)."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :2]  # (D, 2), the largest first
    strongest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[strongest, range(directions.shape[1])])  # one way round
    points = centred @ directions  # (N, 2), or (N, 1) for vectors of one number
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).astype(np.float32)


def umap(vectors: Floats, seed: int = 0, start: Floats | None = None) -> Floats:
    """UMAP with 15 neighbours by cosine (McInnes et al. 2018), started from `start` or from PCA. Returns (N, 2)."""
    if len(vectors) < SMALLEST_UMAP:
        return pca(vectors)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ImportWarning)  # umap tells that TensorFlow, unused here, is absent
        from umap import UMAP
    begin = pca(vectors) if start is None else start
    spread = float(np.abs(begin).max()) or 1.0
    layout = UMAP(
        n_neighbors=min(15, len(vectors) - 1),
        min_dist=0.1,
        metric="cosine",
        init=(begin * (10.0 / spread)).astype(np.float32),
        random_state=seed,
        n_jobs=1,  # threads would make the map differ from run to run
    )
    return np.asarray(layout.fit_transform(vectors), dtype=np.float32)


METHODS: dict[str, Callable[[Floats, int, Floats | None], Floats]] = {"umap": umap, "pca": pca}


def turn_onto(points: Floats, onto: Floats) -> Floats:
    """Rotate, mirror and move `points` (N, 2) to lie nearest `onto` (N, 2) in squares; distances stay as they are."""
    here, there = points.mean(axis=0), onto.mean(axis=0)
    left, _, right = np.linalg.svd((points - here).T @ (onto - there))
    return np.asarray((points - here) @ (left @ right) + there, dtype=np.float32)


def nearest(vectors: Floats, rows: npt.NDArray[Any], k: int) -> tuple[Rows, Floats]:
    """The k nearest other vectors by cosine of each row in `rows`, nearest first.

    vectors: (N, D). Returns ids (R, k) and cosines (R, k), with k cut to N - 1; equal cosines keep the order of ids.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    scores = unit[rows] @ unit.T  # (R, N)
    return _top(scores, rows, k)


def _top(scores: Floats, rows: npt.NDArray[Any], k: int) -> tuple[Rows, Floats]:
    scores[np.arange(len(rows)), rows] = -np.inf  # a vector is no neighbour of itself
    k = min(k, scores.shape[1] - 1)
    best = np.sort(np.argpartition(-scores, max(0, k - 1), axis=1)[:, :k], axis=1)  # by id, for the order of equals
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    ids = np.take_along_axis(best, order, axis=1)
    return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)


def kept_neighbours(vectors: Floats, points: Floats, *, k: int = 10, most: int = 1000, seed: int = 0) -> float | None:
    """How far a map can be trusted: the share of a vector's k nearest (cosine) that are among its k nearest on the map.

    vectors: (N, D), points: (N, 2). At most `most` vectors are asked, drawn with `seed`. Mean, 0 to 1; None for N < 3.
    """
    if len(vectors) < 3:
        return None
    rows = sample_rows(len(vectors), most, seed=seed)
    true_ids, _ = nearest(vectors, rows, k)
    squares = (points**2).sum(axis=1)
    distances = squares[rows][:, None] + squares[None] - 2 * points[rows] @ points.T  # (R, N)
    map_ids, _ = _top(-distances, rows, k)
    shares = [len(np.intersect1d(one, two)) / true_ids.shape[1] for one, two in zip(true_ids, map_ids, strict=True)]
    return float(np.mean(shares))


def sample_rows(size: int, most: int, *, seed: int = 0) -> Rows:
    """All row numbers below `size`, or `most` of them drawn without repetition with `seed`, ascending."""
    if size <= most:
        return np.arange(size, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(size, most, replace=False)).astype(np.int32)


def make_map(folder: Path, vectors: Sequence[Path], *, rows: Rows, method: str = "umap", seed: int = 0) -> Path:
    """Project `rows` of one or two saved (U, D) arrays into `folder`/map.npz and return its path; made once, then kept.

    The archive holds rows (N,), one (N, 2) array for each file (`points0`, `points1`) and their kept shares (`trust`).
    progress.json in the folder says what is being done: {"done", "of", "doing", "pid", "started", "error"}.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    finished = folder / "map.npz"
    with FileLock(folder / "map.lock"):
        if finished.is_file():
            return finished
        arrays = [np.asarray(np.load(path, mmap_mode="r")[rows], dtype=np.float32) for path in vectors]
        steps = len(arrays) + 1

        def tell(number: int) -> None:
            say(folder, number, steps, f"laying out {len(rows):,} texts, map {number + 1} of {len(arrays)}")

        maps = lay_out(arrays, method, seed=seed, tell=tell)
        say(folder, len(arrays), steps, "counting how many neighbours the map keeps")
        trust = [kept_neighbours(array, points) for array, points in zip(arrays, maps, strict=True)]
        content: dict[str, npt.NDArray[Any]] = {f"points{number}": points for number, points in enumerate(maps)}
        content |= {"rows": rows, "trust": np.array([np.nan if share is None else share for share in trust])}
        unfinished = finished.with_suffix(f".{os.getpid()}.npz")
        np.savez(unfinished, **content)  # type: ignore[arg-type]  # the stub reads every keyword as allow_pickle
        unfinished.replace(finished)
    return finished


def say(folder: Path, done: int, of: int, doing: str, error: str | None = None) -> None:
    """Write how far the map of this folder is; a reader never sees half a file."""
    report = {"done": done, "of": of, "doing": doing, "pid": os.getpid(), "written": time.time(), "error": error}
    unfinished = folder / f"progress.{os.getpid()}.json"
    unfinished.write_text(json.dumps(report), encoding="utf-8")
    unfinished.replace(folder / "progress.json")


def main(arguments: Sequence[str]) -> int:
    """Make the map that FOLDER/request.json asks for: {"vectors": [paths], "rows": [ints], "method", "seed"}."""
    folder = Path(arguments[0])
    try:
        request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        rows = np.array(request["rows"], dtype=np.int32)
        files = [Path(path) for path in request["vectors"]]
        make_map(folder, files, rows=rows, method=request["method"], seed=request["seed"])
    except Exception as error:  # the page reads the reason; the log beside it has the trace
        say(folder, 0, 1, "stopped", error=f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

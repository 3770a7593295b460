"""Two-dimensional layouts of vectors by UMAP or PCA, for one or several models in one frame, and their quality.

With several models, each layout starts from the previous one and is aligned with it (Procrustes), so that a text with
unchanged neighbors stays in place.
"""

# N vectors of D numbers, R rows, k neighbors

import io
import os
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np

from bsc_core.data.dataset import DatasetSplits
from bsc_core.errors import InputError
from bsc_core.neighbors import nearest_others
from bsc_core.types import Ids, Indices, Numbers, Vectors

ShareDone = Callable[[float], None]

SEED = 0  # of the sampled texts: maps of several runs on the same data show the same texts
METHODS = ("umap", "pca")
MAX_MATRIX = 1024  # dimensions up to which PCA computes all directions
SMALLEST_UMAP = 5  # below this number of vectors, PCA is used
MOVING = {"n_epochs": 200, "learning_rate": 0.25}
"""UMAP settings of a layout that starts from another. Neighborhood preservation equals that of the default 500 epochs
at a learning rate of 1, and texts with unchanged neighbors move less."""


def sample_rows(size: int, count: int, *, seed: int = 0) -> Ids:
    """Return all row numbers below `size`, or `count` of them sampled without replacement, ascending."""
    if size <= count:
        return np.arange(size, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(size, count, replace=False)).astype(np.int32)


def sample_texts(data: DatasetSplits, max_texts: int) -> Ids:
    """Return at most `max_texts` text ids, ascending: texts of pairs first, then documents of the corpus, at random."""
    sides = [side for split in data.splits.values() for side in (split.query, split.document)]
    paired = np.unique(np.concatenate(sides))
    others = np.setdiff1d(np.arange(len(data.texts), dtype=np.int32), paired)
    chosen = paired[sample_rows(len(paired), max_texts, seed=SEED)]
    filled = others[sample_rows(len(others), max(0, max_texts - len(chosen)), seed=SEED)]
    return np.sort(np.concatenate([chosen, filled])).astype(np.int32)


def project(
    vectors: Vectors,
    method: str = "umap",
    *,
    seed: int = 0,
    start: Vectors | None = None,
    progress: ShareDone = lambda share: None,
) -> Vectors:
    """Lay vectors out in the plane; the same arguments give the same map.

    Args:
        vectors: (N, D).
        method: One of METHODS.
        seed: Of UMAP.
        start: (N, 2) initial layout of UMAP, by default PCA.
        progress: Called with the completed share, 0 to 1.

    Returns:
        Points (N, 2).

    Raises:
        InputError: The method is unknown, or a value is not finite.
    """
    if method not in METHODS:
        raise InputError(f"map method is {method!r}; choose one of {', '.join(METHODS)}")
    vectors = np.asarray(vectors, dtype=np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InputError(f"vector {row} has a value that is not finite; choose another encoder or checkpoint")
    if method == "pca" or len(vectors) < SMALLEST_UMAP:
        return _pca(vectors)
    return _umap(vectors, seed, start, progress)


def lay_out(
    models: Sequence[Vectors],
    method: str = "umap",
    *,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda number, share: None,
) -> list[Vectors]:
    """Lay out the same N texts for several models, all in one frame.

    Args:
        models: Arrays (N, D); D may differ between models.
        method: One of METHODS.
        seed: Of UMAP.
        report: Called with the index of the current map and its completed share.

    Returns:
        One (N, 2) array per model; each later map is aligned with the previous one without scaling.
    """
    maps: list[Vectors] = []
    for number, vectors in enumerate(models):
        report(number, 0.0)
        start = maps[-1] if maps else None
        points = project(vectors, method, seed=seed, start=start, progress=partial(report, number))
        maps.append(points if start is None else align(points, start))
    return maps


def _pca(vectors: Vectors) -> Vectors:
    """Return the first two principal components (N, 2)."""
    middle = vectors.mean(axis=0, dtype=np.float64)
    directions = _directions(vectors, middle)
    strongest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[strongest, range(directions.shape[1])])  # fixes the signs
    points = vectors @ directions - middle @ directions  # (N, 2), or (N, 1) for vectors of one number
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).astype(np.float32)


def _directions(vectors: Vectors, middle: Numbers) -> Numbers:
    """Return the first two principal directions (D, 2) of vectors with this mean (D,); (1, 1) if D is 1.

    Those of many dimensions are found by the Lanczos method, which needs no (D, D) matrix.
    """
    size = vectors.shape[1]
    if size <= MAX_MATRIX:
        spread = np.zeros((size, size))
        for block in range(0, len(vectors), 8192):
            centered = vectors[block : block + 8192] - middle
            spread += centered.T @ centered
        return np.asarray(np.linalg.eigh(spread)[1][:, ::-1][:, :2])  # the largest first
    from scipy.sparse.linalg import LinearOperator, eigsh

    around = vectors - middle.astype(np.float32)
    if not around.any():
        return np.eye(size, 2)
    operator = LinearOperator((size, size), lambda one: around.T @ (around @ one), dtype=np.float32)
    start = around[np.abs(around).max(axis=1).argmax()]
    return np.asarray(eigsh(operator, k=2, v0=start, tol=1e-4)[1][:, ::-1])


def ignore_numba_settings() -> None:
    """Import numba without its settings in the working folder, which may be a folder from others.

    Numba, which UMAP uses, reads `.numba_config.yaml` when it is imported and before each compilation. The file names
    files that numba writes, and cached code that it executes.
    """
    with TemporaryDirectory() as empty, chdir(empty):
        from numba.core import config
    config._config_fname = os.devnull


def _umap(vectors: Vectors, seed: int, start: Vectors | None, progress: ShareDone) -> Vectors:
    """Run UMAP (McInnes et al. 2018) with 15 neighbors by cosine, initialized from PCA or from `start`.

    With a start, the learning rate is lower and the result (N, 2) is scaled to the spread of the start.
    """
    ignore_numba_settings()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ImportWarning)  # umap warns that TensorFlow, unused here, is absent
        from umap import UMAP
    initial = _pca(vectors) if start is None else start
    layout = UMAP(
        n_neighbors=min(15, len(vectors) - 1),
        min_dist=0.1,
        metric="cosine",
        init=(initial * (10.0 / (float(np.abs(initial).max()) or 1.0))).astype(np.float32),
        random_state=seed,
        n_jobs=1,  # UMAP is not deterministic with several threads
        tqdm_kwds={"disable": False, "file": _Meter(progress), "mininterval": 0.5, "bar_format": "{percentage}"},
        **(MOVING if start is not None else {}),
    )
    points = np.asarray(layout.fit_transform(vectors), dtype=np.float32)
    return points if start is None else points * (_spread(start) / (_spread(points) or 1.0))


def align(points: Vectors, onto: Vectors) -> Vectors:
    """Rotate, reflect and translate `points` (N, 2) to minimize the squared distance to `onto` (N, 2)."""
    center, target = points.mean(axis=0), onto.mean(axis=0)
    left, _, right = np.linalg.svd((points - center).T @ (onto - target))
    return np.asarray((points - center) @ (left @ right) + target, dtype=np.float32)


def _spread(points: Vectors) -> float:
    """Return the root mean squared distance from the center."""
    return float(np.sqrt(points.var(axis=0, dtype=np.float64).sum()))


class _Meter(io.StringIO):
    """Stream for UMAP's progress bar that reports the completed share."""

    def __init__(self, progress: ShareDone) -> None:
        super().__init__()
        self.progress = progress

    def write(self, text: str) -> int:
        if match := re.search(r"\d+(?:\.\d+)?", text):
            self.progress(float(match.group()) / 100)
        return len(text)


def neighborhood_preservation(
    vectors: Vectors, points: Vectors, *, k: int = 10, max_vectors: int = 1000, seed: int = 0
) -> float | None:
    """Return the mean share of a vector's k nearest others (cosine) that are among its k nearest on the map.

    Args:
        vectors: (N, D).
        points: (N, 2), the map.
        k: At most N - 1.
        max_vectors: Maximum number of vectors to evaluate, sampled with `seed`.
        seed: Of the sample.

    Returns:
        0 to 1; None for N < 3.
    """
    if len(vectors) < 3:
        return None
    rows = sample_rows(len(vectors), max_vectors, seed=seed)
    near, _ = nearest_others(vectors, rows, k)
    return float(count_shared_neighbors(near, _nearest_points(points, rows, k)).mean() / near.shape[1])


def count_shared_neighbors(first: Ids, second: Ids) -> Indices:
    """Count the ids in each row of `first` (R, k) that are also in that row of `second` (R, k): (R,)."""
    shared: Indices = (first[:, :, None] == second[:, None, :]).any(axis=2).sum(axis=1)
    return shared


def _nearest_points(points: Vectors, rows: Ids, k: int) -> Ids:
    """Return the k nearest other points of a map (N, 2) for each row: (R, k), with k at most N - 1."""
    from scipy.spatial import cKDTree

    count = min(k + 1, len(points))
    ids = cKDTree(points).query(points[rows], count)[1].reshape(len(rows), count)
    other = ids != rows[:, None]
    other[other.all(axis=1), -1] = False  # duplicates displaced the point itself
    return np.asarray(ids[other].reshape(len(rows), count - 1), dtype=np.int32)

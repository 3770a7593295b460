"""(N, D) vectors to (N, 2) points, by UMAP or PCA, and several models of the same texts in one frame.

Models share one frame: each layout starts from the one before and is then turned onto it (Procrustes), so a text that
kept its neighbours stays where it was.
"""

# N vectors of D numbers

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from bsc_core.errors import InputError

Floats = npt.NDArray[np.float32]
Progress = Callable[[float], None]
"""Called with the share that is done, 0 to 1."""

SMALLEST_UMAP = 5  # with fewer vectors a neighbour graph says nothing, and the plane through them is exact enough
MOVING = {"n_epochs": 200, "learning_rate": 0.25}
"""Of a layout that starts from another: as true to the neighbours as with the usual 500 epochs at a rate of 1, and a
text whose neighbours stayed moves less."""


def no_progress(share: float) -> None:
    """Tell nobody."""


def project(
    vectors: Floats,
    method: str = "umap",
    *,
    seed: int = 0,
    start: Floats | None = None,
    progress: Progress = no_progress,
) -> Floats:
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
    return METHODS[method](vectors, seed, start, progress)


def lay_out(
    models: Sequence[Floats],
    method: str = "umap",
    *,
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda number, share: None,
) -> list[Floats]:
    """Lay the same N texts out as each model sees them, all in one frame.

    models: arrays (N, D), D may differ. tell: called with the number of the map in hand and the share of it that is
    done. Returns one (N, 2) each; later maps are turned, mirrored and moved onto the one before, never stretched.
    """
    maps: list[Floats] = []
    for number, vectors in enumerate(models):
        tell(number, 0.0)
        start = maps[-1] if maps else None
        points = project(vectors, method, seed=seed, start=start, progress=partial(tell, number))
        maps.append(points if start is None else turn_onto(points, start))
    return maps


def pca(vectors: Floats, seed: int = 0, start: Floats | None = None, progress: Progress = no_progress) -> Floats:
    """The two directions of largest variance; exact, so `seed` and `start` change nothing. Returns (N, 2)."""
    middle = vectors.mean(axis=0, dtype=np.float64)
    spread = np.zeros((vectors.shape[1], vectors.shape[1]))
    for block in range(0, len(vectors), 8192):
        centred = vectors[block : block + 8192] - middle
        spread += centred.T @ centred
    directions = np.linalg.eigh(spread)[1][:, ::-1][:, :2]  # (D, 2), the largest first
    strongest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[strongest, range(directions.shape[1])])  # one way round
    points = vectors @ directions - middle @ directions  # (N, 2), or (N, 1) for vectors of one number
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).astype(np.float32)


def umap(vectors: Floats, seed: int = 0, start: Floats | None = None, progress: Progress = no_progress) -> Floats:
    """UMAP with 15 neighbours by cosine (McInnes et al. 2018), from PCA or, in less haste, from `start`.

    Returns (N, 2); from a start with the spread that the start has, for UMAP's own units mean nothing.
    """
    if len(vectors) < SMALLEST_UMAP:
        return pca(vectors)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ImportWarning)  # umap tells that TensorFlow, unused here, is absent
        from umap import UMAP
    begin = pca(vectors) if start is None else start
    layout = UMAP(
        n_neighbors=min(15, len(vectors) - 1),
        min_dist=0.1,
        metric="cosine",
        init=(begin * (10.0 / (float(np.abs(begin).max()) or 1.0))).astype(np.float32),
        random_state=seed,
        n_jobs=1,  # threads would make the map differ from run to run
        tqdm_kwds={"disable": False, "file": _Meter(progress), "mininterval": 0.5, "bar_format": "{percentage}"},
        **(MOVING if start is not None else {}),
    )
    points = np.asarray(layout.fit_transform(vectors), dtype=np.float32)
    return points if start is None else points * (_spread(start) / (_spread(points) or 1.0))


METHODS: dict[str, Callable[[Floats, int, Floats | None, Progress], Floats]] = {"umap": umap, "pca": pca}


def turn_onto(points: Floats, onto: Floats) -> Floats:
    """Rotate, mirror and move `points` (N, 2) to lie nearest `onto` (N, 2) in squares; distances stay as they are."""
    here, there = points.mean(axis=0), onto.mean(axis=0)
    left, _, right = np.linalg.svd((points - here).T @ (onto - there))
    return np.asarray((points - here) @ (left @ right) + there, dtype=np.float32)


def _spread(points: Floats) -> float:
    """Root of the mean squared distance from the middle."""
    return float(np.sqrt(points.var(axis=0, dtype=np.float64).sum()))


class _Meter(io.StringIO):
    """Where UMAP's progress bar is written: it keeps nothing, and tells the share that a line speaks of."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def write(self, text: str) -> int:
        if found := re.search(r"\d+(?:\.\d+)?", text):
            self.progress(float(found.group()) / 100)
        return len(text)

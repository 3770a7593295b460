"""Neighbours are taken in the embedding space, by cosine; a map is measured by how many of them it keeps."""

# N vectors of D numbers, R rows asked, k neighbours

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.projection.texts import sample_rows

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]

BLOCK_SCORES = 2**24  # compared at a time: 64 MiB of them


def unit_vectors(vectors: npt.NDArray[Any]) -> Floats:
    """Each vector at length 1, float32; a zero vector stays zero, NaN stays NaN. vectors: (N, D). Returns (N, D)."""
    vectors = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths != 0)
    return units


def nearest(vectors: npt.NDArray[Any], rows: npt.NDArray[Any], k: int) -> tuple[Rows, Floats]:
    """The k nearest other vectors by cosine of each row in `rows`, nearest first.

    vectors: (N, D). Returns ids (R, k) and cosines (R, k), with k cut to N - 1; equal cosines keep the order of ids.
    """
    units = unit_vectors(vectors)
    return _in_blocks(len(units), rows, k, lambda block: units[block] @ units.T)


def nearest_points(points: Floats, rows: npt.NDArray[Any], k: int) -> Rows:
    """The k nearest other points of a map (N, 2) by distance: (R, k), nearest first."""
    squares = (points**2).sum(axis=1)
    return _in_blocks(len(points), rows, k, lambda block: 2 * points[block] @ points.T - squares)[0]


def _in_blocks(size: int, rows: npt.NDArray[Any], k: int, scores_of: Any) -> tuple[Rows, Floats]:
    """The best k of `scores_of(rows)`, (rows, N) higher being nearer, some rows at a time."""
    step, k = max(1, BLOCK_SCORES // max(1, size)), max(0, min(k, size - 1))
    ids, kept = np.empty((len(rows), k), dtype=np.int32), np.empty((len(rows), k), dtype=np.float32)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        ids[start : start + step], kept[start : start + step] = _top(scores_of(block), block, k)
    return ids, kept


def _top(scores: Floats, rows: npt.NDArray[Any], k: int) -> tuple[Rows, Floats]:
    scores[np.arange(len(rows)), rows] = -np.inf  # a vector is no neighbour of itself
    best = np.sort(np.argpartition(-scores, max(0, k - 1), axis=1)[:, :k], axis=1)  # by id, for the order of equals
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    ids = np.take_along_axis(best, order, axis=1)
    return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)


def kept_neighbours(
    vectors: npt.NDArray[Any], points: Floats, *, k: int = 10, most: int = 1000, seed: int = 0
) -> float | None:
    """How far a map can be trusted: the share of a vector's k nearest (cosine) that are among its k nearest on the map.

    vectors: (N, D), points: (N, 2). At most `most` vectors are asked, drawn with `seed`. Mean, 0 to 1; None for N < 3.
    """
    if len(vectors) < 3:
        return None
    rows = sample_rows(len(vectors), most, seed=seed)
    same = same_neighbours(nearest(vectors, rows, k)[0], nearest_points(points, rows, k))
    return float(same.mean() / min(k, len(vectors) - 1))


def same_neighbours(one: Rows, other: Rows) -> npt.NDArray[np.int64]:
    """(R,) how many of the ids in each row of `one` (R, k) are in the same row of `other` (R, k)."""
    same: npt.NDArray[np.int64] = (one[:, :, None] == other[:, None, :]).any(axis=2).sum(axis=1)
    return same

"""Exact nearest neighbours: the one place that knows Faiss."""

# T vectors searched, Q vectors asked, D dimensions

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids, Vectors
from bsc_core.errors import InputError

Metric = Literal["cosine", "l2"]
Found = tuple[NDArray[np.int64], NDArray[np.float32]]


def unit_rows(vectors: Vectors) -> Vectors:
    """Each row scaled to length 1; a row of length 0 stays 0. vectors: (T, D). Returns float32 (T, D)."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def nearest(vectors: Vectors, queries: Vectors, n: int, metric: Metric = "cosine") -> Found:
    """The n nearest of `vectors` to each query, nearest first; n is clamped to T, so no place stays empty.

    vectors: (T, D), T >= 1. queries: (Q, D). Returns ids (Q, n) into `vectors` and scores (Q, n): cosines, falling,
    or with `l2` squared distances, rising. Raises InputError when a number is not finite: its neighbours are
    undefined.
    """
    return NeighbourSearch(vectors, metric).nearest(queries, n)


class NeighbourSearch:
    """A set of vectors, checked and scaled once, that is asked again and again.

    vectors: (T, D), T >= 1. metric: `cosine`, or `l2` on the vectors as they are. Raises InputError when a number is
    not finite.
    """

    def __init__(self, vectors: Vectors, metric: Metric) -> None:
        self.metric = metric
        self.searched = self._prepare(vectors)

    def nearest(self, queries: Vectors, n: int) -> Found:
        """As the function `nearest`."""
        return self._search(self._prepare(queries), n)

    def others(self, asked: Ids, n: int) -> Ids:
        """The n nearest other vectors of some of the vectors, nearest first; n is clamped to T - 1.

        asked: (Q,) numbers of vectors. Returns (Q, n); no row holds the vector that asked.
        """
        n = min(n, len(self.searched) - 1)
        ids, _ = self._search(self.searched[asked], n + 1)  # (Q, n + 1)
        kept = ids != asked[:, None]
        kept[kept.all(axis=1), -1] = False  # equal vectors took the place of the one that asked
        return np.asarray(ids[kept].reshape(len(asked), n), dtype=np.int32)

    def _search(self, queries: Vectors, n: int) -> Found:
        import faiss

        kind = faiss.METRIC_INNER_PRODUCT if self.metric == "cosine" else faiss.METRIC_L2
        scores, ids = faiss.knn(queries, self.searched, min(n, len(self.searched)), metric=kind)
        return ids, scores

    def _prepare(self, vectors: Vectors) -> Vectors:
        if not np.isfinite(vectors).all():
            raise InputError("embeddings hold a number that is not finite; encode again, neighbours are undefined")
        return unit_rows(vectors) if self.metric == "cosine" else np.ascontiguousarray(vectors, dtype=np.float32)

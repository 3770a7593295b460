"""Nearest neighbours, exact or approximate: the one place that knows Faiss.

Approximate search is an inverted file: the vectors are kept as 16-bit floats in lists, one for each of some k-means
centroids, and a search reads the lists of the centroids next to the query. How many lists it reads follows from the
recall measured on a sample.
"""

# V vectors given, T of them searched, Q vectors asked, D dimensions, n neighbours, C lists

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids, Vectors
from bsc_core.errors import InputError

Metric = Literal["cosine", "l2"]
Search = Literal["auto", "exact", "approximate"]
Found = tuple[NDArray[np.int64], NDArray[np.float32]]

EXACT_UP_TO = 200_000  # vectors; `auto` searches more of them approximately, which is no faster for fewer
RECALL = 0.98  # more lists are read until the sample's recall reaches this ...
LARGEST_SHARE = 6  # ... or one list of so many is read
FIRST_PROBES = 8  # lists read at first
SAMPLE = 200  # vectors that recall is measured on
LEARNT_FROM = 64  # vectors for each list that the centroids are fitted to
BLOCK = 32_768  # vectors copied at a time
HUGE, TINY = 1e15, 1e-30  # squares of larger numbers leave the range of float32; smaller ones are 0
TIE = 1e-6  # neighbours so little farther than the n-th are as near


def unit_rows(vectors: Vectors) -> Vectors:
    """Each row scaled to length 1; a row of length 0 stays 0. vectors: (T, D). Returns float32 (T, D)."""
    unit = np.array(vectors, dtype=np.float32, order="C")
    for start in range(0, len(unit), BLOCK):
        part = unit[start : start + BLOCK]
        lengths = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))[:, None]  # float32 squares may overflow
        np.divide(part, lengths, out=part, where=lengths > 0, casting="same_kind")
    return unit


def nearest(vectors: Vectors, queries: Vectors, n: int, metric: Metric = "cosine") -> Found:
    """The n nearest of `vectors` to each query, exactly, nearest first; n is clamped to T, so no place stays empty.

    vectors: (T, D), T >= 1. queries: (Q, D). Returns ids (Q, n) into `vectors` and scores (Q, n): cosines, falling,
    or with `l2` squared distances, rising. Raises InputError when a number is not finite: its neighbours are
    undefined.
    """
    return NeighbourSearch(vectors, metric, search="exact").nearest(queries, n)


class NeighbourSearch:
    """A set of vectors, checked once, that is asked again and again.

    vectors: (V, D). metric: `cosine`, or `l2` on the vectors as they are. rows: (T,) the vectors to search, T >= 1, by
    default all; ids in answers count within them. search: `auto` is exact up to 200,000 vectors and approximate above.
    seed: of everything drawn. Uses as many threads as PyTorch was told to, or else every core. Approximate search
    keeps 2 bytes for each number beside the vectors given, which must not change; exact search keeps 4. Raises
    InputError when a number is not finite.

    facts: the search used, and where it is approximate the share of the n nearest vectors that it found (`recall`) for
    `recall_sample` vectors, measured when it is first asked.
    """

    def __init__(
        self, vectors: Vectors, metric: Metric, *, rows: Ids | None = None, search: Search = "auto", seed: int = 0
    ) -> None:
        self.metric = metric
        self.rows = rows
        self.seed = seed
        self.given = vectors
        self.size = len(vectors) if rows is None else len(rows)
        self.approximate = self.size > (EXACT_UP_TO if search == "auto" else 0 if search == "approximate" else np.inf)
        self.facts: dict[str, float | str] = {"search": "approximate" if self.approximate else "exact"}
        self._tuned_for = self._probes = 0
        self._scale = self._checked_scale()
        self._index: Any = self._inverted_file() if self.approximate else None
        self._searched = None if self.approximate else self._all()

    def nearest(self, queries: Vectors, n: int) -> Found:
        """As the function `nearest`."""
        if not np.isfinite(queries).all():
            raise _not_finite()
        return self._search(self._prepare(queries), min(n, self.size))

    def others(self, asked: Ids, n: int) -> Ids:
        """The n nearest other vectors of some of the vectors, nearest first; n is clamped to T - 1.

        asked: (Q,) numbers of vectors. Returns (Q, n); no row holds the vector that asked.
        """
        return _without(asked, self._search(self._take(asked), min(n + 1, self.size))[0])

    def others_exactly(self, asked: Ids, n: int) -> Ids:
        """As `others`, by comparing with every vector, whatever the search is."""
        return _without(asked, self._compare_all(self._take(asked), min(n + 1, self.size))[0])

    def similarities(self, one: int, others: Ids) -> Vectors:
        """Cosines, or negative squared distances, of a vector with others. others: (Q,). Returns (Q,)."""
        left, right = self._take(np.array([one]))[0].astype(np.float64), self._take(others).astype(np.float64)
        scores = right @ left if self.metric == "cosine" else -((right - left) ** 2).sum(axis=1) / self._scale**2
        return np.asarray(scores, dtype=np.float32)

    def _search(self, queries: Vectors, n: int) -> Found:
        if self._searched is not None:
            scores, ids = _faiss().knn(queries, self._searched, n, metric=self._kind())
        else:
            if self._tuned_for != n:
                self._tune(n)
            ids, scores = self._read_lists(queries, n, self._probes)
        if ids.min(initial=0) < 0:
            raise InputError("embeddings hold numbers too large to compare; encode again, neighbours are undefined")
        return ids, scores if self._scale == 1 else (scores / np.float64(self._scale) ** 2).astype(np.float32)

    def _read_lists(self, queries: Vectors, n: int, probes: int) -> Found:
        """As `_search` in `probes` lists for each query, and in more where those hold fewer than n vectors."""
        scores, ids = self._index.search(queries, n, params=_faiss().SearchParametersIVF(nprobe=probes))
        short = np.flatnonzero(ids[:, -1] < 0)
        if len(short) and probes < self._index.nlist:
            ids[short], scores[short] = self._read_lists(queries[short], n, min(4 * probes, self._index.nlist))
        return ids, scores

    def _compare_all(self, queries: Vectors, n: int) -> Found:
        """As `_search` in every vector, of which a block is held at a time; scores as Faiss gives them."""
        ids = np.empty((len(queries), 0), dtype=np.int64)
        scores = np.empty((len(queries), 0), dtype=np.float32)
        sign = -1 if self.metric == "cosine" else 1
        for start in range(0, self.size, BLOCK):
            block = self._take(np.arange(start, min(start + BLOCK, self.size)))
            found, places = _faiss().knn(queries, block, min(n, len(block)), metric=self._kind())
            ids, scores = np.hstack([ids, places + start]), np.hstack([scores, found])
            best = np.argsort(sign * scores, axis=1, kind="stable")[:, :n]
            ids, scores = np.take_along_axis(ids, best, 1), np.take_along_axis(scores, best, 1)
        return ids, scores

    def _inverted_file(self) -> Any:
        faiss = _faiss()
        lists = max(1, min(int(2 * self.size**0.5), self.size // 40))
        dimensions = self.given.shape[1]
        centroids = faiss.IndexFlatIP(dimensions) if self.metric == "cosine" else faiss.IndexFlatL2(dimensions)
        index = faiss.IndexIVFScalarQuantizer(
            centroids, dimensions, lists, faiss.ScalarQuantizer.QT_fp16, self._kind(), False
        )
        index.cp.seed, index.cp.niter, index.cp.min_points_per_centroid = self.seed % 2**31, 8, 1
        index.train(self._take(self._sample(LEARNT_FROM * lists)))
        for start in range(0, self.size, BLOCK):
            index.add(self._take(np.arange(start, min(start + BLOCK, self.size))))
        return index

    def _tune(self, n: int) -> None:
        """Choose how many lists are read for n neighbours, the vector that asks among them, and state the recall."""
        sample = self._sample(SAMPLE)
        queries = self._take(sample)
        exact = _without(sample, self._compare_all(queries, n)[0])
        farthest = [self.similarities(one, near[-1:]).min(initial=2) for one, near in zip(sample, exact, strict=True)]
        self._probes = min(FIRST_PROBES, self._index.nlist)
        most = max(self._probes, self._index.nlist // LARGEST_SHARE)
        while (recall := self._recall(sample, queries, farthest, n)) < RECALL and self._probes < most:
            self._probes = min(2 * self._probes, most)
        self._tuned_for = n
        self.facts |= {"recall": recall, "recall_sample": float(len(sample))}

    def _recall(self, sample: Ids, queries: Vectors, farthest: list[float], n: int) -> float:
        """Share of the n - 1 others found that are as near as the farthest of the exact ones: of equals any will do."""
        others = _without(sample, self._read_lists(queries, n, self._probes)[0])
        near = [
            self.similarities(one, found) >= limit - TIE * (1 if self.metric == "cosine" else abs(limit))
            for one, found, limit in zip(sample, others, farthest, strict=True)
        ]
        return float(np.mean(near)) if others.size else 1.0

    def _sample(self, count: int) -> Ids:
        """At most `count` numbers of vectors, drawn by the seed, ascending."""
        if count >= self.size:
            return np.arange(self.size, dtype=np.int32)
        drawn = np.random.default_rng(self.seed).choice(self.size, count, replace=False)
        return np.sort(drawn).astype(np.int32)

    def _checked_scale(self) -> float:
        """What `l2` multiplies each number by before it is kept as a 16-bit float; 1 for exact search."""
        largest = 0.0
        for start in range(0, self.size, BLOCK):
            rows = slice(start, start + BLOCK) if self.rows is None else self.rows[start : start + BLOCK]
            part = self.given[rows]
            if not np.isfinite(part).all():
                raise _not_finite()
            if self.metric == "l2":
                largest = max(largest, float(np.abs(part).max(initial=0)))
        if largest > HUGE:
            raise InputError(f"embeddings hold numbers as large as {largest:.0e}; for these choose the nearness cosine")
        return 1 / largest if self.approximate and largest > TINY else 1.0

    def _all(self) -> Vectors:
        if self.metric == "l2" and self.rows is None:
            return self._prepare(self.given)
        vectors = np.empty((self.size, self.given.shape[1]), dtype=np.float32)
        for start in range(0, self.size, BLOCK):
            stop = min(start + BLOCK, self.size)
            vectors[start:stop] = self._take(np.arange(start, stop))
        return vectors

    def _take(self, places: NDArray[np.integer[Any]]) -> Vectors:
        """Some of the vectors as they are compared. places: (Q,). Returns (Q, D)."""
        return self._prepare(self.given[places if self.rows is None else self.rows[places]])

    def _prepare(self, vectors: Vectors) -> Vectors:
        if self.metric == "cosine":
            return unit_rows(vectors)
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        return vectors if self._scale == 1 else vectors * np.float32(self._scale)

    def _kind(self) -> int:
        faiss = _faiss()
        kind: int = faiss.METRIC_INNER_PRODUCT if self.metric == "cosine" else faiss.METRIC_L2
        return kind


def _without(asked: Ids, ids: NDArray[np.int64]) -> Ids:
    """Each row without the vector that asked, or where that is not found without the last. ids: (Q, n), n >= 1."""
    kept = ids != asked[:, None]
    kept[kept.all(axis=1), -1] = False  # equal vectors took the place of the one that asked
    return np.asarray(ids[kept].reshape(len(asked), ids.shape[1] - 1), dtype=np.int32)


def _not_finite() -> InputError:
    return InputError("embeddings hold a number that is not finite; encode again, neighbours are undefined")


def _faiss() -> Any:
    """The library, with the thread count that PyTorch has where it is loaded; a new thread starts with every core."""
    import faiss

    if "torch" in sys.modules:
        faiss.omp_set_num_threads(sys.modules["torch"].get_num_threads())
    return faiss

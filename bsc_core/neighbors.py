"""Nearest neighbors: unit vectors, exact search with a fixed order of ties, and Faiss.

`top_k` compares block by block and orders ties by position: evaluation and maps use it, and its documents may be a
file. `NeighborSearch` uses Faiss and serves batch plans, which query the same vectors repeatedly; its approximate
search is an inverted file of 16-bit floats that reads as many lists as a target recall on a sample requires.
"""

# V vectors in all, T of them searched, Q queries, M documents, D dimensions, k or n neighbors

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import DataError, InputError, ModelError
from bsc_core.types import Ids, Indices, Mask, Numbers, Progress, Vectors

Metric = Literal["cosine", "l2"]
Search = Literal["auto", "exact", "approximate"]
Selection = Literal["float32", "bfloat16"]
Neighbors = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Ids and scores."""

TIE = 1e-6  # cosines that differ by less are equal: matrix products of equal vectors differ by as much
SPARE = 16  # documents fetched beyond the k-th, to see which are tied with it
BLOCK_BYTES = 32 * 2**20  # of cosines
BLOCK_DOCUMENTS = 16_384
ROWS_AT_ONCE = 256  # their float64 copy stays in the processor's cache

LAST = 2**32 - 1
EMPTY = np.iinfo(np.int64).min
PARTITIONED_AT_ONCE = 32  # rows; their keys stay in the processor's cache
MAX_SORTED = 4  # times the width: up to so many new candidates are sorted, more are partitioned
COLUMNS = 512  # minimum number of columns onto which scores are folded to bound the k-th score from below

EXACT_UP_TO = 200_000  # vectors; `auto` searches more of them approximately, which is not faster for fewer
RECALL = 0.98  # more lists are read until the sample's recall reaches this ...
LARGEST_SHARE = 6  # ... or one list of so many is read
FIRST_PROBES = 8  # lists read at first
FEWEST_PROBES = 2  # the same where every query is searched, so that each list costs more
SAMPLE = 200  # vectors that recall is estimated from
FITTED_PER_LIST = 64  # vectors for each list that the centroids are fitted to
BLOCK = 32_768  # vectors copied at a time
QUERIES_AT_ONCE = 65_536  # that `ranked` searches
ROUNDED_AT_ONCE = 2048  # vectors; their copy stays in the processor's cache
ROUNDED_BYTES = 128 * 2**20  # of rounded cosines at a time
ROUNDING = 2.0**-9  # largest relative difference of a number and its bfloat16
ACCUMULATED = 1e-4  # more than the sums of a matrix product of unit vectors differ by
BF16_FLAGS = ("avx512_bf16", "amx_bf16")
HUGE, TINY = 1e15, 1e-30  # squares of larger numbers exceed the range of float32; smaller ones are 0


@cache
def has_bf16_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor has instructions for matrix products of bfloat16; without, they are far slower."""
    if platform.system() != "Linux" or not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    return any(flag in flags for flag in BF16_FLAGS)


@dataclass(frozen=True, eq=False)
class TextRows:
    """A view of `vectors[ids]`, (M, D), that copies only the rows that are read."""

    vectors: Vectors  # (U, D), for example a memory-mapped file
    ids: Ids  # (M,) text ids

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, D)."""
        return len(self.ids), self.vectors.shape[1]

    def __getitem__(self, rows: slice | Ids) -> Vectors:
        """Return a copy of these rows."""
        return self.vectors[self.ids[rows]]


Documents = Vectors | TextRows
"""The vectors of M documents, (M, D)."""


def unit_rows(vectors: Documents) -> Vectors:
    """Scale each row to length 1; a zero row stays zero and NaN stays NaN.

    Args:
        vectors: (T, D).

    Returns:
        (T, D) float32.
    """
    unit = np.empty(vectors.shape, dtype=np.float32)
    for start in range(0, len(unit), ROWS_AT_ONCE):
        rows = np.asarray(vectors[start : start + ROWS_AT_ONCE], dtype=np.float32).astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]  # squares in float32 may overflow
        with np.errstate(invalid="ignore"):
            unit[start : start + ROWS_AT_ONCE] = np.divide(rows, lengths, out=rows, where=lengths > 0)
    return unit


def check_finite(values: Vectors, problem: str) -> Vectors:
    """Return what a model computed.

    Raises:
        ModelError: A number is not finite, so that it would compare with no other; the message is `problem`.
    """
    if not np.isfinite([values.min(initial=0), values.max(initial=0)]).all():
        raise ModelError(problem)
    return values


def finite_unit_rows(vectors: Vectors, *, first: int = 0) -> Vectors:
    """Return `unit_rows` of finite vectors.

    Args:
        vectors: (T, D).
        first: Number of the first row, for the message of an error.

    Raises:
        DataError: A number is not finite.
    """
    units = unit_rows(vectors)
    finite = np.isfinite(units.sum(axis=1))
    if not finite.all():
        raise _row_not_finite(first + int(np.flatnonzero(~finite)[0]))
    return units


def paired_cosines(left: Vectors, right: Vectors) -> Numbers:
    """Return the cosine of each row of `left` (N, D) with the same row of `right` (N, D): (N,).

    Computed in float64 so that equal vectors have a cosine of exactly 1 on every processor: metrics of pairs rank by
    it, and rounding would order ties. A zero vector has cosine 0.

    Raises:
        DataError: A number is not finite.
    """
    cosines = np.zeros(len(left))
    for start in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        one, two = left[rows].astype(np.float64), right[rows].astype(np.float64)
        products = np.einsum("nd,nd->n", one, one) * np.einsum("nd,nd->n", two, two)
        if not np.isfinite(products).all():
            raise _row_not_finite(start + int(np.flatnonzero(~np.isfinite(products))[0]))
        dots = np.einsum("nd,nd->n", one, two)
        np.divide(dots, np.sqrt(products), out=cosines[rows], where=products > 0)
    return cosines


def top_k(queries: Vectors, documents: Documents, k: int, progress: Progress | None = None) -> tuple[Ids, Vectors]:
    """Find the k documents with the highest cosine for each query, exactly.

    Cosines that follow each other within `TIE` are ties and are ordered by position, so that the order does not depend
    on the processor or on the order of summation. Beyond the k-th, `SPARE` documents are searched for ties.

    Args:
        queries: (Q, D); neither side needs to be normalized, and a zero vector has cosine 0.
        documents: (M, D), in memory, a memory-mapped file, or `TextRows` of one.
        k: number of documents, at most M.
        progress: called with (documents compared, M).

    Returns:
        Positions (Q, k) and cosines (Q, k), best first.

    Raises:
        DataError: A vector is not finite, or the two sides differ in size.
    """
    units = query_units(queries, documents)
    best = TopK(len(queries), k, len(documents))
    for block, rows, cosines in cosine_blocks(units, documents, progress):
        best.add(rows, block.start, cosines)
    return best.result()


def nearest_others(vectors: Vectors, rows: NDArray[np.integer[Any]], k: int) -> tuple[Ids, Vectors]:
    """Find the k (at most N - 1) nearest other vectors of some rows as `top_k` does.

    Args:
        vectors: (N, D).
        rows: (Q,) rows of `vectors`.
        k: Number of neighbors.

    Returns:
        Ids and cosines, both (Q, k).
    """
    ids, cosines = top_k(vectors[rows], vectors, k + 1)
    other = _others(rows, ids)
    shape = len(rows), ids.shape[1] - 1
    return ids[other].reshape(shape), cosines[other].reshape(shape)


def query_units(queries: Vectors, documents: Documents) -> Vectors:
    """Return the unit vectors of the queries (Q, D).

    Raises:
        DataError: As `top_k`.
    """
    if queries.shape[1] != documents.shape[1]:
        sizes = f"{queries.shape[1]} numbers for the queries and of {documents.shape[1]} for the documents"
        raise DataError(f"retrieval: vectors of {sizes}; encode both with one model")
    return finite_unit_rows(queries)


def cosine_blocks(
    units: Vectors, documents: Documents, progress: Progress | None = None
) -> Iterator[tuple[slice, slice, Vectors]]:
    """Iterate over slices of documents and queries with their cosines, which the next block overwrites.

    Args:
        units: (Q, D) normalized queries.
        documents: (M, D), normalized here.
        progress: Called with the number of finished and of all documents.
    """
    width = max(1, min(BLOCK_DOCUMENTS, len(documents)))
    height = max(1, min(len(units), BLOCK_BYTES // (4 * width)))
    buffer = np.empty(height * width, dtype=np.float32)
    for first in range(0, len(documents), width):
        block = slice(first, min(first + width, len(documents)))
        columns = finite_unit_rows(documents[block], first=first).T  # (D, C)
        for start in range(0, len(units), height):
            rows = slice(start, min(start + height, len(units)))
            size = rows.stop - rows.start, columns.shape[1]
            cosines = buffer[: size[0] * size[1]].reshape(size)
            yield block, rows, np.matmul(units[rows], columns, out=cosines)
        if progress is not None:
            progress(block.stop, len(documents))


class TopK:
    """The k columns with the highest score of each row, collected block by block; ties as in `top_k`.

    A score and a position are packed into one integer: a higher score is a larger integer and of equal scores the
    earlier position, so that one partition of integers selects the best and the blocks may have any size.
    """

    # B rows and C columns of a block, W = min(k + SPARE, columns) collected

    def __init__(self, rows: int, k: int, columns: int) -> None:
        self._k = min(k, columns)
        width = min(k + SPARE, columns) if k > 0 else 0
        self._keys = np.full((rows, width), EMPTY, dtype=np.int64)  # each row is descending

    def add(self, rows: slice, first: int, scores: Vectors) -> None:
        """Add a block of scores.

        Args:
            rows: Rows of the block.
            first: Position of the first column of the block.
            scores: (B, C), all finite.
        """
        collected = self._keys[rows]
        if not collected.size:
            return
        empty = bool((collected[:, -1] == EMPTY).any())
        higher = scores >= _bound(scores, collected.shape[1]) if empty else scores > _scores(collected[:, -1:])
        candidates = np.flatnonzero(higher)
        if len(candidates) > MAX_SORTED * collected.size:
            self._add_all(rows, first, scores)
        elif len(candidates):
            row, column = np.divmod(candidates, scores.shape[1])
            self._keys[rows] = _merge(collected, row, _keys(scores[row, column], first + column))

    def _add_all(self, rows: slice, first: int, scores: Vectors) -> None:
        width = self._keys.shape[1]
        positions = first + np.arange(scores.shape[1])
        for start in range(0, len(scores), PARTITIONED_AT_ONCE):
            part = slice(rows.start + start, min(rows.start + start + PARTITIONED_AT_ONCE, rows.stop))
            keys = _keys(scores[start : start + PARTITIONED_AT_ONCE], positions)
            if keys.shape[1] > width:
                keys.partition(keys.shape[1] - width, axis=1)
                keys = keys[:, -width:]
            both = np.concatenate([self._keys[part], keys], axis=1)
            both.sort(axis=1)
            self._keys[part] = both[:, : -width - 1 : -1]

    def result(self) -> tuple[Ids, Vectors]:
        """Return positions (Q, k) and scores (Q, k), best first."""
        positions, scores = (LAST - (self._keys & LAST)).astype(np.int32), _scores(self._keys)
        starts = tie_starts(scores)
        if not starts.all():
            order = np.lexsort((positions, np.cumsum(starts, axis=1)), axis=1)
            positions, scores = np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1)
        return positions[:, : self._k], scores[:, : self._k]


def tie_starts(scores: Vectors) -> Mask:
    """Mark where a new value starts in descending rows (Q, W); every other cell is tied with the previous one."""
    return np.asarray(np.diff(scores, axis=1, prepend=np.inf) < -TIE)


def first_highest(scores: NDArray[np.floating[Any]]) -> int:
    """Return the first index whose score is within `TIE` of the highest.

    Args:
        scores: (N,), N >= 1.
    """
    return int(np.argmax(scores >= scores.max() - TIE))


def _bound(scores: Vectors, n: int) -> Vectors:
    """Return a bound (B, 1) that the n largest of each row (B, C) reach, and few others.

    It is the n-th largest of the folded columns' maxima, which are cheaper than a partition.
    """
    columns = max(COLUMNS, 8 * n)
    covered = scores.shape[1] // columns * columns
    if not covered:
        return np.full((len(scores), 1), -np.inf, dtype=np.float32)
    largest = scores[:, :covered].reshape(len(scores), -1, columns).max(axis=1)  # (B, columns)
    return np.partition(largest, columns - n, axis=1)[:, columns - n, None]


def _merge(collected: Indices, row: Indices, keys: Indices) -> Indices:
    """Return the W largest keys of each row. collected: (B, W); row, keys: further keys, each with its row."""
    rows, width = collected.shape
    row = np.concatenate([np.repeat(np.arange(rows), width), row])
    keys = np.concatenate([collected.ravel(), keys])
    order = np.lexsort((~keys, row))  # ~ reverses the order, of the smallest integer too
    counts = np.bincount(row, minlength=rows)
    index = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)  # position within the row
    return np.asarray(keys[order[index < width]].reshape(rows, width))


def _keys(scores: Vectors, positions: Indices) -> Indices:
    bits = (scores + np.float32(0)).view(np.int32)  # adding 0 turns -0 into 0
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)  # integers now increase with the scores
    return np.asarray((bits.astype(np.int64) << 32) | (LAST - positions))


def _scores(keys: Indices) -> Vectors:
    bits = (keys >> 32).astype(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    return bits.view(np.float32)


def nearest(vectors: Vectors, queries: Vectors, n: int, metric: Metric = "cosine") -> Neighbors:
    """Find the n (at most T) nearest of `vectors` to each query with Faiss, exactly, nearest first.

    Args:
        vectors: (T, D), T >= 1.
        queries: (Q, D).
        n: Number of neighbors.
        metric: "cosine" or "l2".

    Returns:
        Ids (Q, n) into `vectors`, and scores (Q, n): cosines, or with `l2` squared distances.

    Raises:
        InputError: A number is not finite.
    """
    return NeighborSearch(vectors, metric, search="exact").nearest(queries, n)


class NeighborSearch:
    """A Faiss index of vectors that is queried repeatedly.

    Uses as many threads as PyTorch, or every core without it. Approximate search holds 2 bytes per number in addition
    to the vectors, which must not change; exact search holds 4.

    Args:
        vectors: (V, D).
        metric: `cosine`, or `l2` on the vectors without normalization.
        rows: (T,) the vectors to search, T >= 1, by default all; result ids are indices into `rows`.
        search: `auto` is exact up to 200,000 vectors and approximate above.
        seed: seed of all sampling.
        select_in: exact search by cosine selects slightly more than the n nearest vectors in this precision and
            computes their cosines in float64, so that the result is the same on every processor; equal cosines are
            ordered by id. bfloat16 is faster on a processor with instructions for it; it needs PyTorch and 2 more
            bytes per number. By default, cosines are computed in float32.

    Attributes:
        facts: the search used (`search`), and for an approximate one the share of the n nearest vectors that it
            finds (`recall`) for `recall_sample` vectors, known after the first query.

    Raises:
        InputError: A number is not finite.
    """

    def __init__(
        self,
        vectors: Vectors,
        metric: Metric,
        *,
        rows: Ids | None = None,
        search: Search = "auto",
        seed: int = 0,
        select_in: Selection | None = None,
    ) -> None:
        self.metric = metric
        self.rows = rows
        self.seed = seed
        self.vectors = vectors
        self.size = len(vectors) if rows is None else len(rows)
        self.approximate = self.size > (EXACT_UP_TO if search == "auto" else 0 if search == "approximate" else np.inf)
        self.facts: dict[str, float | str] = {"search": "approximate" if self.approximate else "exact"}
        self._tuned_for = self._probes = 0
        self._scale = self._checked_scale()
        self._index: Any = self._inverted_file() if self.approximate else None
        self._searched = None if self.approximate else self._all()
        self._precise: _PreciseSearch | None = None
        if select_in is not None and metric == "cosine" and self._searched is not None:
            self._precise = _PreciseSearch(self._searched, select_in)

    def nearest(self, queries: Vectors, n: int) -> Neighbors:
        """Find the n nearest vectors of each query, as the function `nearest`."""
        if not np.isfinite(queries).all():
            raise _not_finite()
        return self._search(self._prepare(queries), min(n, self.size))

    def ranked(self, queries: Documents, n: int, progress: Progress | None = None) -> Ids:
        """Find the n (at most T) nearest vectors of many queries, nearest first; ties are ordered by id.

        Cosines that follow each other within `TIE` are ties, and squared distances within `TIE` of the sum of squared
        distance and squared length of the query. Beyond the n-th, `SPARE` vectors are searched for ties, so that the
        order does not depend on the processor. The recall of approximate search is that of a sample of the queries.

        Args:
            queries: (Q, D).
            n: Number of neighbors of a query.
            progress: Called with (queries searched, Q).

        Returns:
            (Q, n) indices of the searched vectors.
        """
        ranked = np.empty((len(queries), min(n, self.size)), dtype=np.int32)
        searched = min(n + SPARE, self.size)
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part = queries[start : start + QUERIES_AT_ONCE]
            if not np.isfinite(part).all():
                raise _not_finite()
            if self.approximate and start == 0:
                sample = queries[_sample(len(queries), SAMPLE, self.seed)]
                self._tune(searched, self._prepare(sample), first=FEWEST_PROBES)
            ids, scores = self._search(self._prepare(part), searched)
            ranked[start : start + len(part)] = self._ordered_ties(ids, scores, part)[:, :n]
            if progress is not None:
                progress(start + len(part), len(queries))
        return ranked

    def _ordered_ties(self, ids: Indices, scores: Vectors, queries: Vectors) -> Indices:
        """Order tied vectors by id, see `ranked`; ids, scores: (Q, n), nearest first."""
        tolerance = np.full((len(queries), 1), TIE, dtype=np.float32)
        if self.metric == "l2":
            tolerance = tolerance * (scores[:, 1:] + np.einsum("qd,qd->q", queries, queries)[:, None])
        tied = np.abs(np.diff(scores, axis=1)) <= tolerance  # with the vector before
        rows = np.flatnonzero(tied.any(axis=1))
        if len(rows):
            value = np.cumsum(np.pad(~tied[rows], ((0, 0), (1, 0))), axis=1)
            ids[rows] = np.take_along_axis(ids[rows], np.lexsort((ids[rows], value), axis=1), axis=1)
        return ids

    def others(self, indices: Ids, n: int) -> Ids:
        """Find the n (at most T - 1) nearest other vectors of some of the vectors, nearest first.

        Args:
            indices: (Q,) indices of the searched vectors that are the queries.
            n: Number of neighbors of a query.

        Returns:
            (Q, n) indices of the searched vectors; no row contains its own query.
        """
        return _without(indices, self._search(self._take(indices), min(n + 1, self.size))[0])

    def others_exactly(self, indices: Ids, n: int) -> Ids:
        """Find the same as `others` by exact search."""
        return _without(indices, self._compare_all(self._take(indices), min(n + 1, self.size))[0])

    def similarities(self, one: int, others: Ids) -> Vectors:
        """Return cosines, or negative squared distances, of a vector with others (Q,): (Q,)."""
        return self._similarities(self._take(np.array([one]))[0], others)

    def _similarities(self, query: Vectors, others: NDArray[np.integer[Any]]) -> Vectors:
        """Return the same for a prepared query (D,)."""
        left, right = query.astype(np.float64), self._take(others).astype(np.float64)
        scores = right @ left if self.metric == "cosine" else -((right - left) ** 2).sum(axis=1) / self._scale**2
        return np.asarray(scores, dtype=np.float32)

    def _search(self, queries: Vectors, n: int) -> Neighbors:
        if self._precise is not None:
            ids, scores = self._precise.nearest(queries, n)
        elif self._searched is not None:
            scores, ids = _faiss().knn(queries, self._searched, n, metric=self._kind())
        else:
            if self._tuned_for != n:
                sample = _sample(self.size, SAMPLE, self.seed)
                self._tune(n, self._take(sample), own=sample)
            ids, scores = self._read_lists(queries, n, self._probes)
        if ids.min(initial=0) < 0:
            raise InputError("embeddings contain numbers too large to compare; encode again, neighbors are undefined")
        return ids, scores if self._scale == 1 else (scores / np.float64(self._scale) ** 2).astype(np.float32)

    def _read_lists(self, queries: Vectors, n: int, probes: int) -> Neighbors:
        """Search `probes` lists for each query, and more where those hold fewer than n vectors."""
        scores, ids = self._index.search(queries, n, params=_faiss().SearchParametersIVF(nprobe=probes))
        short = np.flatnonzero(ids[:, -1] < 0)
        if len(short) and probes < self._index.nlist:
            ids[short], scores[short] = self._read_lists(queries[short], n, min(4 * probes, self._index.nlist))
        return ids, scores

    def _compare_all(self, queries: Vectors, n: int) -> Neighbors:
        """Search every vector, a block at a time; scores as Faiss gives them."""
        ids = np.empty((len(queries), 0), dtype=np.int64)
        scores = np.empty((len(queries), 0), dtype=np.float32)
        sign = -1 if self.metric == "cosine" else 1
        for start in range(0, self.size, BLOCK):
            block = self._take(np.arange(start, min(start + BLOCK, self.size)))
            block_scores, block_ids = _faiss().knn(queries, block, min(n, len(block)), metric=self._kind())
            ids, scores = np.hstack([ids, block_ids + start]), np.hstack([scores, block_scores])
            best = np.argsort(sign * scores, axis=1, kind="stable")[:, :n]
            ids, scores = np.take_along_axis(ids, best, 1), np.take_along_axis(scores, best, 1)
        return ids, scores

    def _inverted_file(self) -> Any:
        faiss = _faiss()
        lists = max(1, min(int(2 * self.size**0.5), self.size // 40))
        dimensions = self.vectors.shape[1]
        centroids = faiss.IndexFlatIP(dimensions) if self.metric == "cosine" else faiss.IndexFlatL2(dimensions)
        index = faiss.IndexIVFScalarQuantizer(
            centroids, dimensions, lists, faiss.ScalarQuantizer.QT_fp16, self._kind(), False
        )
        index.cp.seed, index.cp.niter, index.cp.min_points_per_centroid = self.seed % 2**31, 8, 1
        index.train(self._take(_sample(self.size, FITTED_PER_LIST * lists, self.seed)))
        for start in range(0, self.size, BLOCK):
            index.add(self._take(np.arange(start, min(start + BLOCK, self.size))))
        return index

    def _tune(self, n: int, queries: Vectors, own: Ids | None = None, first: int | None = None) -> None:
        """Choose how many lists are read for n neighbors of each query, and store the recall.

        queries: prepared, (Q, D). own: (Q,), ids of vectors that are one of the n and not counted. first: the lowest
        number; None: FIRST_PROBES.
        """
        exact = np.asarray(self._compare_all(queries, n)[0], dtype=np.int32)
        exact = exact if own is None else _without(own, exact)
        farthest = [self._similarities(one, near[-1:]).min(initial=2) for one, near in zip(queries, exact, strict=True)]
        self._probes = min(first or FIRST_PROBES, self._index.nlist)
        max_probes = max(self._probes, self._index.nlist // LARGEST_SHARE)
        while (recall := self._recall(queries, own, farthest, n)) < RECALL and self._probes < max_probes:
            self._probes = min(2 * self._probes, max_probes)
        self._tuned_for = n
        self.facts |= {"recall": recall, "recall_sample": float(len(queries))}

    def _recall(self, queries: Vectors, own: Ids | None, farthest: list[float], n: int) -> float:
        """Return the share of the results that are as near as the farthest exact one, so that ties count."""
        results = np.asarray(self._read_lists(queries, n, self._probes)[0], dtype=np.int32)
        results = results if own is None else _without(own, results)
        near = [
            self._similarities(one, ids) >= limit - TIE * (1 if self.metric == "cosine" else abs(limit))
            for one, ids, limit in zip(queries, results, farthest, strict=True)
        ]
        return float(np.mean(near)) if results.size else 1.0

    def _checked_scale(self) -> float:
        """Return the factor of `l2` for each number before it is stored as a 16-bit float; 1 for exact search."""
        if self.metric == "cosine" and not self.approximate:
            return 1.0  # `_all` checks the numbers
        largest = 0.0
        for start in range(0, self.size, BLOCK):
            rows = slice(start, start + BLOCK) if self.rows is None else self.rows[start : start + BLOCK]
            part = self.vectors[rows]
            if not np.isfinite(part).all():
                raise _not_finite()
            if self.metric == "l2":
                largest = max(largest, float(np.abs(part).max(initial=0)))
        if largest > HUGE:
            raise InputError(
                f"embeddings contain numbers as large as {largest:.0e}; set the metric to cosine for these"
            )
        return 1 / largest if self.approximate and largest > TINY else 1.0

    def _all(self) -> Vectors:
        if self.metric == "cosine":
            units = unit_rows(self.vectors if self.rows is None else TextRows(self.vectors, self.rows))
            if not np.isfinite(units.sum(axis=1)).all():
                raise _not_finite()
            return units
        return self._prepare(self.vectors if self.rows is None else self.vectors[self.rows])

    def _take(self, indices: NDArray[np.integer[Any]]) -> Vectors:
        """Return some of the vectors as they are compared, (Q, D). indices: (Q,)."""
        return self._prepare(self.vectors[indices if self.rows is None else self.rows[indices]])

    def _prepare(self, vectors: Vectors) -> Vectors:
        if self.metric == "cosine":
            return unit_rows(vectors)
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        return vectors if self._scale == 1 else vectors * np.float32(self._scale)

    def _kind(self) -> int:
        return int(_faiss().METRIC_INNER_PRODUCT if self.metric == "cosine" else _faiss().METRIC_L2)


class _PreciseSearch:
    """Exact search of unit vectors with cosines in float64 of those that a faster precision selects.

    float32 selects `SPARE` vectors more than the n nearest. A cosine of vectors rounded to bfloat16 differs from that
    of the vectors by at most the lengths of what was rounded off, so the n-th highest bounds the cosines of the n
    nearest from below: all vectors that reach the bound are selected, in float32 where these are too many.

    Args:
        units: (T, D), each of length 1 or 0.
        select_in: Precision of the selection.
    """

    def __init__(self, units: Vectors, select_in: Selection) -> None:
        self._units, self._rounded, self._removed = units, None, 0.0
        if select_in == "bfloat16":
            import torch

            self._rounded = torch.empty(units.shape, dtype=torch.bfloat16)
            for start in range(0, len(units), ROUNDED_AT_ONCE):
                part = torch.from_numpy(units[start : start + ROUNDED_AT_ONCE])
                rounded = self._rounded[start : start + len(part)].copy_(part)
                self._removed = max(self._removed, float((part - rounded.float()).norm(dim=1).max()))

    def nearest(self, queries: Vectors, n: int) -> Neighbors:
        """Find the n nearest as `NeighborSearch.nearest`, for unit vectors (Q, D); equal cosines are ordered by id."""
        ids, scores = np.empty((len(queries), n), dtype=np.int64), np.empty((len(queries), n), dtype=np.float32)
        height = max(1, ROUNDED_BYTES // (2 * len(self._units)))
        for start in range(0, len(queries), height):
            part = queries[start : start + height]
            for row, selected in enumerate(self._select(part, n), start):
                possible = np.sort(selected)
                cosines = self._units[possible].astype(np.float64) @ queries[row].astype(np.float64)
                best = np.argsort(-cosines.astype(np.float32), kind="stable")[:n]
                ids[row], scores[row] = possible[best], cosines[best]
        return ids, scores

    def _select(self, queries: Vectors, n: int) -> list[Indices]:
        """Return the ids of at least the n nearest vectors of each query, in any order."""
        width = min(2 * n + SPARE, len(self._units))
        if self._rounded is None or width == len(self._units):
            return list(self._select_in_float32(queries, n))
        import torch

        exact = torch.from_numpy(queries)
        rounded = exact.bfloat16()
        cosines, ids = (rounded @ self._rounded.T).topk(width, dim=1)  # (Q, width), best first
        difference = (exact - rounded.float()).norm(dim=1) + (1 + ROUNDING) * self._removed + ACCUMULATED
        nth = cosines[:, n - 1].float()
        bound = nth - 2 * difference - 2 * ROUNDING * (nth.abs() + 2 * difference)
        counts = (cosines >= bound[:, None]).sum(dim=1).numpy()
        selected = [row[:count] for row, count in zip(ids.numpy(), counts, strict=True)]
        too_many = np.flatnonzero(counts == width)
        if len(too_many):
            for row, in_float32 in zip(too_many, self._select_in_float32(queries[too_many], n), strict=True):
                selected[row] = in_float32
        return selected

    def _select_in_float32(self, queries: Vectors, n: int) -> Indices:
        n, faiss = min(n + SPARE, len(self._units)), _faiss()
        return np.asarray(faiss.knn(queries, self._units, n, metric=faiss.METRIC_INNER_PRODUCT)[1])


def _sample(size: int, count: int, seed: int) -> Ids:
    """Return at most `count` of the numbers 0 to size - 1, ascending."""
    if count >= size:
        return np.arange(size, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(size, count, replace=False)).astype(np.int32)


def _others(queries: NDArray[np.integer[Any]], ids: NDArray[np.integer[Any]]) -> Mask:
    """Mark ids (Q, n) other than the query itself; if vectors equal to it replace it, the last id is not marked."""
    other: Mask = ids != queries[:, None]
    other[other.all(axis=1), -1] = False
    return other


def _without(queries: Ids, ids: NDArray[np.integer[Any]]) -> Ids:
    """Remove the query from each row. ids: (Q, n), n >= 1. Returns (Q, n - 1)."""
    return np.asarray(ids[_others(queries, ids)].reshape(len(queries), ids.shape[1] - 1), dtype=np.int32)


def _row_not_finite(row: int) -> DataError:
    return DataError(f"vectors: row {row} is not finite; train again with a lower learning rate or another encoder")


def _not_finite() -> InputError:
    return InputError("embeddings contain a number that is not finite; encode again, neighbors are undefined")


def _faiss() -> Any:
    """Import Faiss and set it to PyTorch's thread count if that is loaded; a new thread would use every core."""
    import faiss

    if "torch" in sys.modules:
        faiss.omp_set_num_threads(sys.modules["torch"].get_num_threads())
    return faiss

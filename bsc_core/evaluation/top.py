"""The best documents of many queries, met block by block.

A cosine and a position are packed into one whole number: the higher cosine is the larger number and of equal cosines
the earlier position, so that one partition of numbers finds the best and blocks of any size give the same answer.
"""

# Q queries, n documents kept for each, B queries and C documents of a block

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]
Ids = NDArray[np.int32]

LAST = 2**32 - 1
EMPTY = np.iinfo(np.int64).min
ROWS_AT_ONCE = 32  # their keys stay in the processor's cache
FEW = 4  # times n: so many newcomers are sorted, more are partitioned
COLUMNS = 512  # at least; documents are folded onto so many columns to bound the n-th cosine from below


class TopDocuments:
    """The n documents of the highest cosine for each of Q queries, of equal cosines those at the first positions."""

    def __init__(self, queries: int, n: int) -> None:
        self._keys = np.full((queries, n), EMPTY, dtype=np.int64)  # each row falls

    def add(self, rows: slice, first: int, cosines: Vectors) -> None:
        """Take a block in. rows: its queries; first: position of its first document; cosines: (B, C), all finite."""
        kept = self._keys[rows]
        if not kept.size:
            return
        empty = bool((kept[:, -1] == EMPTY).any())
        candidates = cosines >= _least(cosines, kept.shape[1]) if empty else cosines > _cosines(kept[:, -1:])
        newcomers = np.flatnonzero(candidates)
        if len(newcomers) > FEW * kept.size:
            self._add_all(rows, first, cosines)
        elif len(newcomers):
            owner, place = np.divmod(newcomers, cosines.shape[1])
            self._keys[rows] = _merged(kept, owner, _keys(cosines[owner, place], first + place))

    def _add_all(self, rows: slice, first: int, cosines: Vectors) -> None:
        n = self._keys.shape[1]
        positions = first + np.arange(cosines.shape[1])
        for start in range(0, len(cosines), ROWS_AT_ONCE):
            part = slice(rows.start + start, min(rows.start + start + ROWS_AT_ONCE, rows.stop))
            keys = _keys(cosines[start : start + ROWS_AT_ONCE], positions)
            if keys.shape[1] > n:
                keys.partition(keys.shape[1] - n, axis=1)
                keys = keys[:, -n:]
            both = np.concatenate([self._keys[part], keys], axis=1)
            both.sort(axis=1)
            self._keys[part] = both[:, : -n - 1 : -1]

    def positions(self) -> Ids:
        """(Q, n) positions, best first."""
        return (LAST - (self._keys & LAST)).astype(np.int32)

    def cosines(self) -> Vectors:
        """(Q, n) their cosines."""
        return _cosines(self._keys)


def _least(cosines: Vectors, n: int) -> Vectors:
    """(B, 1) a bound that the n largest of each row (B, C) reach: the n-th largest of the columns' maxima.

    Few others reach it, and maxima of columns are cheaper than a partition.
    """
    columns = max(COLUMNS, 8 * n)
    whole = cosines.shape[1] // columns * columns
    if not whole:
        return np.full((len(cosines), 1), -np.inf, dtype=np.float32)
    largest = cosines[:, :whole].reshape(len(cosines), -1, columns).max(axis=1)  # (B, columns)
    return np.partition(largest, columns - n, axis=1)[:, columns - n, None]


def _merged(kept: Keys, owner: NDArray[np.int64], keys: Keys) -> Keys:
    """The n largest of each row. kept: (B, n); owner, keys: newcomers, each with its row."""
    rows, n = kept.shape
    owners = np.concatenate([np.repeat(np.arange(rows), n), owner])
    every = np.concatenate([kept.ravel(), keys])
    order = np.lexsort((~every, owners))  # ~ turns the order round, of the smallest number too
    counts = np.bincount(owners, minlength=rows)
    place = np.arange(len(every)) - np.repeat(np.cumsum(counts) - counts, counts)
    merged: Keys = every[order[place < n]].reshape(rows, n)
    return merged


def _keys(cosines: Vectors, positions: NDArray[np.int64]) -> Keys:
    bits = (cosines + np.float32(0)).view(np.int32)  # adding 0 makes -0 and 0 one
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)  # whole numbers now rise as the cosines do
    keys: Keys = (bits.astype(np.int64) << 32) | (LAST - positions)
    return keys


def _cosines(keys: Keys) -> Vectors:
    bits = (keys >> 32).astype(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    return bits.view(np.float32)

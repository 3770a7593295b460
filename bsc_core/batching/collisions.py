"""Collisions: in-batch pairs that the loss takes for negatives although they are in truth positive."""

# N rows of the dataset, B rows of a batch, U distinct texts

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids, Mask
from bsc_core.data import PairDataset


class KnownPairs:
    """Which (query, document) pairs a dataset labels, looked up for whole batches at once.

    A query is known by its text and by its group: what answers one row of a group answers all of them. A pair
    labelled both ways counts as positive.
    """

    def __init__(self, dataset: PairDataset) -> None:
        self.dataset = dataset
        positive = dataset.positive
        self._positive = [self._keys(names, np.flatnonzero(positive)) for names in self._names()]
        marked = dataset.marked_pairs.astype(np.int64)
        marks = marked[:, 0] * len(dataset.texts) + marked[:, 1]
        self._positive[0] = np.union1d(self._positive[0], marks)  # by text: what a person marked answers its query
        self._negative = [self._keys(names, np.flatnonzero(~positive)) for names in self._names()]

    def positive(self, rows: Ids) -> Mask:
        """Whether document j is known to answer query i. rows: (B,). Returns (B, B), diagonal included."""
        return self._matrix(rows, self._positive)

    def negative(self, rows: Ids) -> Mask:
        """Whether document j is labelled as no answer to query i. rows: (B,). Returns (B, B), diagonal included."""
        return self._matrix(rows, self._negative) & ~self.positive(rows)

    def collisions(self, rows: Ids) -> Mask:
        """`positive` off the diagonal: the cells that the loss takes for negatives by mistake. Returns (B, B)."""
        found = self.positive(rows)
        np.fill_diagonal(found, False)
        return found

    def _names(self) -> tuple[Ids, Ids]:
        return self.dataset.query, self.dataset.query_group

    def _keys(self, names: Ids, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        return np.unique(names[rows].astype(np.int64) * len(self.dataset.texts) + self.dataset.document[rows])

    def _matrix(self, rows: Ids, known: list[NDArray[np.int64]]) -> Mask:
        found = np.zeros((len(rows), len(rows)), dtype=np.bool_)
        for names, keys in zip(self._names(), known, strict=True):
            if len(keys):
                asked = names[rows].astype(np.int64)[:, None] * len(self.dataset.texts) + self.dataset.document[rows]
                places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)  # (B, B)
                found |= keys[places] == asked
        return found


def plan_collisions(dataset: PairDataset, batches: Sequence[Ids]) -> tuple[int, int]:
    """Pairs of rows that meet in a batch, and those of them that collide in at least one direction."""
    known = KnownPairs(dataset)
    crossed = sum(len(rows) * (len(rows) - 1) // 2 for rows in batches)
    found = (known.collisions(rows) for rows in batches)
    return crossed, sum(int(np.triu(cells | cells.T).sum()) for cells in found)


def collision_matrix(dataset: PairDataset, rows: Ids) -> Mask:
    """The collisions of one batch: cell (i, j) is true when row j's document in truth answers row i's query.

    Known from the whole dataset: the rows share a query text or group and j is positive, they share a document text
    and i is positive, or the pair is labelled positive elsewhere. rows: (B,) row numbers. Returns bool (B, B); the
    diagonal is false. For many batches make `KnownPairs(dataset)` once and call `collisions`.
    """
    return KnownPairs(dataset).collisions(rows)

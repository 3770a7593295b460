"""Collisions: in-batch negatives that are known to be positive."""

# N rows of the dataset, B rows of a batch, U distinct texts

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bsc_core.data import PairDataset
from bsc_core.types import Ids, Mask


class KnownPairs:
    """Labels of all (query, document) pairs of a dataset, for lookup by batch.

    A label applies to the query's text and for its query group. A pair labeled both ways counts as positive.
    """

    def __init__(self, dataset: PairDataset) -> None:
        self.dataset = dataset
        positive = dataset.positive
        self._positive = [self._keys(ids, np.flatnonzero(positive)) for ids in self._query_ids()]
        marked = dataset.marked_pairs.astype(np.int64)
        marked_keys = marked[:, 0] * len(dataset.texts) + marked[:, 1]
        self._positive[0] = np.union1d(self._positive[0], marked_keys)  # decided by a person, by text
        self._negative = [self._keys(ids, np.flatnonzero(~positive)) for ids in self._query_ids()]
        if dataset.decided_negatives is not None:
            decided = dataset.decided_negatives.astype(np.int64)
            self._negative[0] = np.union1d(self._negative[0], decided[:, 0] * len(dataset.texts) + decided[:, 1])

    def positive(self, rows: Ids) -> Mask:
        """Return bool (B, B): document j is a known positive of query i, diagonal included.

        Args:
            rows: (B,) rows of the batch.
        """
        return self._matrix(rows, self._positive)

    def negative(self, rows: Ids) -> Mask:
        """Return bool (B, B): document j is labeled negative for query i, diagonal included.

        Args:
            rows: (B,) rows of the batch.
        """
        return self._matrix(rows, self._negative) & ~self.positive(rows)

    def collisions(self, rows: Ids) -> Mask:
        """Return bool (B, B): `positive` without the diagonal, the false negatives of the loss."""
        cells = self.positive(rows)
        np.fill_diagonal(cells, False)
        return cells

    def _query_ids(self) -> tuple[Ids, Ids]:
        """Return the query of each row, by text and by query group."""
        return self.dataset.query, self.dataset.query_group

    def _keys(self, query_ids: Ids, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        return np.unique(query_ids[rows].astype(np.int64) * len(self.dataset.texts) + self.dataset.document[rows])

    def _matrix(self, rows: Ids, known: list[NDArray[np.int64]]) -> Mask:
        cells = np.zeros((len(rows), len(rows)), dtype=np.bool_)
        for query_ids, keys in zip(self._query_ids(), known, strict=True):
            if len(keys):
                pairs = (
                    query_ids[rows].astype(np.int64)[:, None] * len(self.dataset.texts) + self.dataset.document[rows]
                )
                positions = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)  # (B, B)
                cells |= keys[positions] == pairs
        return cells


def plan_collisions(dataset: PairDataset, batches: Sequence[Ids]) -> tuple[int, int]:
    """Count the pairs of rows that share a batch, and those that collide in at least one direction."""
    known = KnownPairs(dataset)
    crossed = sum(len(rows) * (len(rows) - 1) // 2 for rows in batches)
    collisions = (known.collisions(rows) for rows in batches)
    return crossed, sum(int(np.triu(cells | cells.T).sum()) for cells in collisions)


def collision_matrix(dataset: PairDataset, rows: Ids) -> Mask:
    """Return the collisions of one batch, bool (B, B): document j is a known positive of query i, i != j.

    A pair is known to be positive if the rows share a query text or group and j is positive, if they share a document
    text and i is positive, or if the pair is labeled positive in another row. For many batches, create `KnownPairs`
    once.

    Args:
        dataset: The dataset.
        rows: (B,) rows of the batch.
    """
    return KnownPairs(dataset).collisions(rows)

"""Example-based shuffling: groups of nearest neighbours, Algorithm 1 of the BSC paper.

The search runs over distinct texts, not rows (a dataset of 27,000 pairs may have 2,400 questions), and only for texts
whose rows become anchors: most rows join a group before their turn comes.
"""

# N rows of the dataset, T distinct texts on the grouped side, n neighbours looked at

from __future__ import annotations

from itertools import islice

import numpy as np

from bsc_core.batching.arrays import Groups, Ids, Progress, Vectors
from bsc_core.batching.knn import NeighbourSearch
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

AHEAD = 1024  # anchors searched for at once; some of them join a group before their turn, and were searched in vain


def examples(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    generator: np.random.Generator,
    progress: Progress | None,
) -> Groups:
    """Groups of similar rows, each made of an anchor and the nearest rows that no group holds yet.

    Anchors are taken in an order drawn from `generator`. An anchor's candidates are, with `distinct_texts` off, the
    other rows of its own text, and then the rows of the n nearest other texts; rows of one text come in the drawn
    order. A group takes candidates until it holds `group_size` rows including the anchor. With `distinct_texts` it
    takes no row that repeats a text, of either side, that it already holds. With `reverse` the order is turned round,
    so that the leftovers' small groups come first.

    embeddings: (U, D), row t for text t of dataset.texts. progress is told (rows in a group, N).
    Returns order (N,) and groups (N,). Raises InputError without embeddings or where a vector is not finite.
    """
    if embeddings is None:
        raise InputError("the strategy examples compares embeddings, and none were given; encode the texts first")
    if len(dataset) == 0:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
    side = dataset.query if config.by == "query" else dataset.document
    texts, text_of_row = np.unique(side, return_inverse=True)  # (T,), (N,)
    search = NeighbourSearch(embeddings[texts], config.metric)
    drawn = generator.permutation(len(dataset)).astype(np.int32)
    groups = _Grouping(config, dataset, search, text_of_row.astype(np.int32), drawn).form(progress)
    order = np.fromiter((row for group in groups for row in group), dtype=np.int32, count=len(dataset))
    ids = np.repeat(np.arange(len(groups), dtype=np.int32), [len(group) for group in groups])
    if config.reverse:
        return order[::-1].copy(), (len(groups) - 1 - ids[::-1]).astype(np.int32)
    return order, ids


class _Grouping:
    """The state of Algorithm 1: which rows are used, and which rows of each text still wait, in the drawn order."""

    def __init__(
        self, config: BatchingConfig, dataset: PairDataset, search: NeighbourSearch, text_of_row: Ids, drawn: Ids
    ) -> None:
        self.config = config
        self.search = search
        self.near: dict[int, Ids] = {}  # the n nearest other texts of the texts searched so far
        self.anchors: list[int] = drawn.tolist()
        self.text_of_row = text_of_row.tolist()
        self.query = dataset.query.tolist()
        self.document = dataset.document.tolist()
        self.left = np.bincount(text_of_row)  # (T,) unused rows of each text
        by_text = drawn[np.argsort(text_of_row[drawn], kind="stable")]
        self.rows = [part.tolist() for part in np.split(by_text, np.cumsum(self.left)[:-1])]
        self.first = [0] * len(self.rows)  # every row of a text before this place is used
        self.used = bytearray(len(drawn))

    def form(self, progress: Progress | None) -> list[list[int]]:
        groups: list[list[int]] = []
        waiting = (anchor for anchor in self.anchors if not self.used[anchor])
        while ahead := list(islice(waiting, AHEAD)):
            self._search_for(ahead)
            groups.extend(self._group(anchor) for anchor in ahead if not self.used[anchor])
            if progress is not None:
                progress(sum(self.used), len(self.used))
        return groups

    def _search_for(self, anchors: list[int]) -> None:
        texts = sorted({self.text_of_row[anchor] for anchor in anchors} - self.near.keys())
        if texts:
            found = self.search.others(np.array(texts, dtype=np.int32), self.config.neighbours)
            self.near.update(zip(texts, found, strict=True))

    def _group(self, anchor: int) -> list[int]:
        group: list[int] = []
        held: set[int] = set()
        self._take(anchor, group, held)
        for text in self._candidate_texts(self.text_of_row[anchor]):
            if len(group) >= self.config.group_size:
                break
            self._take_rows_of(text, group, held)
        return group

    def _candidate_texts(self, own: int) -> list[int]:
        near = self.near[own]
        waiting: list[int] = near[self.left[near] > 0].tolist()
        return waiting if self.config.distinct_texts else [own, *waiting]

    def _take_rows_of(self, text: int, group: list[int], held: set[int]) -> None:
        rows, used = self.rows[text], self.used
        start = self.first[text]
        while start < len(rows) and used[rows[start]]:
            start += 1
        self.first[text] = start
        for place in range(start, len(rows)):
            row = rows[place]
            if used[row]:
                continue
            if self.config.distinct_texts and (self.query[row] in held or self.document[row] in held):
                continue
            self._take(row, group, held)
            if self.config.distinct_texts or len(group) >= self.config.group_size:
                return  # the text's other rows would repeat it, or the group is full

    def _take(self, row: int, group: list[int], held: set[int]) -> None:
        group.append(row)
        held.update((self.query[row], self.document[row]))
        self.used[row] = 1
        self.left[self.text_of_row[row]] -= 1

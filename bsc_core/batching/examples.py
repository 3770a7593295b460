"""Example-based shuffling: groups of nearest neighbours, Algorithm 1 of the BSC paper.

The search runs over distinct texts, not rows (a dataset of 27,000 pairs may have 2,400 questions), and only for texts
whose rows become anchors: most rows join a group before their turn comes.
"""

# N rows of the dataset, T distinct texts on the grouped side, n neighbours looked at, G groups

from __future__ import annotations

from itertools import islice

import numpy as np

from bsc_core.batching.arrays import Formed, Ids, Progress, Vectors, plan_generator
from bsc_core.batching.knn import NeighbourSearch
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

AHEAD = 1024  # anchors searched for at once; some of them join a group before their turn, and were searched in vain
REMEMBERED = 64_000_000  # neighbours kept for texts that have more rows to come
SAMPLE = 200  # groups that are formed a second time, from exact neighbours
AS_NEAR = 0.01  # cosine, or share of the squared distance, by which a group as good may be farther


def examples(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """Groups of similar rows, each made of an anchor and the nearest rows that no group holds yet.

    Anchors are taken in an order drawn by seed and epoch. An anchor's candidates are, with `distinct_texts` off, the
    other rows of its own text, and then the rows of the n nearest other texts; rows of one text come in the drawn
    order. A group takes candidates until it holds `group_size` rows including the anchor. With `distinct_texts` it
    takes no row that repeats a text, of either side, that it already holds. With `reverse` the order is turned round,
    so that the leftovers' small groups come first.

    embeddings: (U, D), row t for text t of dataset.texts. progress is told (rows in a group, N).
    Returns order (N,), groups (N,) and facts: those of the search, and where it is approximate the share `as_exact` of
    `groups_sample` groups that are as good as exact neighbours would make them (see `_Grouping.as_exact`). Raises
    InputError without embeddings or where a vector is not finite.
    """
    if embeddings is None:
        raise InputError("the strategy examples compares embeddings, and none were given; encode the texts first")
    if len(dataset) == 0:
        return Formed(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    side = dataset.query if config.by == "query" else dataset.document
    texts, text_of_row = np.unique(side, return_inverse=True)  # (T,), (N,)
    search = NeighbourSearch(embeddings, config.metric, rows=texts, search=config.search, seed=seed)
    drawn = plan_generator(seed, epoch).permutation(len(dataset)).astype(np.int32)
    grouping = _Grouping(config, dataset, search, text_of_row.astype(np.int32), drawn)
    order, ids = grouping.form(progress)
    facts = search.facts | (grouping.as_exact(order, ids, seed) if search.approximate else {})
    if config.reverse:
        return Formed(order[::-1].copy(), ids.max() - ids[::-1], facts)
    return Formed(order, ids, facts)


class _Grouping:
    """The state of Algorithm 1: which rows are used, and which rows of each text still wait, in the drawn order."""

    def __init__(
        self, config: BatchingConfig, dataset: PairDataset, search: NeighbourSearch, text_of_row: Ids, drawn: Ids
    ) -> None:
        self.config = config
        self.search = search
        self.near: dict[int, Ids] = {}  # the n nearest other texts of texts searched that have rows to come
        self.drawn = drawn
        self.text_of_row = text_of_row
        self.query = dataset.query.tolist()
        self.document = dataset.document.tolist()
        self.rows: list[int] = drawn[np.argsort(text_of_row[drawn], kind="stable")].tolist()  # text by text
        self.ends = np.cumsum(np.bincount(text_of_row)).tolist()  # (T,) where in rows each text ends
        self.rewind(np.zeros(len(drawn), dtype=np.bool_))

    def rewind(self, used: np.typing.NDArray[np.bool_]) -> None:
        """Go on from a state in which these rows are used. used: (N,)."""
        self.used = bytearray(used.tobytes())
        self.left = np.bincount(self.text_of_row[~used], minlength=len(self.ends))  # (T,) unused rows of each text
        self.first = [0, *self.ends[:-1]]  # every row of a text before this place is used

    def form(self, progress: Progress | None) -> tuple[Ids, Ids]:
        """All groups: rows in the order in which they were taken (N,), and the group of each (N,)."""
        order: list[int] = []
        sizes: list[int] = []
        waiting = (anchor for anchor in self.drawn.tolist() if not self.used[anchor])
        while ahead := list(islice(waiting, AHEAD)):
            self._search_for(self.text_of_row[ahead])
            for anchor in ahead:
                if not self.used[anchor]:
                    group = self.group(anchor, self.near[int(self.text_of_row[anchor])])
                    order += group
                    sizes.append(len(group))
            if progress is not None:
                progress(len(order), len(self.drawn))
        return np.array(order, dtype=np.int32), np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def group(self, anchor: int, near: Ids) -> list[int]:
        """The anchor and the rows that it takes. near: (n,) the nearest other texts, nearest first."""
        group: list[int] = []
        held: set[int] = set()
        self._take(anchor, group, held)
        for text in self._candidate_texts(int(self.text_of_row[anchor]), near):
            if len(group) >= self.config.group_size:
                break
            self._take_rows_of(text, group, held)
        return group

    def as_exact(self, order: Ids, groups: Ids, seed: int) -> dict[str, float | str]:
        """Share of a sample of the groups that are as good as those that exact neighbours would make, and its size.

        Each is made anew from the n exactly nearest texts of its anchor and the rows that were unused at its turn. Of
        the m rows that this takes, the group must have as many, and its first m must be as near to the anchor on
        average: by a cosine at most 0.01 lower, or a squared distance at most 1% higher.
        """
        starts = np.flatnonzero(np.diff(groups, prepend=-1))  # (G,)
        chosen = np.random.default_rng(seed).choice(len(starts), min(SAMPLE, len(starts)), replace=False)
        anchors = order[starts[chosen]]
        exact = self.search.others_exactly(self.text_of_row[anchors], self.config.neighbours)
        good = 0
        for start, anchor, near in zip(starts[chosen], anchors.tolist(), exact, strict=True):
            used = np.zeros(len(order), dtype=np.bool_)
            used[order[:start]] = True
            self.rewind(used)
            wanted = self.group(anchor, near)[1:]
            taken = order[start + 1 : start + 1 + len(wanted)]
            whole = bool(groups[start + len(wanted)] == groups[start])  # it has as many rows
            good += whole and self._as_near(anchor, taken, np.array(wanted))
        return {"as_exact": good / len(chosen), "groups_sample": float(len(chosen))}

    def _as_near(self, anchor: int, taken: Ids, wanted: Ids) -> bool:
        if not len(wanted):
            return True
        text = int(self.text_of_row[anchor])
        ours, best = (float(self.search.similarities(text, self.text_of_row[rows]).mean()) for rows in (taken, wanted))
        return ours >= best - AS_NEAR * (1 if self.config.metric == "cosine" else abs(best))

    def _search_for(self, texts: Ids) -> None:
        self.near = {text: near for text, near in self.near.items() if self.left[text]}
        while len(self.near) * self.config.neighbours > REMEMBERED:
            self.near.pop(next(iter(self.near)))
        asked = np.array(sorted(set(texts.tolist()) - self.near.keys()), dtype=np.int32)
        if len(asked):
            self.near.update(zip(asked.tolist(), self.search.others(asked, self.config.neighbours), strict=True))

    def _candidate_texts(self, own: int, near: Ids) -> list[int]:
        waiting: list[int] = near[self.left[near] > 0].tolist()
        return waiting if self.config.distinct_texts else [own, *waiting]

    def _take_rows_of(self, text: int, group: list[int], held: set[int]) -> None:
        rows, used, end = self.rows, self.used, self.ends[text]
        start = self.first[text]
        while start < end and used[rows[start]]:
            start += 1
        self.first[text] = start
        for place in range(start, end):
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

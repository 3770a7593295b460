"""Strategy `nearest`: groups of nearest neighbors, Algorithm 1 of the BSC paper (example-based shuffling).

The search runs over distinct texts, not rows (a dataset of 27,000 pairs may have 2,400 questions), and only for texts
of anchors: most rows join a group before it is their turn to be an anchor.
"""

# N rows of the dataset, T distinct texts on the grouped side, n nearest texts searched, G groups

from itertools import islice

import numpy as np

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult, plan_generator
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.neighbors import NeighborSearch
from bsc_core.types import Ids, Progress

AHEAD = 1024  # anchors searched at once; some of them join a group before their turn
REMEMBERED = 64_000_000  # cached neighbors of texts that have more rows
SAMPLE = 200  # groups that are formed again from exact neighbors
AS_NEAR = 0.01  # tolerance: cosine, or share of the squared distance


def nearest(inputs: StrategyInput) -> StrategyResult:
    """Group each anchor with its nearest rows that are in no group yet.

    Anchors come in random order. The candidates of an anchor are, with `distinct_texts` off, the other rows of its
    text, and then the rows of the n nearest other texts; rows of one text come in the random order. A group takes
    candidates until it has `group_size` rows including the anchor. With `distinct_texts` it skips rows that repeat one
    of its texts, on either side. With `easy_first` the order is reversed, so that the small groups of the last rows
    come first.

    Returns:
        Order, groups and facts: those of the search and, if it is approximate, `as_exact`, the share of `groups_sample`
        sampled groups that are as good as those of exact search (see `_Grouping.as_exact`).

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    config, dataset, seed = inputs.config, inputs.dataset, inputs.seed
    embeddings = inputs.required_embeddings()
    if len(dataset) == 0:
        return StrategyResult.empty()
    search = NeighborSearch(embeddings, config.metric, rows=inputs.texts, search=config.search, seed=seed)
    shuffled = plan_generator(seed, inputs.epoch).permutation(len(dataset)).astype(np.int32)
    grouping = _Grouping(config, dataset, search, inputs.text_of_row, shuffled)
    order, ids = grouping.form(inputs.report)
    facts = search.facts | (grouping.as_exact(order, ids, seed) if search.approximate else {})
    if config.easy_first:
        return StrategyResult(order[::-1].copy(), ids.max() - ids[::-1], facts)
    return StrategyResult(order, ids, facts)


class _Grouping:
    """State of Algorithm 1: used rows, and unused rows of each text in random order."""

    def __init__(
        self, config: BatchingConfig, dataset: PairDataset, search: NeighborSearch, text_of_row: Ids, shuffled: Ids
    ) -> None:
        self.config = config
        self.search = search
        self.near: dict[int, Ids] = {}  # the n nearest other texts of a searched text
        self.shuffled = shuffled
        self.text_of_row = text_of_row
        self.query = dataset.query.tolist()
        self.document = dataset.document.tolist()
        self.rows: list[int] = shuffled[np.argsort(text_of_row[shuffled], kind="stable")].tolist()  # text by text
        self.ends = np.cumsum(np.bincount(text_of_row)).tolist()  # (T,), end of each text in rows
        self.rewind(np.zeros(len(shuffled), dtype=np.bool_))

    def rewind(self, used: np.typing.NDArray[np.bool_]) -> None:
        """Reset to a state in which these rows are used.

        Args:
            used: bool (N,), true for used rows.
        """
        self.used = bytearray(used.tobytes())
        self.unused = np.bincount(self.text_of_row[~used], minlength=len(self.ends))  # (T,), number of unused rows
        self.first = [0, *self.ends[:-1]]  # rows of a text before this index are used

    def form(self, progress: Progress) -> tuple[Ids, Ids]:
        """Form all groups; return the rows in order (N,) and the group of each (N,)."""
        order: list[int] = []
        sizes: list[int] = []
        waiting = (anchor for anchor in self.shuffled.tolist() if not self.used[anchor])
        while ahead := list(islice(waiting, AHEAD)):
            self._search_for(self.text_of_row[ahead])
            for anchor in ahead:
                if not self.used[anchor]:
                    group = self.group(anchor, self.near[int(self.text_of_row[anchor])])
                    order += group
                    sizes.append(len(group))
            progress(len(order), len(self.shuffled))
        return np.array(order, dtype=np.int32), np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def group(self, anchor: int, near: Ids) -> list[int]:
        """Return the anchor and the rows of its group.

        Args:
            anchor: Row that the group starts with.
            near: (n,) nearest other texts, nearest first.
        """
        group: list[int] = []
        texts: set[int] = set()
        self._take(anchor, group, texts)
        for text in self._candidate_texts(int(self.text_of_row[anchor]), near):
            if len(group) >= self.config.group_size:
                break
            self._take_rows_of(text, group, texts)
        return group

    def as_exact(self, order: Ids, groups: Ids, seed: int) -> dict[str, float | str]:
        """Return the share of sampled groups that are as good as those of exact neighbors, and the sample's size.

        Each sampled group is formed again from the n exact nearest texts of its anchor and the rows that were unused
        then, with m rows. It must have at least m rows as well, and its first m must be as close to the anchor on
        average: a cosine at most 0.01 lower, or a squared distance at most 1% higher.
        """
        starts = np.flatnonzero(np.diff(groups, prepend=-1))  # (G,)
        chosen = np.random.default_rng(seed).choice(len(starts), min(SAMPLE, len(starts)), replace=False)
        anchors = order[starts[chosen]]
        exact = self.search.others_exactly(self.text_of_row[anchors], self.config.neighbors)
        good = 0
        for start, anchor, near in zip(starts[chosen], anchors.tolist(), exact, strict=True):
            used = np.zeros(len(order), dtype=np.bool_)
            used[order[:start]] = True
            self.rewind(used)
            exact_rows = self.group(anchor, near)[1:]
            taken = order[start + 1 : start + 1 + len(exact_rows)]
            enough = bool(groups[start + len(exact_rows)] == groups[start])  # as many rows
            good += enough and self._as_near(anchor, taken, np.array(exact_rows))
        return {"as_exact": good / len(chosen), "groups_sample": float(len(chosen))}

    def _as_near(self, anchor: int, taken: Ids, exact: Ids) -> bool:
        if not len(exact):
            return True
        text = int(self.text_of_row[anchor])
        ours, best = (float(self.search.similarities(text, self.text_of_row[rows]).mean()) for rows in (taken, exact))
        return ours >= best - AS_NEAR * (1 if self.config.metric == "cosine" else abs(best))

    def _search_for(self, texts: Ids) -> None:
        self.near = {text: near for text, near in self.near.items() if self.unused[text]}
        while len(self.near) * self.config.neighbors > REMEMBERED:
            self.near.pop(next(iter(self.near)))
        missing = np.array(sorted(set(texts.tolist()) - self.near.keys()), dtype=np.int32)
        if len(missing):
            self.near.update(zip(missing.tolist(), self.search.others(missing, self.config.neighbors), strict=True))

    def _candidate_texts(self, text: int, near: Ids) -> list[int]:
        others: list[int] = near[self.unused[near] > 0].tolist()
        return others if self.config.distinct_texts else [text, *others]

    def _take_rows_of(self, text: int, group: list[int], texts: set[int]) -> None:
        rows, used, end = self.rows, self.used, self.ends[text]
        start = self.first[text]
        while start < end and used[rows[start]]:
            start += 1
        self.first[text] = start
        for row in rows[start:end]:
            if used[row]:
                continue
            if self.config.distinct_texts and (self.query[row] in texts or self.document[row] in texts):
                continue
            self._take(row, group, texts)
            if self.config.distinct_texts or len(group) >= self.config.group_size:
                return  # further rows would repeat the text, or the group is full

    def _take(self, row: int, group: list[int], texts: set[int]) -> None:
        group.append(row)
        texts.update((self.query[row], self.document[row]))
        self.used[row] = 1
        self.unused[self.text_of_row[row]] -= 1

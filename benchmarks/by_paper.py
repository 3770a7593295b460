"""The papers' batch orders, transcribed as they are printed: what `batching.py` stands beside."""

# N rows

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from bsc_core.batching.arrays import plan_generator
from bsc_core.batching.knn import NeighbourSearch, unit_rows
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset

Rows = list[list[int]]


def examples_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """Algorithm 1 as printed: each unused row in turn takes the first s - 1 unused of its n nearest rows; reversed.

    Exact neighbours of all rows, 1,000 rows at a time as in the released code, whether a text is new or not.
    """
    used = np.zeros(len(dataset), dtype=bool)
    turns = plan_generator(0, 0).permutation(len(dataset))[:part]
    queries = unit_rows(vectors[dataset.query])  # (N, D)
    search = NeighbourSearch(queries, "l2", search="exact")  # of unit vectors: by cosine, without another copy

    def form() -> Rows:
        groups: Rows = []
        for start in range(0, len(turns), 1000):
            rows = turns[start : start + 1000]
            for row, near in zip(rows.tolist(), search.others(rows, config.neighbours), strict=True):
                if not used[row]:
                    groups.append([row, *near[~used[near]][: config.group_size - 1].tolist()])
                    used[groups[-1]] = True
        return groups[::-1]

    return form


def words_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """Algorithm 2 as printed, row by row: words, a random shingle, sort, count to s, sort by group."""
    draw = random.Random(0)
    stop_words = {f"word{rank}" for rank in range(config.stop_count)}  # given, where ours counts them itself

    def form() -> Rows:
        shingled = []
        for row, text in enumerate(dataset.query.tolist()):
            words = sorted(set(re.findall(r"\w+", dataset.texts[text].lower())) - stop_words)
            shingle = tuple(sorted(draw.sample(words, min(config.shingle_size, len(words)))))
            shingled.append((shingle, draw.random(), row))
        return grouped(shingled, config.group_size, draw)

    return form


def clusters_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """k-means over all rows, as scikit-learn does it in the released code, and Algorithm 2 on the cluster ids."""
    from sklearn.cluster import KMeans

    draw = random.Random(0)
    rows = unit_rows(vectors[dataset.query[:part]])

    def form() -> Rows:
        found = KMeans(config.clusters, n_init=1, random_state=0).fit_predict(rows).tolist()
        return grouped([(cluster, draw.random(), row) for row, cluster in enumerate(found)], config.group_size, draw)

    return form


def grouped(shingled: list[tuple[Any, float, int]], group_size: int, draw: random.Random) -> Rows:
    """The second half of Algorithm 2: sorted rows, a new random group id where the shingle changes or s is reached."""
    shingled.sort()
    numbered, held, count, ident = [], None, 0, 0.0
    for shingle, _, row in shingled:
        if shingle != held or count == group_size:
            held, count, ident = shingle, 0, draw.random()
        numbered.append((ident, row))
        count += 1
    numbered.sort()
    return [[row for _, row in rows] for _, rows in groupby(numbered, key=itemgetter(0))]


ByPaper = Callable[[BatchingConfig, int | None, PairDataset, np.ndarray], Callable[[], Rows]]
"""Makes ready what is done once, and returns the work that grows with the rows, which alone is scaled up."""
BY_PAPER: dict[str, ByPaper] = {
    "examples": examples_by_paper,
    "words": words_by_paper,
    "clusters": clusters_by_paper,
}

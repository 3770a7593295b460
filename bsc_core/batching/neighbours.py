"""Neighbour shingles: a text's words are its nearest neighbours, and pairs that share them form groups."""

# N rows, T distinct texts on the grouped side, n neighbours

from __future__ import annotations

import numpy as np

from bsc_core.batching.arrays import Formed, Progress, Vectors
from bsc_core.batching.knn import NeighbourSearch
from bsc_core.batching.shingles import WordLists, draw_shingles, form_groups, shingle_ids
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

BLOCK = 65_536


def neighbours(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """Groups of rows that share a shingle: a random subset of `shingle_size` of the text's nearest other texts.

    Each text has `shingle_neighbours` neighbours, fewer where there are not so many texts; a lone text has none, and
    its rows stand alone. embeddings: (U, D). Raises InputError without embeddings or where a number is not finite.
    """
    if embeddings is None:
        raise InputError("the strategy neighbours compares embeddings, and none were given; encode the texts first")
    side = dataset.query if config.by == "query" else dataset.document
    texts, text_of_row = np.unique(side, return_inverse=True)  # (T,), (N,)
    search = NeighbourSearch(embeddings, config.metric, rows=texts, search=config.search, seed=seed)
    found = []
    for start in range(0, len(texts), BLOCK):
        asked = np.arange(start, min(start + BLOCK, len(texts)), dtype=np.int32)
        found.append(search.others(asked, config.shingle_neighbours))
        if progress is not None:
            progress(int(asked[-1]) + 1, len(texts))
    near = np.concatenate(found) if found else np.empty((0, 0), dtype=np.int32)
    rows = np.arange(len(dataset), dtype=np.int64)
    size = min(config.shingle_size, max(1, near.shape[1]))
    drawn = draw_shingles(WordLists.of_length(near), text_of_row, rows, size=size, seed=seed, epoch=epoch)
    order, groups = form_groups(shingle_ids(drawn), rows, group_size=config.group_size, seed=seed, epoch=epoch)
    return Formed(order.astype(np.int32), groups, dict(search.facts))

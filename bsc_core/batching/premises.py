"""Premise groups: the rows of one query stay together, as the supervised contrastive loss wants its premises."""

# N rows

from __future__ import annotations

import numpy as np

from bsc_core.batching.arrays import Formed, Progress, Vectors
from bsc_core.batching.shingles import form_groups
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset


def premises(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """A group for each query group, whatever its size, the groups shuffled; batches keep them whole."""
    rows = np.arange(len(dataset), dtype=np.int64)
    shingles = dataset.query_group.astype(np.int64)
    order, groups = form_groups(shingles, rows, group_size=max(1, len(dataset)), seed=seed, epoch=epoch)
    return Formed(order.astype(np.int32), groups)

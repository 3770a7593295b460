"""The two orders that look at no text: the file's, and a shuffled one."""

# N rows of the dataset

from __future__ import annotations

import numpy as np

from bsc_core.batching.arrays import Formed, Ids, Progress, Vectors, plan_generator
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset


def sequential(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """Rows in the order of the file, each a group of its own. Returns order (N,) and groups (N,)."""
    return _alone(np.arange(len(dataset), dtype=np.int32))


def random(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """Rows in an order drawn by seed and epoch, each a group of its own. Returns order (N,) and groups (N,)."""
    return _alone(plan_generator(seed, epoch).permutation(len(dataset)).astype(np.int32))


def _alone(order: Ids) -> Formed:
    return Formed(order, np.arange(len(order), dtype=np.int32))

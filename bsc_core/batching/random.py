"""The two orders that look at no text: the file's, and a shuffled one."""

# N rows of the dataset

from __future__ import annotations

import numpy as np

from bsc_core.batching.arrays import Groups, Ids, Progress, Vectors
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset


def sequential(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    generator: np.random.Generator,
    progress: Progress | None,
) -> Groups:
    """Rows in the order of the file, each a group of its own. Returns order (N,) and groups (N,)."""
    return _alone(np.arange(len(dataset), dtype=np.int32))


def random(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    generator: np.random.Generator,
    progress: Progress | None,
) -> Groups:
    """Rows in an order drawn from `generator`, each a group of its own. Returns order (N,) and groups (N,)."""
    return _alone(generator.permutation(len(dataset)).astype(np.int32))


def _alone(order: Ids) -> Groups:
    return order, np.arange(len(order), dtype=np.int32)

"""Cluster-based shuffling: the k-means cluster of a text is its only word (the BSC paper's `clusters`)."""

# N rows, T distinct texts on the grouped side, C clusters, D dimensions

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Formed, Ids, Progress, Vectors
from bsc_core.batching.knn import nearest, unit_rows
from bsc_core.batching.shingles import form_groups
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

SAMPLE = 256  # texts for each cluster that the centroids are fitted to
LEAST_BATCH = 1024
BLOCK = 65_536  # texts assigned at a time


def clusters(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
    centroids: Vectors | None = None,
) -> Formed:
    """Groups of rows of one k-means cluster.

    embeddings: (U, D), row t for text t of dataset.texts. centroids: (C, D) of the epoch before, from which this one
    starts. Raises InputError without embeddings, where a number is not finite, or for more clusters than texts.
    """
    if embeddings is None:
        raise InputError("the strategy clusters compares embeddings, and none were given; encode the texts first")
    if len(dataset) == 0:
        return Formed(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    side = dataset.query if config.by == "query" else dataset.document
    texts, text_of_row = np.unique(side, return_inverse=True)  # (T,), (N,)
    if config.clusters > len(texts):
        raise InputError(
            f"clusters is {config.clusters} and there are {len(texts)} distinct texts to cluster; "
            f"choose at most {len(texts)}"
        )

    def read(places: NDArray[np.int64] | slice) -> Vectors:
        vectors = embeddings[texts[places]]
        if not np.isfinite(vectors).all():
            raise InputError("embeddings hold a number that is not finite; encode again, clusters are undefined")
        return unit_rows(vectors) if config.metric == "cosine" else vectors

    sample = read(sample_places(len(texts), config.clusters, seed=seed))
    found = fit_centroids(sample, config.clusters, seed=seed, start=centroids)
    cluster_of_text = _assign_in_blocks(read, len(texts), found, progress)
    rows = np.arange(len(dataset), dtype=np.int64)
    shingles = cluster_of_text[text_of_row].astype(np.int64)
    order, groups = form_groups(shingles, rows, group_size=config.group_size, seed=seed, epoch=epoch)
    filled = len(np.unique(cluster_of_text))
    return Formed(order.astype(np.int32), groups, {"clusters": float(filled)}, found)


def fit_centroids(vectors: Vectors, clusters: int, *, seed: int, start: Vectors | None = None) -> Vectors:
    """Centroids by mini-batch k-means (Sculley, 2010) on at most 256 vectors for each cluster.

    vectors: (T, D), T >= clusters; start: centroids (C, D) to go on from, else k-means++. Returns (C, D).
    """
    from sklearn.cluster import MiniBatchKMeans

    chosen = sample_places(len(vectors), clusters, seed=seed)
    sample = vectors if len(chosen) == len(vectors) else vectors[chosen]
    warm = start is not None and start.shape == (clusters, vectors.shape[1])
    model = MiniBatchKMeans(
        clusters,
        init=start if warm else "k-means++",
        n_init=1,
        batch_size=min(len(sample), max(LEAST_BATCH, 8 * clusters)),
        random_state=seed,
        reassignment_ratio=0.0 if warm else 0.01,
    )
    found: Vectors = np.ascontiguousarray(model.fit(sample).cluster_centers_, dtype=np.float32)
    return found


def sample_places(texts: int, clusters: int, *, seed: int) -> NDArray[np.int64]:
    """Places, ascending, of the vectors that centroids are fitted to: all of them up to 256 for each cluster."""
    if texts <= SAMPLE * clusters:
        return np.arange(texts, dtype=np.int64)
    chosen: NDArray[np.int64] = np.sort(np.random.default_rng(seed).choice(texts, SAMPLE * clusters, replace=False))
    return chosen


def _assign_in_blocks(
    read: Callable[[slice], Vectors], count: int, centroids: Vectors, progress: Progress | None
) -> Ids:
    """The nearest centroid of each of `count` vectors, (T,), of which a block is held at a time."""
    found = np.empty(count, dtype=np.int32)
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        found[part] = assign(read(part), centroids)
        if progress is not None:
            progress(part.stop, count)
    return found


def assign(vectors: Vectors, centroids: Vectors) -> Ids:
    """The nearest centroid of each vector, (T,)."""
    ids, _ = nearest(centroids, vectors, 1, "l2")
    return np.asarray(ids[:, 0], dtype=np.int32)

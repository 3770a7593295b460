"""Strategy `clusters`: groups of rows of one k-means cluster (the BSC paper's cluster-based shuffling)."""

# N rows, T distinct texts on the grouped side, C clusters, D dimensions

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult
from bsc_core.batching.strategies.shingles import group_by_shingle
from bsc_core.errors import InputError
from bsc_core.neighbors import nearest, unit_rows
from bsc_core.types import Ids, Progress, Vectors

SAMPLE = 256  # texts for each cluster in the sample that fits the centroids
TEXTS_PER_CLUSTER = 4  # if there are fewer texts than clusters
MIN_BATCH = 1024
BLOCK = 65_536  # texts assigned at a time


def clusters(inputs: StrategyInput) -> StrategyResult:
    """Group rows of one k-means cluster.

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    config, texts, seed = inputs.config, inputs.texts, inputs.seed
    embeddings = inputs.required_embeddings()
    if len(inputs.dataset) == 0:
        return StrategyResult.empty()
    count = cluster_count(config.clusters, len(texts))

    def read(positions: NDArray[np.int64] | slice) -> Vectors:
        vectors = embeddings[texts[positions]]
        if not np.isfinite(vectors).all():
            raise InputError("embeddings are not finite; encode the texts again")
        return unit_rows(vectors) if config.metric == "cosine" else vectors

    sample = read(sample_positions(len(texts), count, seed=seed))
    centroids = fit_centroids(sample, count, seed=seed, start=inputs.centroids)
    cluster_of_text = _assign_in_blocks(read, len(texts), centroids, inputs.report)
    shingles = cluster_of_text[inputs.text_of_row].astype(np.int64)
    facts: dict[str, float | str] = {"clusters": float(len(np.unique(cluster_of_text)))}
    return group_by_shingle(inputs, shingles, facts, centroids=centroids)


def cluster_count(configured: int, texts: int) -> int:
    """Return the number of clusters of so many distinct texts: as configured, or fewer if there are fewer texts."""
    return configured if configured <= texts else max(1, texts // TEXTS_PER_CLUSTER)


def fit_centroids(vectors: Vectors, clusters: int, *, seed: int, start: Vectors | None = None) -> Vectors:
    """Fit centroids by mini-batch k-means (Sculley, 2010) to at most 256 vectors for each cluster, (C, D).

    Args:
        vectors: (T, D), T >= clusters.
        clusters: Number of clusters, C.
        seed: Seed of the sample and of k-means.
        start: (C, D) initial centroids; None for k-means++.
    """
    from sklearn.cluster import MiniBatchKMeans

    chosen = sample_positions(len(vectors), clusters, seed=seed)
    sample = vectors if len(chosen) == len(vectors) else vectors[chosen]
    warm = start is not None and start.shape == (clusters, vectors.shape[1])
    model = MiniBatchKMeans(
        clusters,
        init=start if warm else "k-means++",
        n_init=1,
        batch_size=min(len(sample), max(MIN_BATCH, 8 * clusters)),
        random_state=seed,
        reassignment_ratio=0.0 if warm else 0.01,
    )
    centroids: Vectors = np.ascontiguousarray(model.fit(sample).cluster_centers_, dtype=np.float32)
    return centroids


def sample_positions(texts: int, clusters: int, *, seed: int) -> NDArray[np.int64]:
    """Return the positions, ascending, of the vectors that fit the centroids: all, or 256 for each cluster."""
    if texts <= SAMPLE * clusters:
        return np.arange(texts, dtype=np.int64)
    chosen: NDArray[np.int64] = np.sort(np.random.default_rng(seed).choice(texts, SAMPLE * clusters, replace=False))
    return chosen


def _assign_in_blocks(read: Callable[[slice], Vectors], count: int, centroids: Vectors, progress: Progress) -> Ids:
    """Return the nearest centroid of each of `count` vectors, (T,), reading one block at a time."""
    nearest_ids = np.empty(count, dtype=np.int32)
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        nearest_ids[part] = assign(read(part), centroids)
        progress(part.stop, count)
    return nearest_ids


def assign(vectors: Vectors, centroids: Vectors) -> Ids:
    """Return the nearest centroid of each vector, (T,)."""
    ids, _ = nearest(centroids, vectors, 1, "l2")
    return np.asarray(ids[:, 0], dtype=np.int32)

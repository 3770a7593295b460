"""Cluster-based and neighbor-based groups."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.batching import BatchPlan, build_plan
from bsc_core.batching.strategies.clusters import assign, cluster_count, fit_centroids
from bsc_core.config import BatchingConfig
from bsc_core.errors import InputError


def blobs(count: int, each: int, seed: int = 0) -> np.ndarray:
    """`each` points around each of `count` far centers, as float32 (count * each, 8)."""
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(count, 8)) * 10
    return (np.repeat(centers, each, axis=0) + generator.normal(size=(count * each, 8)) * 0.01).astype(np.float32)


def vectors_for(dataset, queries: np.ndarray) -> np.ndarray:
    vectors = np.zeros((len(dataset.texts), queries.shape[1]), dtype=np.float32)
    vectors[dataset.query] = queries
    return vectors


@pytest.mark.parametrize("strategy", ["clusters", "neighbors"])
def test_rows_of_a_group_come_from_one_blob(dataset_of, strategy: str) -> None:
    dataset = dataset_of(list(range(120)), list(range(120)))
    config = BatchingConfig(strategy=strategy, clusters=6, group_size=5, metric="l2", shingle_neighbors=3)
    plan = build_plan(config, dataset, vectors_for(dataset, blobs(6, 20)), seed=0, epoch=0)
    for group in np.unique(plan.groups):
        assert len(set((plan.order[plan.groups == group] // 20).tolist())) == 1


def test_clusters_start_from_those_of_the_epoch_before(dataset_of, tmp_path) -> None:
    dataset = dataset_of(list(range(120)), list(range(120)))
    vectors = vectors_for(dataset, blobs(6, 20))
    config = BatchingConfig(strategy="clusters", clusters=6, metric="l2")
    first = build_plan(config, dataset, vectors, seed=0, epoch=0)
    first.save(tmp_path / "plan.npz")
    loaded = BatchPlan.load(tmp_path / "plan.npz")
    second = build_plan(config, dataset, vectors, seed=0, epoch=1, previous=loaded)
    assert first.centroids is not None
    assert second.centroids is not None
    assert np.abs(first.centroids - second.centroids).max() < 0.1  # same blobs under the same numbers
    assert not np.array_equal(first.order, second.order)


def test_centroids_are_assigned_by_distance() -> None:
    vectors = blobs(5, 30)
    centroids = fit_centroids(vectors, 5, seed=0)
    distances = np.linalg.norm(vectors[:, None] - centroids[None], axis=2)
    assert np.array_equal(assign(vectors, centroids), distances.argmin(axis=1))


def test_of_more_clusters_than_texts_one_for_four_texts_is_used(dataset_of, vectors_of) -> None:
    assert [cluster_count(8, texts) for texts in (1, 3, 7, 8, 9)] == [1, 1, 1, 8, 8]
    dataset = dataset_of(list(range(24)), list(range(24)))
    plans = [
        build_plan(
            BatchingConfig(strategy="clusters", clusters=clusters), dataset, vectors_of(dataset), seed=0, epoch=0
        )
        for clusters in (300, 6)
    ]
    np.testing.assert_array_equal(plans[0].order, plans[1].order)
    assert plans[0].centroids is not None
    assert len(plans[0].centroids) == 6


@pytest.mark.parametrize("strategy", ["clusters", "neighbors", "nearest"])
def test_vectors_are_needed_and_must_be_finite(dataset_of, vectors_of, strategy: str) -> None:
    dataset = dataset_of([0, 1, 2], [0, 1, 2])
    config = BatchingConfig(strategy=strategy, clusters=2)
    with pytest.raises(InputError, match="encode the texts first"):
        build_plan(config, dataset, seed=0, epoch=0)
    broken = vectors_of(dataset)
    broken[dataset.query[1], 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        build_plan(config, dataset, broken, seed=0, epoch=0)


def test_equal_texts_form_full_groups(dataset_of, vectors_of) -> None:
    dataset = dataset_of([0] * 10, list(range(10)))
    config = BatchingConfig(strategy="clusters", clusters=1, group_size=4)
    plan = build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0)
    assert sorted(np.unique(plan.groups, return_counts=True)[1].tolist()) == [2, 4, 4]
    lone = build_plan(BatchingConfig(strategy="neighbors"), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert sorted(lone.order.tolist()) == list(range(10))

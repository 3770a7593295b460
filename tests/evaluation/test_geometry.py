"""Tests of embedding geometry metrics, against loops over pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bsc_core.errors import DataError
from bsc_core.evaluation import alignment, anisotropy, neighbor_overlap, uniformity
from bsc_core.evaluation.stats.bootstrap_values import overlap_interval


@pytest.fixture
def vectors():
    return np.random.default_rng(31).normal(size=(60, 7)).astype(np.float32) + 0.4


def units(vectors):
    return vectors.astype(float) / np.linalg.norm(vectors, axis=1)[:, None]


def test_alignment_is_the_mean_power_of_distances_on_the_sphere(vectors):
    left, right = vectors[:30], vectors[30:]
    distances = [np.linalg.norm(x - y) for x, y in zip(units(left), units(right), strict=True)]
    np.testing.assert_allclose(alignment(left, right), np.square(distances), rtol=1e-5)
    np.testing.assert_allclose(alignment(left, right, power=1), distances, rtol=1e-5)
    assert alignment(left, left * 3).max() < 1e-6
    with pytest.raises(DataError, match="give both texts of every pair"):
        alignment(left, right[1:])


def test_uniformity_is_the_log_of_the_mean_over_pairs(vectors):
    pairs = list(itertools.combinations(units(vectors), 2))
    expected = math.log(np.mean([math.exp(-2 * np.sum((x - y) ** 2)) for x, y in pairs]))
    assert uniformity(vectors, seed=0) == pytest.approx(expected, rel=1e-5)
    assert uniformity(np.repeat(vectors[:1], 9, axis=0), seed=0) == pytest.approx(0, abs=1e-6)
    assert uniformity(vectors[:1], seed=0) is None


def test_uniformity_in_blocks_and_of_a_sample_equals_that_of_all_texts(vectors, monkeypatch):
    whole = uniformity(vectors, seed=0)
    monkeypatch.setattr("bsc_core.evaluation.metrics.geometry.ROWS_AT_ONCE", 7)
    assert uniformity(vectors, seed=0) == pytest.approx(whole)
    assert uniformity(vectors, seed=0, max_texts=50) == pytest.approx(whole, abs=0.2)
    assert uniformity(vectors, seed=5, max_texts=50) == uniformity(vectors, seed=5, max_texts=50)


def test_anisotropy_is_the_mean_cosine_of_two_texts(vectors):
    expected = np.mean([x @ y for x, y in itertools.combinations(units(vectors), 2)])
    assert anisotropy(vectors) == pytest.approx(expected, rel=1e-5)
    assert anisotropy(np.ones((5, 3), dtype=np.float32)) == pytest.approx(1)
    assert anisotropy(np.zeros((5, 3), dtype=np.float32)) == 0
    assert anisotropy(vectors[:1]) is None


def slow_overlap(before, after, k):
    shares = []
    for row in range(len(before)):
        near = []
        for side in (units(before), units(after)):
            others = [other for other in range(len(side)) if other != row]
            near.append(set(sorted(others, key=lambda other: -(side[row] @ side[other]))[:k]))
        shares.append(len(near[0] & near[1]) / k)
    return shares


@pytest.mark.parametrize("k", [1, 5, 59])
def test_the_overlap_counts_neighbors_that_stayed(vectors, k):
    after = vectors[:, :3] + 0.3 * np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    np.testing.assert_allclose(neighbor_overlap(vectors, after, seed=0, k=k), slow_overlap(vectors, after, k))


def test_neighbor_overlap_is_one_with_itself_and_small_by_chance(vectors):
    doubled = np.repeat(vectors, 2, axis=0)
    assert neighbor_overlap(doubled, doubled * 5, seed=0).min() == 1
    other = np.random.default_rng(2).normal(size=(60, 7)).astype(np.float32)
    reported = overlap_interval(vectors, other, seed=0, k=6)
    assert reported.low < 6 / 59 < reported.high
    assert len(neighbor_overlap(vectors, other, seed=0, max_texts=20)) == 20


def test_an_overlap_that_cannot_be_counted_is_refused(vectors):
    with pytest.raises(DataError, match="60 and 59 vectors"):
        neighbor_overlap(vectors, vectors[1:], seed=0)
    with pytest.raises(DataError, match="k is 60 and there are 60 texts"):
        neighbor_overlap(vectors, vectors, seed=0, k=60)

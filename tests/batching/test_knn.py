"""The neighbour search beside a full sort."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.batching.knn import NeighbourSearch, nearest, unit_rows
from bsc_core.errors import InputError

VECTORS = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 7, 300, 500])
def test_cosine_neighbours_match_a_full_sort(n: int) -> None:
    ids, scores = nearest(VECTORS, QUERIES, n)
    cosines = unit_rows(QUERIES) @ unit_rows(VECTORS).T
    assert np.array_equal(ids, np.argsort(-cosines, axis=1)[:, :n])
    np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :n], atol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 300, 500])
def test_l2_neighbours_match_a_full_sort(n: int) -> None:
    ids, scores = nearest(VECTORS, QUERIES, n, "l2")
    distances = ((QUERIES[:, None] - VECTORS[None]) ** 2).sum(axis=2)
    assert np.array_equal(ids, np.argsort(distances, axis=1)[:, :n])
    np.testing.assert_allclose(scores, np.sort(distances, axis=1)[:, :n], rtol=1e-4)


def test_others_hold_neither_self_nor_an_empty_place_even_among_equal_vectors() -> None:
    vectors = np.repeat(VECTORS[:5], 4, axis=0)
    for n in (1, 3, 19, 50):
        others = NeighbourSearch(vectors, "cosine").others(np.arange(20, dtype=np.int32), n)
        assert others.shape == (20, min(n, 19))
        assert others.min() >= 0
        assert not (others == np.arange(20)[:, None]).any()
        assert all(len(set(row)) == len(row) for row in others.tolist())


def test_a_single_vector_has_no_others() -> None:
    assert NeighbourSearch(VECTORS[:1], "cosine").others(np.zeros(1, dtype=np.int32), 5).shape == (1, 0)


def test_zero_vector_keeps_length_zero_and_finds_neighbours() -> None:
    vectors = VECTORS.copy()
    vectors[3] = 0
    assert not unit_rows(vectors)[3].any()
    assert NeighbourSearch(vectors, "cosine").others(np.array([3], dtype=np.int32), 10).shape == (1, 10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    broken = QUERIES.copy()
    broken[2, 1] = value
    for vectors, queries in ((broken, QUERIES), (VECTORS, broken)):
        with pytest.raises(InputError, match="not finite"):
            nearest(vectors, queries, 3)

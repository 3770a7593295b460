"""Neighbor search against a full sort, and the reported recall of approximate search."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core import neighbors
from bsc_core.errors import InputError
from bsc_core.neighbors import NeighborSearch, nearest, unit_rows

VECTORS = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32)
METRICS = ["cosine", "l2"]


def clustered(count: int, width: int = 16, seed: int = 0) -> np.ndarray:
    """Points around 40 centers."""
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(40, width))
    points = centers[generator.integers(40, size=count)] + 0.4 * generator.normal(size=(count, width))
    return points.astype(np.float32)


def distances(vectors: np.ndarray, metric: str) -> np.ndarray:
    """(T, T) of 64-bit numbers: squared distances, of unit vectors for cosine."""
    wide = vectors.astype(np.float64)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return ((wide[:, None] - wide[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("n", [1, 7, 300, 500])
def test_cosine_neighbors_match_a_full_sort(n: int) -> None:
    ids, scores = nearest(VECTORS, QUERIES, n)
    cosines = unit_rows(QUERIES) @ unit_rows(VECTORS).T
    assert np.array_equal(ids, np.argsort(-cosines, axis=1)[:, :n])
    np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :n], atol=1e-6)


@pytest.mark.parametrize("kind", ["random", "clustered", "nearly equal", "with repeats and zeros"])
@pytest.mark.parametrize("n", [1, 7, 40, 300])
def test_every_precision_of_the_selection_gives_the_same_neighbors(kind: str, n: int, monkeypatch) -> None:
    monkeypatch.setattr(neighbors, "ROUNDED_BYTES", 2 * 300 * 7)  # seven queries at a time
    vectors = {
        "random": VECTORS,
        "clustered": clustered(300, width=12),
        "nearly equal": VECTORS[:1] + 1e-3 * VECTORS,  # too many for bfloat16
        "with repeats and zeros": np.concatenate([np.repeat(VECTORS[:70], 4, axis=0), np.zeros_like(VECTORS[:20])]),
    }[kind]
    queries = np.concatenate([QUERIES, vectors[:20], np.zeros_like(QUERIES[:1])])
    cosines = (unit_rows(queries).astype(np.float64) @ unit_rows(vectors).astype(np.float64).T).astype(np.float32)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :n]
    for select_in in ("float32", "bfloat16"):
        ids, scores = NeighborSearch(vectors, "cosine", select_in=select_in).nearest(queries, n)
        np.testing.assert_array_equal(scores, np.take_along_axis(cosines, expected, axis=1))
        np.testing.assert_array_equal(np.take_along_axis(cosines, ids, axis=1), scores)
        if kind != "nearly equal":  # there, more cosines are equal than are selected beyond the n-th
            np.testing.assert_array_equal(ids[:-1], expected[:-1])  # neither are all zeros selected


@pytest.mark.parametrize("n", [1, 7, 300, 500])
def test_l2_neighbors_match_a_full_sort(n: int) -> None:
    ids, scores = nearest(VECTORS, QUERIES, n, "l2")
    between = ((QUERIES[:, None] - VECTORS[None]) ** 2).sum(axis=2)
    assert np.array_equal(ids, np.argsort(between, axis=1)[:, :n])
    np.testing.assert_allclose(scores, np.sort(between, axis=1)[:, :n], rtol=1e-4)


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_others_contain_neither_self_nor_empty_entries_even_among_equal_vectors(search) -> None:
    vectors = np.repeat(VECTORS[:5], 4, axis=0)
    for n in (1, 3, 19, 50):
        others = NeighborSearch(vectors, "cosine", search=search).others(np.arange(20, dtype=np.int32), n)
        assert others.shape == (20, min(n, 19))
        assert others.min() >= 0
        assert not (others == np.arange(20)[:, None]).any()
        assert all(len(set(row)) == len(row) for row in others.tolist())


@given(
    st.integers(0, 999),
    st.integers(1, 400),
    st.integers(1, 600),
    st.sampled_from(METRICS),
    st.sampled_from(["exact", "approximate"]),
    st.sampled_from([1, 2, 400]),
)
@settings(max_examples=80, derandomize=True)
def test_no_search_returns_an_empty_entry_self_or_a_vector_twice(seed, count, n, metric, search, distinct) -> None:
    vectors = clustered(count, seed=seed)
    vectors = vectors[np.random.default_rng(seed).integers(min(distinct, count), size=count)]
    others = NeighborSearch(vectors, metric, search=search, seed=seed).others(np.arange(count, dtype=np.int32), n)
    assert others.shape == (count, min(n, count - 1))
    assert ((others >= 0) & (others < count)).all()
    assert not (others == np.arange(count)[:, None]).any()
    assert all(len(set(row)) == len(row) for row in others.tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_rows_choose_the_vectors_searched(metric, search) -> None:
    rows = np.arange(299, -1, -3)
    chosen = NeighborSearch(VECTORS, metric, rows=rows, search=search).others(np.arange(100), 9)
    alone = NeighborSearch(VECTORS[rows].copy(), metric, search=search).others(np.arange(100), 9)
    assert np.array_equal(chosen, alone)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [1, 10, 200])
def test_recall_stated_is_the_recall_on_the_sample(metric: str, n: int, monkeypatch) -> None:
    monkeypatch.setattr(neighbors, "SAMPLE", 1200)  # all of them, so that the sample needs no repeating here
    vectors = clustered(1200)
    search = NeighborSearch(vectors, metric, search="approximate")
    result = search.others(np.arange(1200, dtype=np.int32), n)
    between = distances(vectors, metric)
    np.fill_diagonal(between, np.inf)
    farthest = np.sort(between, axis=1)[:, n - 1]
    near = np.take_along_axis(between, result.astype(np.int64), axis=1) <= farthest[:, None] * (1 + 1e-5)
    assert search.facts["recall"] == pytest.approx(near.mean(), abs=1e-4)
    assert search.facts["recall_sample"] == 1200
    assert search.facts["search"] == "approximate"
    assert 0.5 < near.mean() < 1  # it is approximate, and of use


def test_recall_of_a_sample_is_near_the_recall_of_all() -> None:
    vectors = clustered(6000, seed=3)
    search = NeighborSearch(vectors, "cosine", search="approximate")
    requested = np.arange(6000, dtype=np.int32)
    result, exact = search.others(requested, 50), search.others_exactly(requested, 50)
    common = np.mean([len(np.intersect1d(a, b)) / 50 for a, b in zip(result, exact, strict=True)])
    assert search.facts["recall_sample"] == 200
    assert search.facts["recall"] == pytest.approx(common, abs=0.03)


def test_recall_counts_any_of_equal_vectors() -> None:
    vectors = np.repeat(VECTORS[:20], 100, axis=0)
    search = NeighborSearch(vectors, "cosine", search="approximate")
    search.others(np.arange(10, dtype=np.int32), 30)
    assert search.facts["recall"] == 1


@pytest.mark.parametrize("metric", METRICS)
def test_search_in_blocks_is_exact(metric: str, monkeypatch) -> None:
    requested = np.arange(300, dtype=np.int32)
    expected = NeighborSearch(VECTORS, metric, search="exact").others(requested, 20)
    monkeypatch.setattr(neighbors, "BLOCK", 64)
    for search in ("exact", "approximate"):
        one = NeighborSearch(VECTORS, metric, search=search)
        assert np.array_equal(one.others_exactly(requested, 20), expected)
    assert np.allclose(unit_rows(VECTORS), VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True), atol=1e-7)


@pytest.mark.parametrize("metric", METRICS)
def test_scores_of_approximate_search_are_the_exact_ones_to_half_precision(metric: str) -> None:
    vectors = 30 * VECTORS
    ids, scores = NeighborSearch(vectors, metric, search="approximate").nearest(QUERIES, 5)
    exact = NeighborSearch(vectors, metric, search="exact")
    assert np.array_equal(ids, exact.nearest(QUERIES, 5)[0])
    np.testing.assert_allclose(scores, exact.nearest(QUERIES, 5)[1], rtol=2e-3)
    requested = np.array([7], dtype=np.int32)
    near = exact.others(requested, 4)
    expected = exact.nearest(vectors[requested], 5)[1][0, 1:] * (1 if metric == "cosine" else -1)
    np.testing.assert_allclose(exact.similarities(7, near[0]), expected, rtol=1e-3)


def test_approximate_search_is_the_same_for_the_same_seed() -> None:
    vectors, requested = clustered(1200), np.arange(1200, dtype=np.int32)
    searches = [NeighborSearch(vectors, "cosine", search="approximate", seed=seed) for seed in (5, 5, 6)]
    one, same, other = (search.others(requested, 100) for search in searches)
    assert np.array_equal(one, same)
    assert searches[0].facts == searches[1].facts
    assert not np.array_equal(one, other)


def test_auto_is_exact_up_to_a_size(monkeypatch) -> None:
    monkeypatch.setattr(neighbors, "EXACT_UP_TO", 300)
    requested = np.arange(300, dtype=np.int32)
    few = NeighborSearch(VECTORS, "cosine")
    assert np.array_equal(few.others(requested, 5), few.others_exactly(requested, 5))
    assert few.facts == {"search": "exact"}
    many = NeighborSearch(np.concatenate([VECTORS, QUERIES]), "cosine")
    many.others(requested, 5)
    assert many.facts["search"] == "approximate"


def test_a_single_vector_has_no_others() -> None:
    for search in ("exact", "approximate"):
        one = NeighborSearch(VECTORS[:1], "cosine", search=search)
        assert one.others(np.zeros(1, dtype=np.int32), 5).shape == (1, 0)


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_zero_vector_keeps_length_zero_and_finds_neighbors(search) -> None:
    vectors = VECTORS.copy()
    vectors[3] = 0
    assert not unit_rows(vectors)[3].any()
    result = NeighborSearch(vectors, "cosine", search=search).others(np.array([3], dtype=np.int32), 10)
    assert result.shape == (1, 10)
    assert result.min() >= 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("search", ["exact", "approximate"])
@pytest.mark.parametrize("factor", [1e-12, 1e14, 1e25])
def test_very_small_and_very_large_numbers_have_the_same_neighbors(metric, search, factor) -> None:
    vectors, requested = VECTORS * np.float32(factor), np.arange(300, dtype=np.int32)
    if metric == "l2" and factor > 1e20:
        with pytest.raises(InputError, match="set the metric to cosine"):
            NeighborSearch(vectors, metric, search=search)
        return
    result = NeighborSearch(vectors, metric, search=search).others(requested, 3)
    expected = NeighborSearch(VECTORS, metric, search=search).others(requested, 3)
    assert (result == expected).mean() > 0.98


def test_vectors_given_are_not_changed() -> None:
    vectors = VECTORS.copy()
    for search in ("exact", "approximate"):
        NeighborSearch(vectors, "cosine", search=search).others(np.arange(9, dtype=np.int32), 3)
    unit_rows(vectors)
    assert np.array_equal(vectors, VECTORS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("metric", METRICS)
def test_numbers_that_are_not_finite_are_refused(value: float, metric: str) -> None:
    broken = QUERIES.copy()
    broken[2, 1] = value
    for vectors, queries in ((broken, QUERIES), (VECTORS, broken)):
        with pytest.raises(InputError, match="not finite"):
            nearest(vectors, queries, 3, metric)
    with pytest.raises(InputError, match="not finite"):
        NeighborSearch(broken, metric, search="approximate")
    NeighborSearch(broken, metric, rows=np.array([0, 1, 3]))  # the broken one is not looked at


def test_queries_too_large_to_compare_are_refused() -> None:
    with pytest.raises(InputError, match="too large"):
        nearest(VECTORS, np.full((1, 12), 1e30, dtype=np.float32), 3, "l2")


def test_search_takes_the_threads_that_torch_has() -> None:
    import faiss
    import torch

    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            nearest(VECTORS, QUERIES, 3)
            assert faiss.omp_get_max_threads() == threads
    finally:
        torch.set_num_threads(before)
        nearest(VECTORS, QUERIES, 3)
    assert "torch" in sys.modules

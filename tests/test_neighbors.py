"""Exact top-k search: agrees with a full sort for any block size, and orders ties by position."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.evaluation import RetrievalTask, rank
from bsc_core.neighbors import SPARE, TIE, TopK, first_highest, nearest_others, top_k

numbers = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0])


def slow_top(cosines, n):
    """Positions by falling cosine, of equal ones the earlier first."""
    return np.asarray([sorted(range(len(row)), key=lambda place: (-row[place], place))[:n] for row in cosines])


@settings(max_examples=100)
@given(
    st.lists(st.lists(numbers, min_size=9, max_size=9), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 9)
)
def test_any_block_size_gives_the_sorted_order_with_ties_by_position(rows, n, width):
    cosines = np.asarray(rows, dtype=np.float32)
    best = TopK(len(cosines), n, 9)
    for first in range(0, 9, width):
        best.add(slice(0, len(cosines)), first, cosines[:, first : first + width])
    expected = slow_top(rows, n)
    positions, scores = best.result()
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(cosines, expected, axis=1))


@pytest.mark.parametrize("order", ["random", "rising", "constant"])
def test_wide_blocks_give_the_sorted_order(order):
    generator = np.random.default_rng(3)
    cosines = generator.uniform(-1, 1, (7, 3000)).round(2).astype(np.float32)
    cosines = {"random": cosines, "rising": np.sort(cosines, axis=1), "constant": np.full_like(cosines, 0.5)}[order]
    best = TopK(7, 12, 3000)
    for first in range(0, 3000, 1100):
        best.add(slice(0, 7), first, cosines[:, first : first + 1100])
    np.testing.assert_array_equal(best.result()[0], slow_top(cosines, 12))


def one_gold_each(queries, documents):
    ids = np.arange(queries, dtype=np.int32)
    corpus = np.arange(documents, dtype=np.int32)
    return RetrievalTask(ids, corpus, np.arange(queries + 1), (ids * 7) % documents, ids * 0, ids)


def test_block_size_changes_no_rank_and_progress_is_reported(monkeypatch):
    generator = np.random.default_rng(8)
    queries, corpus = (generator.normal(size=(rows, 5)).astype(np.float32) for rows in (12, 230))
    corpus[100:140] = corpus[:40]
    task, progress = one_gold_each(12, 230), []
    whole = rank(queries, corpus, task)
    monkeypatch.setattr("bsc_core.neighbors.BLOCK_DOCUMENTS", 37)
    monkeypatch.setattr("bsc_core.neighbors.BLOCK_BYTES", 4 * 37 * 5)
    cut = rank(queries, corpus, task, progress=lambda done, total: progress.append((done, total)))
    assert cut.metrics == whole.metrics
    np.testing.assert_array_equal(cut.top_positions, whole.top_positions)
    assert progress == [(min(37 * block, 230), 230) for block in range(1, 8)]


def test_corpus_order_changes_no_metric_even_with_ties():
    generator = np.random.default_rng(9)
    queries, corpus = (generator.integers(-1, 2, size=(rows, 3)).astype(np.float32) for rows in (30, 80))
    task, moved = one_gold_each(30, 80), generator.permutation(80)
    back = np.argsort(moved).astype(np.int32)
    shuffled = RetrievalTask(task.query, task.corpus, task.offsets, back[task.gold], task.absent, task.rows)
    assert rank(queries, corpus[moved], shuffled).metrics == pytest.approx(rank(queries, corpus, task).metrics)


def test_corpus_on_disk_is_searched_in_bounded_memory(tmp_path):
    generator = np.random.default_rng(4)
    path = tmp_path / "corpus.npy"
    corpus = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(400_000, 32))
    for start in range(0, len(corpus), 50_000):
        corpus[start : start + 50_000] = generator.standard_normal((50_000, 32), dtype=np.float32)
    queries = np.array(corpus[::8000])
    mapped = np.load(path, mmap_mode="r")
    tracemalloc.start()
    positions, cosines = top_k(queries, mapped, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert positions[:, 0].tolist() == list(range(0, 400_000, 8000))
    assert cosines[:, 0] == pytest.approx(1)
    assert peak < 0.6 * 4 * 32 * 400_000  # a unit copy of the corpus alone is 49 MiB


def test_k_above_the_corpus_size_takes_all_documents():
    generator = np.random.default_rng(2)
    queries, corpus = (generator.normal(size=(rows, 4)).astype(np.float32) for rows in (3, 5))
    result = rank(queries, corpus, one_gold_each(3, 5), k=(5, 50), top=50)
    assert result.top_ids.shape == (3, 5)
    assert result.metrics["recall@50"] == result.metrics["has_positive@50"] == 1
    assert result.metrics["precision@50"] == result.metrics["precision@5"] == pytest.approx(0.2)


@pytest.fixture
def clouds():
    """Sixty vectors in three clusters."""
    generator = np.random.default_rng(0)
    return (np.repeat(generator.normal(size=(3, 12)) * 3, 20, axis=0) + generator.normal(size=(60, 12))).astype(
        np.float32
    )


def slow_nearest(vectors, row, k):
    """The neighbors by cosine, one dot product at a time."""
    cosines = []
    for other in range(len(vectors)):
        lengths = np.linalg.norm(vectors[row]) * np.linalg.norm(vectors[other])
        cosines.append(float(vectors[row] @ vectors[other] / lengths))
    return sorted((other for other in range(len(vectors)) if other != row), key=lambda other: -cosines[other])[:k]


def test_nearest_others_agree_with_one_dot_product_at_a_time(clouds):
    ids, cosines = nearest_others(clouds, np.array([0, 25, 59]), 7)
    assert [list(row) for row in ids] == [slow_nearest(clouds, row, 7) for row in (0, 25, 59)]
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_equal_neighbors_are_ordered_by_id():
    ids, _ = nearest_others(np.ones((5, 3), dtype=np.float32), np.array([2]), 4)
    assert ids.tolist() == [[0, 1, 3, 4]]


def test_neighbors_of_a_zero_vector_are_defined():
    vectors = np.eye(3, dtype=np.float32)
    vectors[0] = 0
    _, cosines = nearest_others(vectors, np.array([0]), 2)
    assert cosines.tolist() == [[0.0, 0.0]]


def test_no_more_neighbors_than_vectors_are_returned():
    ids, _ = nearest_others(np.eye(3, dtype=np.float32), np.array([0, 1]), 10)
    assert ids.shape == (2, 2)


@pytest.mark.parametrize("place", [0, 1])
def test_cosines_within_the_tolerance_are_ordered_by_position(place):
    scores = np.array([[0.2, 0.5, 0.5, 0.1]], dtype=np.float32)
    scores[0, 1 + place] += np.float32(TIE / 4)  # rounding makes either of the two higher
    best = TopK(1, 3, 4)
    best.add(slice(0, 1), 0, scores)
    assert best.result()[0].tolist() == [[1, 2, 0]]
    assert first_highest(scores[0]) == 1


def test_ties_with_the_last_document_of_the_list_are_ordered_by_position():
    scores = np.full((1, SPARE + 1), 0.5, dtype=np.float32)
    scores[0] += np.arange(SPARE + 1, dtype=np.float32) * np.float32(TIE / 8)
    best = TopK(1, 1, SPARE + 1)
    best.add(slice(0, 1), 0, scores)
    assert best.result()[0].tolist() == [[0]]

"""The best documents, met block by block, are those of a full sort; blocks and progress change nothing else."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.evaluation import RetrievalTask, rank, search
from bsc_core.evaluation.top import TopDocuments

numbers = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0])


def slow_top(cosines, n):
    """Positions by falling cosine, of equal ones the earlier first."""
    return np.asarray([sorted(range(len(row)), key=lambda place: (-row[place], place))[:n] for row in cosines])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.lists(numbers, min_size=9, max_size=9), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 9)
)
def test_any_blocks_give_the_sorted_order_ties_by_position(rows, n, width):
    cosines = np.asarray(rows, dtype=np.float32)
    best = TopDocuments(len(cosines), n)
    for first in range(0, 9, width):
        best.add(slice(0, len(cosines)), first, cosines[:, first : first + width])
    expected = slow_top(rows, n)
    np.testing.assert_array_equal(best.positions(), expected)
    np.testing.assert_array_equal(best.cosines(), np.take_along_axis(cosines, expected, axis=1))


@pytest.mark.parametrize("order", ["random", "rising", "constant"])
def test_wide_blocks_give_the_sorted_order_too(order):
    chooser = np.random.default_rng(3)
    cosines = chooser.uniform(-1, 1, (7, 3000)).round(2).astype(np.float32)
    cosines = {"random": cosines, "rising": np.sort(cosines, axis=1), "constant": np.full_like(cosines, 0.5)}[order]
    best = TopDocuments(7, 12)
    for first in range(0, 3000, 1100):
        best.add(slice(0, 7), first, cosines[:, first : first + 1100])
    np.testing.assert_array_equal(best.positions(), slow_top(cosines, 12))


def one_gold_each(queries, documents):
    ids = np.arange(queries, dtype=np.int32)
    corpus = np.arange(documents, dtype=np.int32)
    return RetrievalTask(ids, corpus, np.arange(queries + 1), (ids * 7) % documents, ids * 0, ids)


def test_blocks_of_documents_change_no_rank_and_report_progress(monkeypatch):
    chooser = np.random.default_rng(8)
    queries, corpus = (chooser.normal(size=(rows, 5)).astype(np.float32) for rows in (12, 230))
    corpus[100:140] = corpus[:40]
    task, told = one_gold_each(12, 230), []
    whole = rank(queries, corpus, task)
    monkeypatch.setattr("bsc_core.evaluation.retrieval.BLOCK_DOCUMENTS", 37)
    monkeypatch.setattr("bsc_core.evaluation.retrieval.BLOCK_BYTES", 4 * 37 * 5)
    cut = rank(queries, corpus, task, progress=lambda done, total: told.append((done, total)))
    assert cut.metrics == whole.metrics
    np.testing.assert_array_equal(cut.top_positions, whole.top_positions)
    assert told == [(min(37 * block, 230), 230) for block in range(1, 8)]


def test_the_order_of_the_corpus_changes_no_metric_ties_included():
    chooser = np.random.default_rng(9)
    queries, corpus = (chooser.integers(-1, 2, size=(rows, 3)).astype(np.float32) for rows in (30, 80))
    task, moved = one_gold_each(30, 80), chooser.permutation(80)
    back = np.argsort(moved).astype(np.int32)
    shuffled = RetrievalTask(task.query, task.corpus, task.offsets, back[task.gold], task.absent, task.rows)
    assert rank(queries, corpus[moved], shuffled).metrics == pytest.approx(rank(queries, corpus, task).metrics)


def test_a_corpus_on_disk_is_searched_in_bounded_memory(tmp_path):
    chooser = np.random.default_rng(4)
    path = tmp_path / "corpus.npy"
    corpus = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(400_000, 32))
    for start in range(0, len(corpus), 50_000):
        corpus[start : start + 50_000] = chooser.standard_normal((50_000, 32), dtype=np.float32)
    queries = np.array(corpus[::8000])
    mapped = np.load(path, mmap_mode="r")
    tracemalloc.start()
    positions, cosines = search(queries, mapped, top=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert positions[:, 0].tolist() == list(range(0, 400_000, 8000))
    assert cosines[:, 0] == pytest.approx(1)
    assert peak < 0.6 * 4 * 32 * 400_000  # a unit copy of the corpus alone is 49 MiB


def test_a_k_and_a_top_above_the_corpus_take_it_whole():
    chooser = np.random.default_rng(2)
    queries, corpus = (chooser.normal(size=(rows, 4)).astype(np.float32) for rows in (3, 5))
    result = rank(queries, corpus, one_gold_each(3, 5), k=(5, 50), top=50)
    assert result.top_ids.shape == (3, 5)
    assert result.metrics["recall@50"] == result.metrics["has_positive@50"] == 1
    assert result.metrics["precision@50"] == result.metrics["precision@5"] == pytest.approx(0.2)

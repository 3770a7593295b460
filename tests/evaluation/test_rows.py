"""Tests of lazily read rows of an embedding matrix: the same values as a copy, without the copy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from bsc_core.data.dataset import Corpus, PairDataset, ReadReport
from bsc_core.errors import DataError
from bsc_core.evaluation import evaluate, evaluate_queries, rank, retrieval_task
from bsc_core.evaluation.comparison import first_documents
from bsc_core.neighbors import TextRows, top_k

TEXTS, WIDTH = 6000, 256


@pytest.fixture
def table():
    vectors = np.random.default_rng(3).normal(size=(TEXTS, WIDTH)).astype(np.float32)
    vectors[10:20] = vectors[30:40]  # equal cosines
    return vectors


@pytest.fixture
def asked():
    """Forty pairs, and a corpus of nearly all texts in random order."""
    pairs = PairDataset.from_pairs([f"query {n}" for n in range(40)], [f"document {n}" for n in range(TEXTS - 40)][:40])
    texts = type(pairs.texts)((*pairs.texts.texts, *(f"other {n}" for n in range(TEXTS - 80))))
    pairs = pairs.reindex_texts(texts, np.arange(80, dtype=np.int32))
    documents = np.random.default_rng(4).permutation(np.arange(40, TEXTS, dtype=np.int32))
    report = ReadReport("memory", len(documents), len(documents), (), pairs.report.columns, False, "row")
    return pairs, Corpus(texts, documents, None, report)


@pytest.mark.parametrize("ids", [np.arange(40, TEXTS), np.random.default_rng(5).permutation(TEXTS)[:5000]])
def test_a_search_through_rows_is_the_search_through_their_copy(table, ids):
    rows, queries = TextRows(table, ids.astype(np.int32)), table[:40]
    assert (len(rows), rows.shape) == (len(ids), (len(ids), WIDTH))
    for ours, copied in zip(top_k(queries, rows, 30), top_k(queries, table[ids], 30), strict=True):
        assert np.array_equal(ours, copied)


def test_ranking_text_rows_equals_ranking_a_copy(table, asked):
    task = retrieval_task(*asked)
    ours = rank(table[task.query], TextRows(table, task.corpus), task)
    copied = rank(table[task.query], table[task.corpus], task)
    assert ours.metrics == copied.metrics
    assert np.array_equal(ours.first_rank, copied.first_rank)
    assert np.array_equal(ours.top_ids, copied.top_ids)


def test_a_row_that_is_not_finite_is_refused_with_its_number(table):
    table[45] = np.nan
    with pytest.raises(DataError, match="row 5 is not finite"):
        top_k(table[:1], TextRows(table, np.arange(40, 60, dtype=np.int32)), 10)


@pytest.mark.parametrize("measured", [evaluate, evaluate_queries, first_documents])
def test_evaluation_makes_no_copy_of_the_corpus(table, asked, monkeypatch, measured):
    monkeypatch.setattr("bsc_core.neighbors.BLOCK_DOCUMENTS", 256)
    pairs, corpus = asked
    more = (np.arange(5),) if measured is first_documents else ()
    tracemalloc.start()
    measured(table, pairs, corpus, *more)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < table.nbytes / 2

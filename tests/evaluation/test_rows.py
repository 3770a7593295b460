"""Rows of a table of vectors that are read as they are asked for: the same numbers as a copy, without the copy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from bsc_core.data.pairs import Corpus, PairDataset, ReadReport
from bsc_core.errors import DataError
from bsc_core.evaluation import TextRows, evaluate, evaluate_queries, rank, retrieval_task, search
from bsc_core.evaluation.changes import first_documents

TEXTS, WIDTH = 6000, 256


@pytest.fixture
def table():
    vectors = np.random.default_rng(3).normal(size=(TEXTS, WIDTH)).astype(np.float32)
    vectors[10:20] = vectors[30:40]  # equal cosines
    return vectors


@pytest.fixture
def asked():
    """Forty pairs, and a corpus of nearly all texts in no order."""
    pairs = PairDataset.from_pairs([f"query {n}" for n in range(40)], [f"document {n}" for n in range(TEXTS - 40)][:40])
    texts = type(pairs.texts)((*pairs.texts.texts, *(f"other {n}" for n in range(TEXTS - 80))))
    pairs = pairs.moved_to(texts, np.arange(80, dtype=np.int32))
    documents = np.random.default_rng(4).permutation(np.arange(40, TEXTS, dtype=np.int32))
    report = ReadReport("memory", len(documents), len(documents), (), pairs.report.columns, False, "row")
    return pairs, Corpus(texts, documents, None, report)


@pytest.mark.parametrize("ids", [np.arange(40, TEXTS), np.random.default_rng(5).permutation(TEXTS)[:5000]])
def test_a_search_through_rows_is_the_search_through_their_copy(table, ids):
    rows, queries = TextRows(table, ids.astype(np.int32)), table[:40]
    assert (len(rows), rows.shape) == (len(ids), (len(ids), WIDTH))
    for ours, copied in zip(search(queries, rows, top=30), search(queries, table[ids], top=30), strict=True):
        assert np.array_equal(ours, copied)


def test_a_ranking_through_rows_is_the_ranking_through_their_copy(table, asked):
    task = retrieval_task(*asked)
    ours = rank(table[task.query], TextRows(table, task.corpus), task)
    copied = rank(table[task.query], table[task.corpus], task)
    assert ours.metrics == copied.metrics
    assert np.array_equal(ours.first_rank, copied.first_rank)
    assert np.array_equal(ours.top_ids, copied.top_ids)


def test_a_row_that_is_not_finite_is_refused_by_its_place(table):
    table[45] = np.nan
    with pytest.raises(DataError, match="row 5 is not finite"):
        search(table[:1], TextRows(table, np.arange(40, 60, dtype=np.int32)))


@pytest.mark.parametrize("measured", [evaluate, evaluate_queries, first_documents])
def test_measuring_holds_no_copy_of_the_corpus(table, asked, monkeypatch, measured):
    monkeypatch.setattr("bsc_core.evaluation.retrieval.BLOCK_DOCUMENTS", 256)
    pairs, corpus = asked
    more = (np.arange(5),) if measured is first_documents else ()
    tracemalloc.start()
    measured(table, pairs, corpus, *more)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < table.nbytes / 2

"""Tests of retrieval errors: the affected queries, the documents ranked above gold, and the likely cause."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.config import CorpusColumns
from bsc_core.data.dataset import Corpus, PairDataset, ReadReport
from bsc_core.evaluation import rank, retrieval_task
from bsc_core.evaluation.retrieval.failures import Cause, find_failures


def dataset(rows):
    """Return a dataset of (query, document, label) rows."""
    return PairDataset.from_pairs(*(list(column) for column in zip(*rows, strict=True)))


def failing(rows, cosines):
    """Return the failures if the cosine of text t with the first query is cosines[t]."""
    data = dataset(rows)
    angles = np.arccos([cosines.get(text, -1.0) for text in data.texts])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    task = retrieval_task(data)
    result = rank(vectors[task.query], vectors[task.corpus], task)
    found = find_failures(task, result, data, vectors)
    return data, task, result, found


FILLER = ("where do ducks sleep", "ducks sleep on the water", 1.0)


@pytest.mark.parametrize(
    ("wrong", "gold", "label", "cause"),
    [
        ("bread falls flat", "give it time", 0.0, Cause.LABELED),
        ("give it Time.", "give it time", None, Cause.NEAR_GOLD),
        ("why is my bread so very flat", "give it time", None, Cause.WORDS),
        ("ducks fly south", "give it time", None, Cause.UNJUDGED),
    ],
)
def test_the_cause_is_derived_from_texts_and_labels(wrong, gold, label, cause):
    requested = "why is my bread flat"
    other = [(requested, wrong, label)] if label is not None else [("what do ducks do in autumn", wrong, 1.0)]
    rows = [(requested, gold, 1.0), *other, FILLER]
    _, task, _, result = failing(rows, {requested: 1.0, wrong: 0.9, gold: 0.5})
    mine = next(failure for failure in result if failure.query == 0)
    assert mine.cause == cause
    assert mine.first_cosine == pytest.approx(0.9, abs=1e-5)
    assert mine.gold_cosine == pytest.approx(0.5, abs=1e-5)
    assert (mine.rank, task.relevant(0).tolist()) == (2, [mine.gold])


def test_the_document_of_a_nearly_equal_query_may_be_relevant():
    requested, nearly = "why is my bread flat", "why is my bread flat?"
    rows = [(requested, "give it time", 1.0), (nearly, "use more yeast", 1.0), FILLER]
    _, _, _, result = failing(rows, {requested: 1.0, nearly: 0.99, "use more yeast": 0.9, "give it time": 0.5})
    assert result[0].cause == Cause.NEAR_QUERY


def test_a_failing_query_is_compared_with_some_queries_of_the_document(monkeypatch):
    requested = "why is my bread flat"
    rows = [(requested, "give it time", 1.0), *((f"question {n}", "use more yeast", 1.0) for n in range(3))]
    rows += [("why is my bread flat?", "use more yeast", 1.0), FILLER]
    cosines = {requested: 1.0, "use more yeast": 0.9, "give it time": 0.5}
    causes = {failure.query: failure.cause for failure in failing(rows, cosines)[3]}
    assert causes[0] == Cause.NEAR_QUERY
    monkeypatch.setattr("bsc_core.evaluation.retrieval.failures.MAX_QUERIES", 3)
    causes = {failure.query: failure.cause for failure in failing(rows, cosines)[3]}
    assert causes[0] == Cause.UNJUDGED


def test_an_equal_document_is_a_tie_that_counts_against_gold():
    rows = [("a b", "c d", 1.0), ("e f", "g h", 1.0)]
    _, _, result, found = failing(rows, {"a b": 1.0, "e f": -1.0, "c d": 0.5, "g h": 0.5})
    assert result.first_rank[0] == 2
    assert found[[failure.query for failure in found].index(0)].cause == Cause.TIE


def test_failures_are_the_queries_whose_gold_is_not_first_worst_first():
    generator = np.random.default_rng(3)
    rows = [(f"query {number}", f"document {number}", 1.0) for number in range(30)]
    data = dataset(rows)
    vectors = generator.normal(size=(60, 6)).astype(np.float32)
    task = retrieval_task(data)
    result = rank(vectors[task.query], vectors[task.corpus], task)
    found = find_failures(task, result, data, vectors)
    assert {failure.query for failure in found} == set(np.flatnonzero(result.first_rank != 1).tolist())
    assert [failure.rank for failure in found] == sorted((failure.rank for failure in found), reverse=True)
    assert all(failure.gold_cosine <= failure.first_cosine + 1e-6 for failure in found)
    assert len(find_failures(task, result, data, vectors, max_failures=3)) == 3


def test_queries_without_gold_in_the_corpus_come_first():
    rows = [("a", "b", 1.0), ("c", "d", 1.0)]
    data = dataset(rows)
    corpus = Corpus(data.texts, data.document[1:], None, ReadReport("c", 0, 0, (), CorpusColumns(document="d"), False))
    task = retrieval_task(data, corpus)
    vectors = np.eye(4, dtype=np.float32)
    result = rank(vectors[task.query], vectors[task.corpus], task)
    found = find_failures(task, result, data, vectors)
    assert (found[0].query, found[0].cause, found[0].gold, found[0].rank) == (0, Cause.ABSENT, None, 0)


def test_a_corpus_of_gold_alone_has_no_failure():
    rows = [("a", "b", 1.0), ("a", "c", 1.0)]
    assert failing(rows, {"a": 1.0, "b": 0.2, "c": 0.3})[3] == []

"""Tests of user-supplied queries: gold documents matched in the corpus, and agreement between two models."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.evaluation import rank
from bsc_core.evaluation.retrieval.adhoc_queries import adhoc_task, answer_overlap, compare_answers
from bsc_core.neighbors import top_k


def test_relevant_documents_match_ignoring_case_and_spaces():
    task = adhoc_task([["Bake  IT"], [], ["nowhere", "water it"], ["bake it", "BAKE IT"]], ["bake it", "water it", "x"])
    assert [task.relevant(query).tolist() for query in range(4)] == [[0], [], [1], [0]]
    assert task.absent.tolist() == [0, 0, 1, 0]


def test_every_occurrence_of_a_relevant_document_is_relevant():
    assert adhoc_task([["a"]], ["a", "b", "A "]).relevant(0).tolist() == [0, 2]


def test_the_task_is_ranked_like_any_other():
    vectors = np.eye(3, dtype=np.float32)
    task = adhoc_task([["b"], ["absent"]], ["a", "b", "c"])
    result = rank(np.array([[0, 1, 0], [1, 0, 0]], dtype=np.float32), vectors, task)
    assert result.first_rank.tolist() == [1, 0]
    assert result.metrics["mrr"] == 0.5
    assert result.metrics["gold_missing"] == 1


def test_no_query_is_a_task_too():
    task = adhoc_task([], ["a"])
    assert task.missing == 0
    assert rank(np.empty((0, 2), np.float32), np.ones((1, 2), np.float32), task).metrics["mrr"] is None


def test_shared_answers_agree_with_sets():
    generator = np.random.default_rng(0)
    left, right = (np.stack([generator.permutation(12)[:5] for _ in range(30)]) for _ in range(2))
    slow = [len(set(one) & set(other)) / 5 for one, other in zip(left.tolist(), right.tolist(), strict=True)]
    assert answer_overlap(left, right).tolist() == slow
    assert answer_overlap(left, left).tolist() == [1.0] * 30


@pytest.mark.parametrize("documents", [1, 7, 400])
def test_compared_answers_agree_with_the_full_ranking(documents, monkeypatch):
    monkeypatch.setattr("bsc_core.neighbors.BLOCK_DOCUMENTS", 64)
    generator = np.random.default_rng(documents)
    corpora = tuple(generator.integers(-1, 2, size=(documents, width)).astype(np.float32) for width in (4, 3))
    queries = tuple(generator.integers(-1, 2, size=corpus.shape[1]).astype(np.float32) for corpus in corpora)
    whole = [top_k(query[None], corpus, documents) for query, corpus in zip(queries, corpora, strict=True)]
    assert documents < 400 or all(len(np.unique(cosines)) < 100 for _, cosines in whole), "most are ties"
    result = compare_answers(queries, corpora, top=10)
    for own, other, answer in zip(whole, whole[::-1], result, strict=True):
        assert answer.positions.tolist() == own[0][0, :10].tolist()
        assert answer.cosines.tolist() == own[1][0, :10].tolist()
        order = other[0][0].tolist()
        assert answer.other_ranks.tolist() == [order.index(place) + 1 for place in answer.positions.tolist()]

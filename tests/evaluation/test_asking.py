"""Queries from outside: their right documents found in the corpus, and how far two models' answers agree."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.evaluation import rank, search
from bsc_core.evaluation.asking import answers_beside, asked_task, shared_answers


def test_right_documents_are_found_whatever_their_case_and_spaces():
    task = asked_task([["Bake  IT"], [], ["nowhere", "water it"], ["bake it", "BAKE IT"]], ["bake it", "water it", "x"])
    assert [task.relevant(query).tolist() for query in range(4)] == [[0], [], [1], [0]]
    assert task.absent.tolist() == [0, 0, 1, 0]


def test_a_document_that_stands_twice_is_right_twice():
    assert asked_task([["a"]], ["a", "b", "A "]).relevant(0).tolist() == [0, 2]


def test_the_task_is_ranked_like_any_other():
    vectors = np.eye(3, dtype=np.float32)
    task = asked_task([["b"], ["absent"]], ["a", "b", "c"])
    result = rank(np.array([[0, 1, 0], [1, 0, 0]], dtype=np.float32), vectors, task)
    assert result.first_rank.tolist() == [1, 0]
    assert result.metrics["mrr"] == 0.5
    assert result.metrics["gold_missing"] == 1


def test_no_query_is_a_task_too():
    task = asked_task([], ["a"])
    assert task.missing == 0
    assert rank(np.empty((0, 2), np.float32), np.ones((1, 2), np.float32), task).metrics["mrr"] is None


def test_shared_answers_agree_with_sets():
    chooser = np.random.default_rng(0)
    left, right = (np.stack([chooser.permutation(12)[:5] for _ in range(30)]) for _ in range(2))
    slow = [len(set(one) & set(other)) / 5 for one, other in zip(left.tolist(), right.tolist(), strict=True)]
    assert shared_answers(left, right).tolist() == slow
    assert shared_answers(left, left).tolist() == [1.0] * 30


@pytest.mark.parametrize("documents", [1, 7, 400])
def test_answers_beside_each_other_are_those_of_the_whole_order(documents, monkeypatch):
    monkeypatch.setattr("bsc_core.evaluation.retrieval.BLOCK_DOCUMENTS", 64)
    chooser = np.random.default_rng(documents)
    corpora = tuple(chooser.integers(-1, 2, size=(documents, width)).astype(np.float32) for width in (4, 3))
    queries = tuple(chooser.integers(-1, 2, size=corpus.shape[1]).astype(np.float32) for corpus in corpora)
    whole = [search(query[None], corpus, top=documents) for query, corpus in zip(queries, corpora, strict=True)]
    assert documents < 400 or all(len(np.unique(cosines)) < 100 for _, cosines in whole), "most are ties"
    found = answers_beside(queries, corpora, top=10)
    for own, other, answer in zip(whole, whole[::-1], found, strict=True):
        assert answer.positions.tolist() == own[0][0, :10].tolist()
        assert answer.cosines.tolist() == own[1][0, :10].tolist()
        order = other[0][0].tolist()
        assert answer.other_ranks.tolist() == [order.index(place) + 1 for place in answer.positions.tolist()]

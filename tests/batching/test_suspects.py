"""Likely false negatives: each reason by an example, and all of them beside a slow search."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.batching import Reason, marked_cells, suspects
from bsc_core.batching.suspects import ALIKE, alike
from bsc_core.data import PairDataset
from bsc_core.data.marks import with_marks

QUERIES = [
    "how to bake bread",
    "bread: how to bake",
    "reset a password",
    "plant a rose",
    "plant a rose",
    "tune a guitar",
]
DOCUMENTS = ["knead it well", "use a hot oven today", "click the link", "dig a deep hole", "water it", "knead it well"]


@pytest.fixture
def dataset() -> PairDataset:
    return PairDataset.from_pairs(QUERIES, DOCUMENTS, [1, 1, 1, 1, 1, 0.9])


def vectors_apart(dataset: PairDataset) -> np.ndarray:
    """Every pair's texts on an axis of their own, so that no document is nearer than the own one."""
    vectors = np.zeros((len(dataset.texts), len(dataset) + 1), dtype=np.float32)
    for row in range(len(dataset)):
        vectors[dataset.query[row], row] = vectors[dataset.document[row], row] = 1
    return vectors


def reasons(dataset: PairDataset, vectors: np.ndarray) -> dict[tuple[int, int], tuple[Reason, ...]]:
    rows = np.arange(len(dataset), dtype=np.int32)
    return {(one.query_row, one.document_row): one.reasons for one in suspects(dataset, vectors, rows, top=100)}


def test_each_reason_is_told(dataset: PairDataset) -> None:
    found = reasons(dataset, vectors_apart(dataset))
    assert Reason.SAME_DOCUMENT in found[0, 5]
    assert Reason.SAME_QUERY in found[3, 4]
    assert Reason.NEAR_QUERY in found[0, 1]
    assert not any(2 in pair for pair in found)


def test_a_pair_labelled_positive_in_another_row_is_told() -> None:
    dataset = PairDataset.from_pairs(["a", "b", "a"], ["x", "y", "y"])
    found = reasons(dataset, vectors_apart(dataset))
    assert Reason.LABELLED in found[0, 1]


def test_a_document_nearer_than_the_own_one_is_told_unless_it_is_labelled_negative() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.9, 0.1]], dtype=np.float32)  # q1, q2, d1, d2
    free = PairDataset.from_pairs(["q1", "q2"], ["d1", "d2"])
    assert reasons(free, vectors)[0, 1] == (Reason.CLOSER,)
    labelled = PairDataset.from_pairs(["q1", "q2", "q1"], ["d1", "d2", "d2"], [1, 1, 0])
    rows = np.array([0, 1], dtype=np.int32)
    told = {(one.query_row, one.document_row) for one in suspects(labelled, vectors, rows)}
    assert (0, 1) not in told
    assert (1, 0) in told


def test_a_mark_stands_first_and_is_seen_in_its_cells() -> None:
    dataset = with_marks(PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"]), [("c", "x"), ("c", "elsewhere")])
    rows = np.array([2, 0, 1], dtype=np.int32)
    assert marked_cells(dataset, rows).tolist() == [[False, True, False], [False] * 3, [False] * 3]
    (first, *_) = suspects(dataset, vectors_apart(dataset), rows)
    assert (first.query_row, first.document_row) == (2, 0)
    assert first.reasons[0] == Reason.MARKED


def test_stronger_reasons_come_first_and_more_similar_pairs_among_equals(dataset: PairDataset) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(len(dataset.texts), 5)).astype(np.float32)
    found = suspects(dataset, vectors, np.arange(len(dataset), dtype=np.int32), top=100)
    order = [(list(Reason).index(one.reasons[0]), -one.similarity) for one in found]
    assert order == sorted(order)
    assert len(suspects(dataset, vectors, np.arange(6, dtype=np.int32), top=3)) == 3


def test_alike_texts_share_most_of_their_words() -> None:
    texts = ["One two three four five", "five FOUR three, two one!", "one two three four", "one", "", ""]
    words = [set(text.lower().replace(",", "").replace("!", "").split()) for text in texts]
    slow = [[bool(a & b) and len(a & b) / len(a | b) >= ALIKE for b in words] for a in words]
    assert alike(texts).tolist() == slow
    assert slow[0][2]
    assert not slow[4][5]

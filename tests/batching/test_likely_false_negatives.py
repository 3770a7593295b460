"""Likely false negatives: each reason by an example, and all of them against a slow search."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.batching import (
    Reason,
    likely_false_negatives,
    marked_cells,
    mined_false_negatives,
    nearest_false_negatives,
)
from bsc_core.batching.likely_false_negatives import NEARLY_EQUAL, nearly_equal
from bsc_core.data import PairDataset, text_normalization
from bsc_core.data.decisions import KINDS, Decision, with_decisions

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
    return {
        (one.query_row, one.document_row): one.reasons
        for one in likely_false_negatives(dataset, vectors, rows, top=100)
    }


def test_each_reason_is_reported(dataset: PairDataset) -> None:
    result = reasons(dataset, vectors_apart(dataset))
    assert Reason.SAME_DOCUMENT in result[0, 5]
    assert Reason.SAME_QUERY in result[3, 4]
    assert Reason.NEAR_QUERY in result[0, 1]
    assert not any(2 in pair for pair in result)


def test_a_pair_labeled_positive_in_another_row_is_reported() -> None:
    dataset = PairDataset.from_pairs(["a", "b", "a"], ["x", "y", "y"])
    result = reasons(dataset, vectors_apart(dataset))
    assert Reason.LABELED in result[0, 1]


def test_a_document_closer_than_the_positive_is_reported_unless_labeled_negative() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.9, 0.1]], dtype=np.float32)  # q1, q2, d1, d2
    free = PairDataset.from_pairs(["q1", "q2"], ["d1", "d2"])
    assert reasons(free, vectors)[0, 1] == (Reason.CLOSER,)
    labeled = PairDataset.from_pairs(["q1", "q2", "q1"], ["d1", "d2", "d2"], [1, 1, 0])
    rows = np.array([0, 1], dtype=np.int32)
    reported = {(one.query_row, one.document_row) for one in likely_false_negatives(labeled, vectors, rows)}
    assert (0, 1) not in reported
    assert (1, 0) in reported


def test_a_mark_comes_first_and_appears_in_its_cells() -> None:
    dataset = with_decisions(
        PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"]), [Decision("c", "x"), Decision("c", "elsewhere")]
    )
    rows = np.array([2, 0, 1], dtype=np.int32)
    assert marked_cells(dataset, rows).tolist() == [[False, True, False], [False] * 3, [False] * 3]
    (first, *_) = likely_false_negatives(dataset, vectors_apart(dataset), rows)
    assert (first.query_row, first.document_row) == (2, 0)
    assert first.reasons[0] == Reason.MARKED


def test_a_pair_decided_true_negative_is_no_likely_false_negative() -> None:
    dataset = PairDataset.from_pairs(["q1", "q2"], ["d1", "d2"])
    vectors = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.9, 0.1]], dtype=np.float32)  # q1, q2, d1, d2
    assert (0, 1) in reasons(dataset, vectors)
    assert (0, 1) not in reasons(with_decisions(dataset, [Decision("q1", "d2", "true_negative")]), vectors)


def test_all_training_pairs_are_searched_except_decided_ones() -> None:
    texts = (["how do I boil an egg now", "why is the sky blue", "c"], ["six minutes", "light scatters", "z"])
    dataset = PairDataset.from_pairs([*texts[0], "How do I boil an egg"], [*texts[1], "in hot water"])
    vectors = vectors_apart(dataset)
    vectors[dataset.document[2]] += 2 * vectors[dataset.query[1]]
    vectors[dataset.document[1], -1] = 1  # z is closer to the second query than its positive
    result = {(one.query_row, one.document_row): one for one in nearest_false_negatives(dataset, vectors)}
    assert {pair: one.reasons for pair, one in result.items()} == {
        (0, 3): (Reason.NEAR_QUERY,),
        (3, 0): (Reason.NEAR_QUERY,),
        (1, 2): (Reason.CLOSER,),
    }
    assert list(result)[-1] == (1, 2), "texts are a stronger reason than similarity"
    assert result[1, 2].similarity > result[1, 2].positive_similarity
    assert len(nearest_false_negatives(dataset, vectors, top=1)) == 1
    for kind in KINDS:
        decided = with_decisions(dataset, [Decision(texts[0][1], "z", kind)])
        assert (1, 2) not in {(one.query_row, one.document_row) for one in nearest_false_negatives(decided, vectors)}


@pytest.mark.parametrize("as_triplets", [True, False])
def test_mined_negatives_are_suspects_until_they_are_decided(as_triplets: bool) -> None:
    if as_triplets:
        dataset = PairDataset.from_pairs(["q", "q", "r"], ["a", "a", "d"], negatives=["b", "c", "b"])
    else:
        dataset = PairDataset.from_pairs(["q", "q", "q", "r", "r"], ["a", "b", "c", "d", "b"], [1, 0, 0, 1, 0])
    table = {"q": [1, 0], "r": [0, 1], "a": [0.8, 0.6], "b": [0.96, 0.28], "c": [0, 1], "d": [0.6, 0.8]}
    vectors = np.array([table[text] for text in dataset.texts], dtype=np.float32)

    def suspects(data: PairDataset) -> list[tuple[str, str, tuple[Reason, ...]]]:
        documents = data.document if data.negative is None else data.negative
        return [
            (data.texts[data.query[one.query_row]], data.texts[documents[one.document_row]], one.reasons)
            for one in mined_false_negatives(data, vectors)
        ]

    expected = [
        ("q", "b", (Reason.CLOSER, Reason.MINED)),
        ("r", "b", (Reason.MINED,)),
        ("q", "c", (Reason.MINED,)),
    ]
    assert suspects(dataset) == expected
    for kind in KINDS:
        assert suspects(with_decisions(dataset, [Decision("q", "b", kind)])) == expected[1:]


def test_stronger_reasons_come_first_and_more_similar_pairs_among_equals(dataset: PairDataset) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(len(dataset.texts), 5)).astype(np.float32)
    result = likely_false_negatives(dataset, vectors, np.arange(len(dataset), dtype=np.int32), top=100)
    order = [(list(Reason).index(one.reasons[0]), -one.similarity) for one in result]
    assert order == sorted(order)
    assert len(likely_false_negatives(dataset, vectors, np.arange(6, dtype=np.int32), top=3)) == 3


def test_rare_and_frequent_words_of_nearly_equal_texts_are_counted() -> None:
    generator = np.random.default_rng(0)
    words = [[*generator.choice(12, 8, replace=False).tolist(), 100 + row // 2, 200 + row // 3] for row in range(60)]
    texts = [" ".join(f"w{word}" for word in one) for one in words]
    sets = [set(one) for one in words]
    slow = [[len(a & b) / len(a | b) >= NEARLY_EQUAL for b in sets] for a in sets]
    assert nearly_equal(texts).tolist() == slow
    assert 60 < np.sum(slow) < 60 * 60


def test_texts_are_compared_by_their_first_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_normalization, "MAX_WORDS", 3)
    assert nearly_equal(["a b c d e f", "a b c x y z"]).all()


def test_nearly_equal_texts_share_most_of_their_words() -> None:
    texts = ["One two three four five", "five FOUR three, two one!", "one two three four", "one", "", ""]
    words = [set(text.lower().replace(",", "").replace("!", "").split()) for text in texts]
    slow = [[bool(a & b) and len(a & b) / len(a | b) >= NEARLY_EQUAL for b in words] for a in words]
    assert nearly_equal(texts).tolist() == slow
    assert slow[0][2]
    assert not slow[4][5]

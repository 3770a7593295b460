"""Tests of search outcome labels, against a naive ranking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.data import PairDataset, read_pairs
from bsc_core.evaluation.retrieval import search_errors as errors


@pytest.fixture
def pairs(tmp_path: Path) -> PairDataset:
    """Thirty queries with one document each."""
    lines = "\n".join(f"query {number}\tdocument {number}" for number in range(30))
    (tmp_path / "pairs.tsv").write_text(f"query\tdocument\n{lines}\n", encoding="utf-8")
    return read_pairs(str(tmp_path / "pairs.tsv"))


def slowly(pairs: PairDataset, vectors: np.ndarray, documents: list[int]) -> dict[int, str]:
    """Return the label of each text, from one sorted list per query."""
    result: dict[int, str] = {}
    firsts = []
    for query, gold in zip(pairs.query.tolist(), pairs.document.tolist(), strict=True):
        ranked = sorted(documents, key=lambda text: -float(vectors[query] @ vectors[text]))
        place = ranked.index(gold) if gold in documents else len(ranked)
        result[query] = (
            errors.FIRST if place == 0 else errors.IN_TOP_10 if place < 10 and gold in documents else errors.MISSED
        )
        if place:
            firsts.append(ranked[0])
    return result | dict.fromkeys(firsts, errors.ABOVE_RELEVANT)


@pytest.fixture
def vectors(pairs: PairDataset) -> np.ndarray:
    """Documents about as close to their query as other documents."""
    random = np.random.default_rng(1)
    made = random.normal(size=(len(pairs.texts), 8))
    made[pairs.document] += 0.8 * made[pairs.query]
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def test_every_text_has_the_outcome_of_a_naive_search(pairs: PairDataset, vectors: np.ndarray) -> None:
    reported = errors.search_errors([pairs], None, vectors)
    slow = slowly(pairs, vectors, sorted(set(pairs.document.tolist())))
    assert reported == [slow.get(text, errors.NOT_SEARCHED) for text in range(len(pairs.texts))]
    assert set(reported) == {errors.FIRST, errors.IN_TOP_10, errors.MISSED, errors.ABOVE_RELEVANT, errors.NOT_SEARCHED}


def test_only_the_given_texts_are_searched(pairs: PairDataset, vectors: np.ndarray) -> None:
    kept = np.setdiff1d(np.arange(len(pairs.texts), dtype=np.int32), [pairs.query[3], pairs.document[5]])
    reported = errors.search_errors([pairs], None, vectors[kept], texts=kept)
    documents = sorted(set(pairs.document.tolist()) & set(kept.tolist()))
    slow = slowly(pairs.take(np.delete(np.arange(30), 3)), vectors, documents)
    assert reported == [slow.get(text, errors.NOT_SEARCHED) for text in kept.tolist()]


def test_tied_gold_documents_are_not_ranked_above_gold(pairs: PairDataset) -> None:
    reported = errors.search_errors([pairs], None, np.ones((len(pairs.texts), 4), dtype=np.float32))
    documents = sorted(set(pairs.document.tolist()))
    assert [text for text in documents if reported[text] == errors.ABOVE_RELEVANT] == documents[:2]


def test_of_several_tied_gold_documents_none_is_ranked_above_gold() -> None:
    pairs = PairDataset.from_pairs(["q", "q", "q", "r"], ["a", "b", "c", "d"])
    reported = dict(
        zip(pairs.texts.texts, errors.search_errors([pairs], None, np.ones((6, 4), np.float32)), strict=True)
    )
    assert reported == dict.fromkeys("qr", errors.IN_TOP_10) | dict.fromkeys(
        "ad", errors.ABOVE_RELEVANT
    ) | dict.fromkeys("bc", errors.NOT_SEARCHED)


def test_without_queries_nothing_is_searched(pairs: PairDataset, vectors: np.ndarray) -> None:
    assert set(errors.search_errors([], None, vectors)) == {errors.NOT_SEARCHED}
    none = np.array([int(pairs.document[0])], dtype=np.int32)
    assert errors.search_errors([pairs], None, vectors[none], texts=none) == [errors.NOT_SEARCHED]

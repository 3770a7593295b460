"""One word for each text of how a search ends, compared with a ranking made one cosine at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.data import PairDataset, read_pairs
from bsc_core.evaluation import search_errors as errors


@pytest.fixture
def pairs(tmp_path: Path) -> PairDataset:
    """Thirty queries, each with one document of its own."""
    lines = "\n".join(f"query {number}\tdocument {number}" for number in range(30))
    (tmp_path / "pairs.tsv").write_text(f"query\tdocument\n{lines}\n", encoding="utf-8")
    return read_pairs(str(tmp_path / "pairs.tsv"))


def slowly(pairs: PairDataset, vectors: np.ndarray, documents: list[int]) -> dict[int, str]:
    """The word of each text by one sorted list for each query."""
    found: dict[int, str] = {}
    firsts = []
    for query, gold in zip(pairs.query.tolist(), pairs.document.tolist(), strict=True):
        ranked = sorted(documents, key=lambda text: -float(vectors[query] @ vectors[text]))
        place = ranked.index(gold) if gold in documents else len(ranked)
        found[query] = (
            errors.FIRST if place == 0 else errors.LATER if place < 10 and gold in documents else errors.MISSED
        )
        if place:
            firsts.append(ranked[0])
    return found | dict.fromkeys(firsts, errors.INSTEAD)


@pytest.fixture
def vectors(pairs: PairDataset) -> np.ndarray:
    """Documents that lie about as near to their query as others do."""
    random = np.random.default_rng(1)
    made = random.normal(size=(len(pairs.texts), 8))
    made[pairs.document] += 0.8 * made[pairs.query]
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def test_every_text_has_the_word_of_a_slow_search(pairs: PairDataset, vectors: np.ndarray) -> None:
    told = errors.search_errors([pairs], None, vectors)
    slow = slowly(pairs, vectors, sorted(set(pairs.document.tolist())))
    assert told == [slow.get(text, errors.OTHERS) for text in range(len(pairs.texts))]
    assert set(told) == {errors.FIRST, errors.LATER, errors.MISSED, errors.INSTEAD, errors.OTHERS}


def test_among_some_texts_only_these_are_searched_and_told(pairs: PairDataset, vectors: np.ndarray) -> None:
    kept = np.setdiff1d(np.arange(len(pairs.texts), dtype=np.int32), [pairs.query[3], pairs.document[5]])
    told = errors.search_errors([pairs], None, vectors[kept], texts=kept)
    documents = sorted(set(pairs.document.tolist()) & set(kept.tolist()))
    slow = slowly(pairs.take(np.delete(np.arange(30), 3)), vectors, documents)
    assert told == [slow.get(text, errors.OTHERS) for text in kept.tolist()]


def test_gold_is_never_what_came_before_it_where_documents_are_as_near(pairs: PairDataset) -> None:
    told = errors.search_errors([pairs], None, np.ones((len(pairs.texts), 4), dtype=np.float32))
    documents = sorted(set(pairs.document.tolist()))
    assert [text for text in documents if told[text] == errors.INSTEAD] == documents[:2]


def test_of_several_right_documents_ahead_of_a_tie_none_came_first_instead() -> None:
    pairs = PairDataset.from_pairs(["q", "q", "q", "r"], ["a", "b", "c", "d"])
    told = dict(zip(pairs.texts.texts, errors.search_errors([pairs], None, np.ones((6, 4), np.float32)), strict=True))
    assert told == dict.fromkeys("qr", errors.LATER) | dict.fromkeys("ad", errors.INSTEAD) | dict.fromkeys(
        "bc", errors.OTHERS
    )


def test_without_queries_nothing_was_asked(pairs: PairDataset, vectors: np.ndarray) -> None:
    assert set(errors.search_errors([], None, vectors)) == {errors.OTHERS}
    none = np.array([int(pairs.document[0])], dtype=np.int32)
    assert errors.search_errors([pairs], None, vectors[none], texts=none) == [errors.OTHERS]

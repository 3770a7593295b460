"""Documents that become negatives, as rows and as a column."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import CorpusColumns, NegativesConfig
from bsc_core.data.dataset import Corpus, PairDataset, TextTable, merge_text_tables
from bsc_core.data.decisions import Decision, DecisionKind, with_decisions
from bsc_core.data.generation.negatives import (
    at_ranks,
    find_candidates,
    hardest_below,
    negative_ranks,
    with_negative_column,
    with_negative_rows,
)
from bsc_core.data.read_report import ReadReport
from bsc_core.errors import DataError


def with_corpus(pairs, documents, keys=None):
    table, ids = TextTable.from_texts(documents)
    report = ReadReport("corpus", len(ids), len(ids), (), CorpusColumns(document="document"), False)
    texts, (ours, theirs) = merge_text_tables([pairs.texts, table])
    return pairs.reindex_texts(texts, ours), Corpus(table, ids, keys, report).reindex_texts(texts, theirs)


def test_the_papers_ranks():
    assert negative_ranks(NegativesConfig()).tolist() == [101, 102, 104, 108, 116]
    assert negative_ranks(NegativesConfig(first_rank=1, count=3)).tolist() == [2, 3, 5]
    assert (np.diff(negative_ranks(NegativesConfig(count=64))) >= 0).all()


def test_positives_repeats_the_query_itself_and_marked_pairs_are_excluded():
    pairs = PairDataset.from_pairs(["q", "q", "r"], ["a good answer", "b", "c"], query_ids=["1", "1", "2"])
    pairs, corpus = with_corpus(pairs, ["A good answer!", "b", "c", "d", "Q?", "marked"])
    known = find_candidates(with_decisions(pairs, [Decision("q", "marked")]), corpus)
    texts = pairs.texts.take(known.document)
    of_q = known.query.tolist().index(pairs.texts.texts.index("q"))
    excluded = known.is_excluded(np.full(len(texts), of_q), np.arange(len(texts)))
    assert set(itertools.compress(texts, excluded)) == {"A good answer!", "b", "Q?", "marked"}
    assert known.available[of_q] == 2
    assert known.available[1 - of_q] == 5
    assert known.most_excluded == 4


@pytest.mark.parametrize(("kind", "mined"), [("positive", False), ("drop", False), ("true_negative", True)])
def test_only_a_true_negative_may_be_mined(kind: DecisionKind, mined: bool) -> None:
    pairs = PairDataset.from_pairs(["q", "r"], ["a", "b"])
    known = find_candidates(with_decisions(pairs, [Decision("q", "b", kind)]), None)
    of_q, of_b = (
        ids.tolist().index(pairs.texts.texts.index(text)) for ids, text in ((known.query, "q"), (known.document, "b"))
    )
    assert known.is_excluded([of_q], [of_b]).tolist() == [not mined]


def test_queries_that_share_an_id_share_their_positives():
    pairs = PairDataset.from_pairs(["q", "same q", "r"], ["a", "b", "c"], query_ids=["1", "1", "2"])
    known = find_candidates(pairs, None)
    names = pairs.texts.take(known.query)
    texts = pairs.texts.take(known.document)
    excluded = {name: set() for name in names}
    for number, name in enumerate(names):
        mask = known.is_excluded(np.full(len(texts), number), np.arange(len(texts)))
        excluded[name] = set(itertools.compress(texts, mask))
    assert excluded == {"q": {"a", "b"}, "same q": {"a", "b"}, "r": {"c"}}


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 30), st.integers(1, 6), st.integers(1, 12))
def test_ranks_skip_excluded_documents(seed, queries, documents, count, first_rank):
    generator = np.random.default_rng(seed)
    ranked = np.stack([generator.permutation(documents) for _ in range(queries)])
    excluded = generator.random((queries, documents)) < 0.3
    ranks = negative_ranks(NegativesConfig(count=count, first_rank=first_rank))
    result = at_ranks(ranked, excluded, documents - excluded.sum(axis=1), ranks)
    for query in range(queries):
        others = ranked[query][~excluded[query]].tolist()
        expected = []
        for rank in ranks.tolist():
            document = others[min(rank, len(others)) - 1] if others else -1
            expected.append(-1 if document in expected else document)
        assert result[query].tolist() == expected


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 20), st.integers(1, 6))
def test_the_hardest_are_the_first_allowed_documents(seed, rows, documents, count):
    generator = np.random.default_rng(seed)
    ranked = np.stack([generator.permutation(documents) for _ in range(rows)])
    allowed = generator.random(ranked.shape) < 0.4
    result, enough = hardest_below(ranked, allowed, count)
    for row in range(rows):
        expected = ranked[row][allowed[row]][:count].tolist()
        assert result[row].tolist() == expected + [-1] * (count - len(expected))
        assert enough[row] == len(expected)


def five_pairs():
    pairs = PairDataset.from_pairs(["q", "q", "r", "s", "t"], ["a", "b", "c", "d", "e"])
    number = {text: index for index, text in enumerate(pairs.texts)}
    negatives = [["c", "d"], ["c", "e"], ["a", None], [None, None], ["a", "b"]]
    return pairs, np.array([[-1 if text is None else number[text] for text in row] for row in negatives])


def written(rows):
    labels = [None] * len(rows) if rows.label is None else rows.label.tolist()
    return list(zip(rows.texts.take(rows.query), rows.texts.take(rows.document), labels, strict=True))


def test_negative_rows_follow_their_positive_once_per_query():
    pairs, negatives = five_pairs()
    result = with_negative_rows(pairs, negatives, None, oversample=False)
    assert written(result) == [
        ("q", "a", 1.0), ("q", "c", 0.0), ("q", "d", 0.0), ("q", "b", 1.0), ("q", "e", 0.0),
        ("r", "c", 1.0), ("r", "a", 0.0), ("s", "d", 1.0), ("t", "e", 1.0), ("t", "a", 0.0), ("t", "b", 0.0),
    ]  # fmt: skip
    assert result.positive.sum() == 5
    assert result.query_group.tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3]


def test_positives_are_repeated_until_both_kinds_are_balanced():
    pairs, negatives = five_pairs()
    result = with_negative_rows(pairs, negatives, None, oversample=True)
    assert (result.label == 1).sum() == (result.label == 0).sum() == 6
    positives = [row[:2] for row in written(result) if row[2] == 1]
    counts = {pair: positives.count(pair) for pair in set(positives)}
    assert sorted(counts.values()) == [1, 1, 1, 1, 2]
    assert counts["q", "a"] == 2


def test_fewer_negatives_than_positives_repeat_nothing():
    pairs, negatives = five_pairs()
    result = with_negative_rows(pairs, np.where(np.arange(5)[:, None] == 2, negatives, -1), None, oversample=True)
    assert (result.label == 1).sum() == 5
    assert (result.label == 0).sum() == 1


def test_graded_labels_of_positives_are_unchanged():
    pairs = PairDataset.from_pairs(["q", "r"], ["a", "b"], [0.8, 0.6])
    result = with_negative_rows(pairs, np.array([[3], [-1]]), None, oversample=False)
    assert [(row[0], round(row[2], 1)) for row in written(result)] == [("q", 0.8), ("q", 0.0), ("r", 0.6)]


def test_a_negative_column_has_each_negative_with_its_positive():
    pairs, negatives = five_pairs()
    result = with_negative_column(pairs, negatives)
    triplets = zip(*(result.texts.take(column) for column in result.text_columns), strict=True)
    assert ["".join(triplet) for triplet in triplets] == ["qac", "qad", "qbc", "qbe", "rca", "tea", "teb"]
    assert result.label is None


def test_negatives_of_a_corpus_have_its_ids():
    pairs = PairDataset.from_pairs(["q"], ["a"])
    pairs = pairs.take([0])
    object.__setattr__(pairs, "document_key", ("A",))
    pairs, corpus = with_corpus(pairs, ["a", "x"], ("A", "X"))
    negative = pairs.texts.texts.index("x")
    assert with_negative_rows(pairs, np.array([[negative]]), corpus, oversample=False).document_key == ("A", "X")


@pytest.mark.parametrize(
    ("given", "what"), [({"labels": [1, 0]}, "are labeled negative"), ({"negatives": ["x", "y"]}, "have a column of")]
)
def test_pairs_that_have_negatives_are_refused(given, what):
    with pytest.raises(DataError, match=f"pairs {what}.*leave one of the two out"):
        find_candidates(PairDataset.from_pairs(["q", "r"], ["a", "b"], **given), None)


def test_a_corpus_document_with_the_id_of_a_positive_is_excluded():
    pairs = replace(PairDataset.from_pairs(["q", "r"], ["short", "other"]), document_key=("1", ""))
    pairs, corpus = with_corpus(pairs, ["a longer text", "another"], ("1", "2"))
    known = find_candidates(pairs, corpus)
    texts = pairs.texts.take(known.document)
    of_q = known.query.tolist().index(pairs.texts.texts.index("q"))
    excluded = known.is_excluded(np.full(len(texts), of_q), np.arange(len(texts)))
    assert list(itertools.compress(texts, excluded)) == ["a longer text"]
    assert known.available.tolist() == [1 if number == of_q else 2 for number in range(2)]
    known = find_candidates(with_decisions(pairs, [Decision("r", "short")]), corpus)
    assert known.available.tolist() == [1, 1], "the document of a decided pair, too"


def test_a_pair_that_was_decided_true_negative_is_labeled_negative():
    pairs = with_decisions(PairDataset.from_pairs(["q", "r"], ["a", "b"]), [Decision("r", "b", "true_negative")])
    result = with_negative_rows(pairs, np.array([[3], [-1]]), None, oversample=False)
    assert written(result) == [("q", "a", 1.0), ("q", pairs.texts.texts[3], 0.0), ("r", "b", 0.0)]

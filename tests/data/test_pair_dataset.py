"""Pairs in memory: groups, positives, row choices, digests."""

import numpy as np
import pytest

from bsc_core.data import PairDataset
from bsc_core.data.pairs import query_groups
from bsc_core.errors import DataError


@pytest.fixture
def pairs():
    return PairDataset.from_pairs(["a", "b", "a", "c"], ["x", "x", "y", "a"], [1.0, 0.5, 0.2, 0.51])


def test_a_text_on_both_sides_has_one_id(pairs):
    assert pairs.texts.texts == ("a", "b", "c", "x", "y")
    assert pairs.query.tolist() == [0, 1, 0, 2]
    assert pairs.document.tolist() == [3, 3, 4, 0]


def test_a_label_on_the_threshold_is_negative(pairs):
    assert pairs.positive.tolist() == [True, False, False, True]
    assert pairs.has_negatives


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.6, 0.7, 0.9])
def test_single_precision_does_not_move_a_label_over_the_threshold(threshold):
    pairs = PairDataset.from_pairs(["a"], ["b"], [threshold], threshold=threshold)
    assert not pairs.positive.any()


def test_without_labels_every_pair_is_positive():
    pairs = PairDataset.from_pairs(["a", "b"], ["x", "y"])
    assert pairs.label is None
    assert pairs.positive.tolist() == [True, True]
    assert not pairs.has_negatives


def test_groups_follow_the_query_text_without_ids(pairs):
    assert pairs.query_group.tolist() == [0, 1, 0, 2]


def test_groups_follow_the_ids_even_where_texts_are_equal():
    assert query_groups(np.array([0, 0, 1, 1], dtype=np.int32), ["p", "q", "q", ""]).tolist() == [0, 1, 1, 2]


def test_taken_rows_keep_their_columns_and_table(pairs):
    some = pairs.take([3, 0])
    assert some.texts is pairs.texts
    assert some.texts.take(some.query) == ["c", "a"]
    assert some.label.tolist() == pytest.approx([0.51, 1.0])
    assert some.line.tolist() == [4, 1]
    assert some.positive.tolist() == [True, True]
    assert pairs.take(pairs.positive).line.tolist() == [1, 4]
    assert len(pairs.take([])) == 0


def test_distinct_queries_are_ascending_text_ids(pairs):
    assert pairs.distinct_queries.tolist() == [0, 1, 2]


def test_compact_pairs_hold_only_their_own_texts(pairs):
    some = pairs.take([1, 3]).compact()
    assert some.texts.texts == ("a", "b", "c", "x")
    assert some.texts.take(some.query) == ["b", "c"]
    assert some.texts.take(some.document) == ["x", "a"]


def test_digest_sees_order_labels_and_threshold(pairs):
    same = PairDataset.from_pairs(["a", "b", "a", "c"], ["x", "x", "y", "a"], [1.0, 0.5, 0.2, 0.51])
    assert same.digest == pairs.digest
    assert pairs.take([1, 0, 2, 3]).digest != pairs.digest
    assert PairDataset.from_pairs(["a"], ["b"], [0.0]).digest != PairDataset.from_pairs(["a"], ["b"]).digest
    assert PairDataset.from_pairs(["a"], ["b"]).digest != PairDataset.from_pairs(["a"], ["b"], threshold=0.1).digest


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(DataError, match="2, 1 rows"):
        PairDataset.from_pairs(["a", "b"], ["x"])

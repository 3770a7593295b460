"""Tables of distinct texts, and pairs in memory: groups, positives, row selections, digests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data import PairDataset, TextTable, merge_text_tables
from bsc_core.data.dataset import query_groups
from bsc_core.errors import DataError

TEXTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6))


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
def test_single_precision_keeps_a_label_on_its_side_of_the_threshold(threshold):
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


def test_compact_pairs_have_only_their_own_texts(pairs):
    some = pairs.take([1, 3]).compact()
    assert some.texts.texts == ("a", "b", "c", "x")
    assert some.texts.take(some.query) == ["b", "c"]
    assert some.texts.take(some.document) == ["x", "a"]


def test_the_digest_depends_on_order_labels_and_threshold(pairs):
    same = PairDataset.from_pairs(["a", "b", "a", "c"], ["x", "x", "y", "a"], [1.0, 0.5, 0.2, 0.51])
    assert same.digest == pairs.digest
    assert pairs.take([1, 0, 2, 3]).digest != pairs.digest
    assert PairDataset.from_pairs(["a"], ["b"], [0.0]).digest != PairDataset.from_pairs(["a"], ["b"]).digest
    assert PairDataset.from_pairs(["a"], ["b"]).digest != PairDataset.from_pairs(["a"], ["b"], threshold=0.1).digest


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(DataError, match="2, 1 rows"):
        PairDataset.from_pairs(["a", "b"], ["x"])


@given(TEXTS)
def test_ids_return_the_given_texts(texts):
    table, ids = TextTable.from_texts(texts)
    assert table.take(ids) == texts
    assert len(set(table.texts)) == len(table) == len(set(texts))
    assert ids.dtype == np.int32


def test_texts_are_numbered_by_first_appearance():
    table, ids = TextTable.from_texts(["b", "a", "b", "c"])
    assert table.texts == ("b", "a", "c")
    assert ids.tolist() == [0, 1, 0, 2]
    assert table[1] == "a"
    assert list(table) == ["b", "a", "c"]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_merged_table_has_every_text_once_and_its_maps_are_right(lists):
    tables = [TextTable.from_texts(texts)[0] for texts in lists]
    united, maps = merge_text_tables(tables)
    assert set(united.texts) == {text for texts in lists for text in texts}
    assert len(set(united.texts)) == len(united)
    for table, new_ids in zip(tables, maps, strict=True):
        assert united.take(new_ids) == list(table.texts)
        assert new_ids.dtype == np.int32


def test_the_digest_depends_on_the_boundaries_of_texts():
    assert TextTable(("ab", "c")).digest != TextTable(("a", "bc")).digest
    assert TextTable(("a", "b")).digest != TextTable(("b", "a")).digest
    assert TextTable(("a", "b")).digest == TextTable(("a", "b")).digest


def test_empty_table_has_no_texts():
    table, ids = TextTable.from_texts([])
    assert len(table) == len(ids) == 0
    assert len(table.digest) == 64

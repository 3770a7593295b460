"""The table of distinct texts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data import TextTable, unite

TEXTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6))


@given(TEXTS)
def test_ids_lead_back_to_the_given_texts(texts):
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
def test_united_table_holds_every_text_once_and_maps_keep_meaning(lists):
    tables = [TextTable.from_texts(texts)[0] for texts in lists]
    united, maps = unite(tables)
    assert set(united.texts) == {text for texts in lists for text in texts}
    assert len(set(united.texts)) == len(united)
    for table, new_ids in zip(tables, maps, strict=True):
        assert united.take(new_ids) == list(table.texts)
        assert new_ids.dtype == np.int32


def test_digest_tells_where_one_text_ends_and_the_next_begins():
    assert TextTable(("ab", "c")).digest != TextTable(("a", "bc")).digest
    assert TextTable(("a", "b")).digest != TextTable(("b", "a")).digest
    assert TextTable(("a", "b")).digest == TextTable(("a", "b")).digest


def test_empty_table_has_no_texts():
    table, ids = TextTable.from_texts([])
    assert len(table) == len(ids) == 0
    assert len(table.digest) == 64

"""Filters: each removes its finding, and drops nothing else."""

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import DataConfig, FilterName
from bsc_core.data import PairDataset, audit, load_data
from bsc_core.data.dataset import share_texts
from bsc_core.data.quality.filters import FILTERS
from bsc_core.errors import DataError

FILLER = "of the seven long words that occur in all of these texts so that they are nearly equal"
TEXTS = st.sampled_from(["a", "A!", "b", "c", "d", "Ã©", f"x {FILLER}", f"y {FILLER}", f"z {FILLER} z", "e\x00"])
ROW = st.tuples(TEXTS, TEXTS, st.sampled_from([0.0, 1.0]), st.integers(0, 2), TEXTS)
ROWS = st.lists(ROW, min_size=1, max_size=10)


def dataset_of(rows, *, negatives):
    queries, documents, labels, classes, wrong = zip(*rows, strict=True)
    return PairDataset.from_pairs(
        queries, documents, labels, classes=classes if not negatives else None, negatives=wrong if negatives else None
    )


def rows_of(split):
    columns = [split.texts.take(column) for column in split.text_columns]
    return Counter(zip(*columns, split.label.tolist(), strict=True))


@pytest.mark.parametrize("name", get_args(FilterName))
@given(splits=st.lists(ROWS, min_size=2, max_size=3), negatives=st.booleans())
@settings(max_examples=60)
def test_a_filter_removes_its_finding_and_counts_the_rows(name, splits, negatives):
    data = share_texts([dataset_of(rows, negatives=negatives) for rows in splits], None)
    findings = [finding for finding in audit(data) if finding.filter == name]
    try:
        after_filter, dropped = FILTERS[name](data)
    except DataError:
        assert findings  # a split would be left without rows
        return
    assert not [finding for finding in audit(after_filter) if finding.filter == name]
    assert bool(dropped) == bool(findings)
    before, after = ({split: rows_of(rows) for split, rows in either.splits.items()} for either in (data, after_filter))
    assert all(after[split] <= before[split] for split in before)
    assert sum(before[split].total() - after[split].total() for split in before) == dropped


@pytest.fixture
def loaded(tmp_path):
    def read(rows, *names):
        path = tmp_path / "pairs.tsv"
        header = "query\tdocument\tlabel\tsplit"
        path.write_text("\n".join([header, *("\t".join(row.split("|")) for row in rows)]) + "\n", encoding="utf-8")
        return load_data(DataConfig(train=str(path), filters=names), seed=0)

    return read


DEV = ["q|d|1|dev", "r|e|0|dev"]
CASES = {
    "drop_duplicates": (["a|x|1|train", "a|x|1|train", "a|x|1|train", "b|x|1|train"], ["a", "b"], 2),
    "drop_near_duplicates": (
        ["Hello there|x|1|train", "hello  there!|X.|1|train", "b|x|1|train"],
        ["Hello there", "b"],
        1,
    ),
    "drop_conflicts": (["a|x|1|train", "a|x|0|train", "b|x|1|train"], ["b"], 2),
    "drop_self_pairs": (["a|a|1|train", "b|x|1|train"], ["b"], 1),
    "drop_leaks": (["q|x|1|train", "a|q|1|train", "d|x|1|train", "b|d|1|train", "c|y|1|train"], ["b", "c"], 3),
    "drop_queries_without_positive": (["a|x|0|train", "b|x|1|train", "b|y|0|train"], ["b", "b"], 2),
    "drop_damaged": (["caf\u00c3\u00a9|x|1|train", "b|x\ufffd|1|train", "café|x|1|train"], ["café"], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_each_filter_drops_its_rows_and_reports_the_number(loaded, name):
    rows, left, dropped = CASES[name]
    data = loaded([*rows, *DEV], name)
    assert data.texts.take(data.train.query) == left
    assert data.filtered == ((name, dropped),)
    used = np.unique(np.concatenate([column for split in data.splits.values() for column in split.text_columns]))
    assert used.tolist() == list(range(len(data.texts)))


def test_dropping_leaks_leaves_dev_and_test_unchanged(loaded):
    rows = ["q|x|1|train", "c|y|1|train", "s|t|1|test", *DEV, "s|z|1|dev"]
    data = loaded(rows, "drop_leaks")
    assert data.texts.take(data.test.query) == ["s"]
    assert data.texts.take(data.dev.query) == ["q", "r"]
    assert data.texts.take(data.train.query) == ["c"]


def test_filters_are_applied_in_order(loaded):
    rows = ["a|x|0|train", "a|x|1|train", "a|x|1|train", "b|x|1|train", *DEV]
    first = loaded(rows, "drop_duplicates", "drop_conflicts")
    assert first.filtered == (("drop_duplicates", 1), ("drop_conflicts", 2))
    second = loaded(rows, "drop_conflicts", "drop_duplicates")
    assert second.filtered == (("drop_conflicts", 3), ("drop_duplicates", 0))


def test_a_filter_that_drops_every_row_is_refused(loaded):
    with pytest.raises(DataError, match=r"data\.filters: drop_self_pairs would drop all 1 rows of train"):
        loaded(["a|a|1|train", *DEV], "drop_self_pairs")


def test_triplets_with_different_negatives_are_not_duplicates():
    rows = PairDataset.from_pairs(["a", "a", "a"], ["x", "x", "x"], negatives=["n", "m", "n"])
    data = share_texts([rows, PairDataset.from_pairs(["q"], ["d"], negatives=["e"])], None)
    after_filter, dropped = FILTERS["drop_duplicates"](data)
    assert (len(after_filter.train), dropped) == (2, 1)

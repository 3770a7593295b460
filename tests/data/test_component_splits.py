"""Holding out whole components: no text of either side is in two splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import DataConfig
from bsc_core.data import PairDataset, load_data
from bsc_core.data.splits import connected_rows, split_by_component
from bsc_core.errors import ConfigError, DataError

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=40)


def pairs_of(rows):
    return PairDataset.from_pairs([f"text {query}" for query, _ in rows], [f"text {document}" for _, document in rows])


def sets_by_flooding(rows):
    """The slow oracle: grow each set of rows until no row shares a text with it."""
    left, found = set(range(len(rows))), set()
    while left:
        grown = {left.pop()}
        while joined := {row for row in left for other in grown if set(rows[row]) & set(rows[other])}:
            grown |= joined
            left -= joined
        found.add(frozenset(grown))
    return found


def most_below(target, sizes):
    """The most rows, at most the target, that whole sets can give."""
    sums = {0}
    for size in sizes:
        sums |= {held + size for held in sums}
    return max(held for held in sums if held <= target)


@given(ROWS)
@settings(deadline=None)
def test_components_equal_those_found_by_flooding(rows):
    component = connected_rows(pairs_of(rows))
    found = {frozenset(np.flatnonzero(component == number).tolist()) for number in set(component.tolist())}
    assert found == sets_by_flooding(rows)


@given(ROWS, st.floats(0.05, 0.5), st.integers(0, 3))
@settings(deadline=None)
def test_no_text_is_in_both_parts_and_every_row_is_in_one(rows, share, seed):
    dataset = pairs_of(rows)
    try:
        train, dev = split_by_component(dataset, share=share, seed=seed)
    except DataError:
        sizes = [len(found) for found in sets_by_flooding(rows)]
        assert len(sizes) == 1 or most_below(round(share * len(rows)), sizes) < round(share * len(rows))
        return
    texts = [set(part.query.tolist()) | set(part.document.tolist()) for part in (train, dev)]
    assert not texts[0] & texts[1]
    assert sorted(train.line.tolist() + dev.line.tolist()) == dataset.line.tolist()
    assert len(train) > 0
    assert 2 * len(dev) >= round(share * len(rows))


def test_a_text_on_the_other_side_and_a_negative_connect_rows_too():
    sides = PairDataset.from_pairs(["a", "b"], ["b", "c"])
    assert connected_rows(sides).tolist() == [0, 0]
    negatives = PairDataset.from_pairs(["a", "c"], ["b", "d"], negatives=["e", "a"])
    assert connected_rows(negatives).tolist() == [0, 0]
    groups = PairDataset.from_pairs(["a", "c"], ["b", "d"], query_ids=["1", "1"])
    assert connected_rows(groups).tolist() == [0, 0]


def test_one_component_of_nearly_all_rows_is_said():
    rows = [(f"question {n}", "the same answer") for n in range(98)] + [("x", "y"), ("z", "w")]
    dataset = PairDataset.from_pairs(*zip(*rows, strict=True))
    with pytest.raises(
        DataError, match=r"98 of 100 rows hang together by shared texts, so only 2 of about 10 rows can"
    ):
        split_by_component(dataset, share=0.1, seed=0)
    with pytest.raises(DataError, match=r"all 98 rows hang together .* set data.split_by to \"query\""):
        split_by_component(dataset.take(np.arange(98)), share=0.1, seed=0)


def test_a_share_outside_0_to_1_is_refused():
    with pytest.raises(ConfigError, match="dev_share is 1"):
        split_by_component(pairs_of([(1, 2), (3, 4)]), share=1, seed=0)


def test_the_config_chooses_the_split(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("query,document\n" + "".join(f"q{n},shared {n // 4}\n" for n in range(80)), encoding="utf-8")
    by_query = load_data(DataConfig(train=str(path), dev_share=0.2), seed=0)
    assert np.isin(by_query.dev.document, by_query.train.document).any()
    data = load_data(DataConfig(train=str(path), dev_share=0.2, split_by="component"), seed=0)
    assert len(data.dev) == 16
    assert not np.isin(data.dev.document, data.train.document).any()

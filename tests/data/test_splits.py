"""Held-out queries and components: rows that share a query, or any text, are in one split."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bsc_core.config import DataConfig
from bsc_core.data import PairDataset, load_data, split_by_component, split_by_query
from bsc_core.data.splits import connected_queries, connected_rows
from bsc_core.errors import ConfigError, DataError

ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=40)
TEXTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=40)


def queries_with_ids(rows):
    queries = [f"text {text}" for text, _ in rows]
    return PairDataset.from_pairs(queries, ["x"] * len(rows), query_ids=[f"id {group}" for _, group in rows])


def pairs_of(rows):
    return PairDataset.from_pairs([f"text {query}" for query, _ in rows], [f"text {document}" for _, document in rows])


def share_query(one, other):
    return one[0] == other[0] or one[1] == other[1]


def share_text(one, other):
    return bool(set(one) & set(other))


def components_by_flooding(rows, are_connected):
    """The slow oracle: grow each set of rows until no other row is connected to it."""
    left, result = set(range(len(rows))), set()
    while left:
        grown = {left.pop()}
        while joined := {row for row in left for other in grown if are_connected(rows[row], rows[other])}:
            grown |= joined
            left -= joined
        result.add(frozenset(grown))
    return result


def sets_of(component):
    return {frozenset(np.flatnonzero(component == number).tolist()) for number in set(component.tolist())}


def most_below(target, sizes):
    """The most rows, at most the target, that complete components can give."""
    sums = {0}
    for size in sizes:
        sums |= {held + size for held in sums}
    return max(held for held in sums if held <= target)


@given(ROWS)
def test_connected_queries_equal_those_of_a_flood_fill(rows):
    assert sets_of(connected_queries(queries_with_ids(rows))) == components_by_flooding(rows, share_query)


@given(TEXTS)
def test_connected_rows_equal_those_of_a_flood_fill(rows):
    assert sets_of(connected_rows(pairs_of(rows))) == components_by_flooding(rows, share_text)


@given(ROWS, st.floats(0.01, 0.99), st.integers(0, 2**31 - 1))
def test_no_query_text_or_group_is_in_both_splits_and_no_row_is_lost(rows, share, seed):
    pairs = queries_with_ids(rows)
    assume(connected_queries(pairs).max() > 0)
    train, dev = split_by_query(pairs, share=share, seed=seed)
    assert len(train) > 0
    assert len(dev) > 0
    assert not set(train.query.tolist()) & set(dev.query.tolist())
    assert not set(train.query_group.tolist()) & set(dev.query_group.tolist())
    assert sorted([*train.line.tolist(), *dev.line.tolist()]) == pairs.line.tolist()


@given(TEXTS, st.floats(0.05, 0.5), st.integers(0, 3))
def test_no_text_is_in_both_splits_and_every_row_is_in_one(rows, share, seed):
    dataset = pairs_of(rows)
    try:
        train, dev = split_by_component(dataset, share=share, seed=seed)
    except DataError:
        sizes = [len(component) for component in components_by_flooding(rows, share_text)]
        assert len(sizes) == 1 or most_below(round(share * len(rows)), sizes) < round(share * len(rows))
        return
    texts = [set(split.query.tolist()) | set(split.document.tolist()) for split in (train, dev)]
    assert not texts[0] & texts[1]
    assert sorted(train.line.tolist() + dev.line.tolist()) == dataset.line.tolist()
    assert len(train) > 0
    assert 2 * len(dev) >= round(share * len(rows))


def test_the_share_counts_queries_not_rows():
    rows = [(query, query) for query in range(100) for _ in range(1 + query % 7)]
    _, dev = split_by_query(queries_with_ids(rows), share=0.2, seed=3)
    assert len(dev.distinct_queries) == 20


def test_the_seed_decides():
    pairs = queries_with_ids([(query, query) for query in range(50)])
    first, again, other = (split_by_query(pairs, share=0.2, seed=seed)[1].line.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "given",
    [
        {"queries": ["a", "b"], "documents": ["b", "c"]},
        {"queries": ["a", "c"], "documents": ["b", "d"], "negatives": ["e", "a"]},
        {"queries": ["a", "c"], "documents": ["b", "d"], "query_ids": ["1", "1"]},
    ],
)
def test_a_text_on_the_other_side_a_negative_and_a_query_id_connect_rows(given):
    assert connected_rows(PairDataset.from_pairs(**given)).tolist() == [0, 0]


def test_one_query_cannot_be_split():
    with pytest.raises(DataError, match="all its rows belong to one query, so none can be held out; give a dev file"):
        split_by_query(queries_with_ids([(1, 1), (1, 2), (3, 2)]), share=0.5, seed=0)


def test_one_component_of_nearly_all_rows_is_refused():
    rows = [(f"question {n}", "the same answer") for n in range(98)] + [("x", "y"), ("z", "w")]
    dataset = PairDataset.from_pairs(*zip(*rows, strict=True))
    message = r"98 of 100 rows are connected by shared texts, so only 2 of about 10 rows can"
    with pytest.raises(DataError, match=message):
        split_by_component(dataset, share=0.1, seed=0)
    with pytest.raises(DataError, match=r"all 98 rows are connected .* set data.split_by to \"query\""):
        split_by_component(dataset.take(np.arange(98)), share=0.1, seed=0)


@pytest.mark.parametrize("split", [split_by_query, split_by_component])
@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_outside_0_to_1_is_refused(split, share):
    with pytest.raises(ConfigError, match="dev_size is"):
        split(pairs_of([(1, 2), (3, 4)]), share=share, seed=0)


def test_the_config_chooses_the_split(write):
    path = write("pairs.csv", "query,document\n" + "".join(f"q{n},shared {n // 4}\n" for n in range(80)))
    by_query = load_data(DataConfig(train=path, dev_size=0.2), seed=0)
    assert np.isin(by_query.dev.document, by_query.train.document).any()
    data = load_data(DataConfig(train=path, dev_size=0.2, split_by="component"), seed=0)
    assert len(data.dev) == 16
    assert not np.isin(data.dev.document, data.train.document).any()

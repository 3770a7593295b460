"""Holding out queries: nothing of a query is on both sides."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bsc_core.data import PairDataset, split_by_query
from bsc_core.data.splits import connected_queries
from bsc_core.errors import ConfigError, DataError

ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=40)


def pairs_of(rows):
    queries = [f"text {text}" for text, _ in rows]
    return PairDataset.from_pairs(queries, ["x"] * len(rows), query_ids=[f"id {group}" for _, group in rows])


def touch(one, other):
    return one[0] == other[0] or one[1] == other[1]


def components_by_flooding(rows):
    """The slow oracle: grow each set until nothing joins it."""
    left, sets = set(range(len(rows))), []
    while left:
        grown = {left.pop()}
        while joined := {row for row in left for other in grown if touch(rows[row], rows[other])}:
            grown |= joined
            left -= joined
        sets.append(grown)
    return {frozenset(grown) for grown in sets}


@given(ROWS)
def test_connected_sets_equal_those_found_by_flooding(rows):
    component = connected_queries(pairs_of(rows))
    found = {frozenset(np.flatnonzero(component == number).tolist()) for number in set(component.tolist())}
    assert found == components_by_flooding(rows)


@given(ROWS, st.floats(0.01, 0.99), st.integers(0, 2**31 - 1))
def test_no_query_text_or_group_is_on_both_sides_and_no_row_is_lost(rows, share, seed):
    pairs = pairs_of(rows)
    assume(connected_queries(pairs).max() > 0)
    train, dev = split_by_query(pairs, share=share, seed=seed)
    assert len(train) > 0
    assert len(dev) > 0
    assert not set(train.query.tolist()) & set(dev.query.tolist())
    assert not set(train.query_group.tolist()) & set(dev.query_group.tolist())
    assert sorted([*train.line.tolist(), *dev.line.tolist()]) == pairs.line.tolist()


def test_the_share_is_one_of_queries_not_of_rows():
    rows = [(query, query) for query in range(100) for _ in range(1 + query % 7)]
    _, dev = split_by_query(pairs_of(rows), share=0.2, seed=3)
    assert len(dev.distinct_queries) == 20


def test_the_seed_decides():
    pairs = pairs_of([(query, query) for query in range(50)])
    first, again, other = (split_by_query(pairs, share=0.2, seed=seed)[1].line.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_one_query_cannot_be_split():
    with pytest.raises(DataError, match="all its rows belong to one query, so none can be held out; give a dev file"):
        split_by_query(pairs_of([(1, 1), (1, 2), (3, 2)]), share=0.5, seed=0)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match="dev_share is"):
        split_by_query(pairs_of([(1, 1), (2, 2)]), share=share, seed=0)

"""Chance picks: exact counts, no repeats, every choice as likely as another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data import drawing
from bsc_core.data.drawing import draw_examples


def drawn_pairs(counts, seed=0, **limits):
    drawn = draw_examples(
        np.array(counts), generator=np.random.default_rng(seed), **{"cap": None, "target": None} | limits
    )
    return list(zip(drawn.anchors.tolist(), drawn.places.tolist(), strict=True)), drawn


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(2, 40),
    st.integers(0, 5),
)
def test_every_pick_exists_once_and_the_limits_hold(counts, cap, target, seed):
    pairs, drawn = drawn_pairs(counts, seed, cap=cap, target=target)
    capped = [count if cap is None else min(cap, count) for count in counts]
    assert drawn.after_cap == sum(capped)
    assert len(pairs) == len(set(pairs)) == (sum(capped) if target is None else min(target, sum(capped)))
    assert pairs == sorted(pairs)
    for anchor, count in enumerate(counts):
        places = [place for owner, place in pairs if owner == anchor]
        assert len(places) <= capped[anchor]
        assert all(0 <= place < count for place in places)


def test_without_limits_all_are_taken_in_order():
    pairs, _ = drawn_pairs([2, 0, 3])
    assert pairs == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


def test_the_same_seed_draws_the_same_and_another_seed_another():
    assert drawn_pairs([50] * 20, 3, cap=5, target=40)[0] == drawn_pairs([50] * 20, 3, cap=5, target=40)[0]
    assert drawn_pairs([50] * 20, 3, cap=5, target=40)[0] != drawn_pairs([50] * 20, 4, cap=5, target=40)[0]


@pytest.mark.parametrize("limits", [{"cap": 3}, {"target": 12}, {"cap": 4, "target": 12}])
def test_each_choice_is_as_likely_as_another(limits):
    counts, rounds = [10, 10, 10, 10], 4000
    tally = np.zeros((4, 10))
    for seed in range(rounds):
        for anchor, place in drawn_pairs(counts, seed, **limits)[0]:
            tally[anchor, place] += 1
    expected = 12 / 40 * rounds  # twelve of forty in each case
    assert np.abs(tally - expected).max() < 6 * np.sqrt(expected)


def test_blocks_do_not_change_how_many_are_kept(monkeypatch):
    monkeypatch.setattr(drawing, "BLOCK", 64)
    pairs, drawn = drawn_pairs([5, 40, 200, 1, 33], cap=7)
    assert drawn.after_cap == len(set(pairs)) == 5 + 7 + 7 + 1 + 7


def test_examples_to_show_are_real_ones():
    counts = np.array([30, 0, 2, 9])
    _, drawn = drawn_pairs(counts.tolist(), cap=4)
    kept = set(drawn_pairs(counts.tolist(), cap=4)[0])
    assert set(zip(*(column.tolist() for column in drawn.spread_capped()), strict=True)) <= kept
    assert all(place < counts[anchor] for anchor, place in zip(*drawn.spread_all(counts), strict=True))

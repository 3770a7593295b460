"""Sampled examples: exact counts, no repeats, uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data.generation import sampling
from bsc_core.data.generation.sampling import sample_examples


def sampled_pairs(counts, seed=0, **limits):
    sampled = sample_examples(
        np.array(counts), generator=np.random.default_rng(seed), **{"cap": None, "target": None} | limits
    )
    return list(zip(sampled.anchors.tolist(), sampled.indices.tolist(), strict=True)), sampled


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(2, 40),
    st.integers(0, 5),
)
def test_every_example_is_sampled_at_most_once_within_the_limits(counts, cap, target, seed):
    pairs, sampled = sampled_pairs(counts, seed, cap=cap, target=target)
    capped = [count if cap is None else min(cap, count) for count in counts]
    assert sampled.after_cap == sum(capped)
    assert len(pairs) == len(set(pairs)) == (sum(capped) if target is None else min(target, sum(capped)))
    assert pairs == sorted(pairs)
    for anchor, count in enumerate(counts):
        numbers = [number for owner, number in pairs if owner == anchor]
        assert len(numbers) <= capped[anchor]
        assert all(0 <= number < count for number in numbers)


def test_without_limits_all_examples_are_returned_in_order():
    pairs, _ = sampled_pairs([2, 0, 3])
    assert pairs == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


def test_the_sample_depends_on_the_seed():
    assert sampled_pairs([50] * 20, 3, cap=5, target=40)[0] == sampled_pairs([50] * 20, 3, cap=5, target=40)[0]
    assert sampled_pairs([50] * 20, 3, cap=5, target=40)[0] != sampled_pairs([50] * 20, 4, cap=5, target=40)[0]


@pytest.mark.parametrize("limits", [{"cap": 3}, {"target": 12}, {"cap": 4, "target": 12}])
def test_the_sample_is_uniform(limits):
    counts, rounds = [10, 10, 10, 10], 4000
    counts_of = np.zeros((4, 10))
    for seed in range(rounds):
        for anchor, number in sampled_pairs(counts, seed, **limits)[0]:
            counts_of[anchor, number] += 1
    expected = 12 / 40 * rounds  # twelve of forty in each case
    assert np.abs(counts_of - expected).max() < 6 * np.sqrt(expected)


def test_blocks_do_not_change_the_sample_size(monkeypatch):
    monkeypatch.setattr(sampling, "BLOCK", 64)
    pairs, sampled = sampled_pairs([5, 40, 200, 1, 33], cap=7)
    assert sampled.after_cap == len(set(pairs)) == 5 + 7 + 7 + 1 + 7


def test_examples_to_show_are_existing_ones():
    counts = np.array([30, 0, 2, 9])
    _, sampled = sampled_pairs(counts.tolist(), cap=4)
    sampled_rows = set(sampled_pairs(counts.tolist(), cap=4)[0])
    assert set(zip(*(column.tolist() for column in sampled.spread_capped()), strict=True)) <= sampled_rows
    assert all(number < counts[anchor] for anchor, number in zip(*sampled.spread_all(counts), strict=True))

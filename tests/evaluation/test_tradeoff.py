"""Tests of the Pareto front of runs, and of the combined score of polarity and semantic similarity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import combine, pareto_front, polarity_task
from bsc_core.evaluation.metrics.polarity import balance_of_means
from bsc_core.evaluation.stats.bootstrap import resample_weights
from bsc_core.evaluation.stats.bootstrap_values import bootstrap_balance

points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25)
share = st.floats(0, 1, allow_subnormal=False)  # products of subnormal numbers lose all precision


@settings(max_examples=100)
@given(points)
def test_the_front_has_all_points_that_no_other_dominates(runs):
    front = pareto_front([p for p, _ in runs], [s for _, s in runs])
    beaten = [any(p <= q and s <= t and (p, s) != (q, t) for q, t in runs) for p, s in runs]
    assert front.tolist() == [not lost for lost in beaten]


def test_the_papers_e5_margins_have_the_small_ones_on_the_front():
    polarity, semantic = [71.4, 73.6, 90.2, 90.6, 90.1, 88.2], [83.4, 82.5, 81.2, 81.3, 79.2, 78.3]
    names = ["reference", "mnrl", "0.01", "0.10", "1", "5"]
    front = [name for name, kept in zip(names, pareto_front(polarity, semantic), strict=True) if kept]
    assert front == ["reference", "mnrl", "0.10"]


@pytest.mark.parametrize(
    ("p", "s", "message"), [([1], [1, 2], "one of each"), ([1, 2], [math.nan, 1], "run 0 has NaN")]
)
def test_points_with_nan_or_of_different_number_are_refused(p, s, message):
    with pytest.raises(DataError, match=message):
        pareto_front(p, s)


def test_the_balance_is_the_harmonic_mean_of_separation_and_retained():
    result = balance_of_means((0.9, 0.8), (0.7, 0.84), (0.5, 0.7))
    assert result.separation == pytest.approx(0.8)
    assert result.retained == pytest.approx(0.1 / 0.14)
    assert result.balance == pytest.approx(2 / (1 / 0.8 + 1.4))
    assert result.reference == pytest.approx(2 * 0.4 / 1.4)


@settings(max_examples=100)
@given(share, share, st.floats(-0.5, 0.7), st.floats(0.05, 0.3))
def test_the_balance_does_not_depend_on_the_scale_of_the_reference(separation, kept, floor, spread):
    run = (0.5 + separation / 2, floor + kept * spread)
    result = balance_of_means(run, (0.75, floor + spread), (0.5, floor))
    narrow = balance_of_means((run[0], 0.9 + kept * 0.05), (0.75, 0.95), (0.5, 0.9))
    assert result.balance == pytest.approx(narrow.balance, abs=1e-6)
    assert 0 <= result.balance <= 1 + 1e-9


@settings(max_examples=100)
@given(share, share, st.floats(0.001, 0.2))
def test_the_balance_is_monotone_and_zero_if_either_component_is_zero(p, s, more):
    def balance(polarity, semantic):
        return balance_of_means((polarity, semantic), (0.5, 1.0), (0.0, 0.0)).balance

    assert balance(p + more, s) >= balance(p, s) - 1e-12
    assert balance(p, s + more) >= balance(p, s) - 1e-12
    assert balance(1.0, 0.0) == balance(0.0, 1.0) == balance(1.0, -0.3) == 0
    assert balance(1.0, 1.0) == 1


def test_resampled_balances_equal_the_balance_of_resampled_means():
    generator = np.random.default_rng(8)
    sides = [generator.normal(size=(rows, 6)).astype(np.float32) for rows in (30, 90)]
    classes = [(side[:, 0] > 0).astype(int) for side in sides]
    scores = polarity_task(sides, classes, k=4).evaluate(*(side[:, :2] for side in sides))
    own, reference = bootstrap_balance(scores, seed=3, n_resamples=5)
    floor = (scores.polarity_floor, scores.semantic_floor)
    for place, (_, weights) in enumerate(resample_weights(30, 1, 3)):
        run = (weights[place] @ scores.polarity, weights[place] @ scores.semantic)
        start = (weights[place] @ scores.reference_polarity, weights[place] @ scores.reference_semantic)
        expected = balance_of_means(run, start, floor)
        assert own.resamples[place] == pytest.approx(expected.balance)
        assert reference.resamples[place] == pytest.approx(expected.reference)
    assert (own.value, reference.value) == (combine(scores).balance, combine(scores).reference)
    assert own.interval.low < own.value < own.interval.high


def test_undefined_balances_are_none():
    one_class = balance_of_means((1.0, 0.5), (1.0, 0.6), (1.0, 0.2))
    assert (one_class.separation, one_class.balance) == (None, None)
    assert one_class.retained == pytest.approx(0.75)
    no_meaning = balance_of_means((0.9, 0.5), (0.8, 0.5), (0.5, 0.5))
    assert (no_meaning.retained, no_meaning.balance, no_meaning.reference) == (None, None, None)


def test_the_reference_keeps_its_balance_and_all_semantic_similarity():
    generator = np.random.default_rng(4)
    sides = [generator.normal(size=(rows, 6)).astype(np.float32) for rows in (40, 200)]
    classes = [(side[:, 0] > 0).astype(int) for side in sides]
    result = combine(polarity_task(sides, classes).evaluate(*sides))
    assert result.retained == pytest.approx(1)
    assert result.balance == pytest.approx(result.reference)
    assert result.separation > 0.2

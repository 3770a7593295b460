"""Tests of bootstrap intervals against explicit resampling, theory and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import (
    ScoredPairs,
    bootstrap_mean,
    bootstrap_seeds,
    pair_intervals,
    query_intervals,
    query_ranking_metrics,
)
from bsc_core.evaluation.stats import bootstrap
from bsc_core.evaluation.stats.bootstrap import resample_seeds, seed_effects, seed_freedom

finite = st.lists(st.floats(-10, 10), min_size=2, max_size=20)


def ends(found):
    return found.value, found.low, found.high


def slow_interval(values, draws, seed):
    generator = np.random.default_rng(seed)
    means = sorted(np.mean(generator.choice(values, len(values))) for _ in range(draws))
    return np.quantile(means, [0.025, 0.975])


def test_the_interval_equals_that_of_a_naive_bootstrap_and_the_standard_error():
    values = np.random.default_rng(1).normal(3, 2, size=200)
    result = bootstrap_mean(values, seed=0)
    assert result.value == pytest.approx(values.mean())
    assert (result.low, result.high) == pytest.approx(slow_interval(values, 10_000, 7), abs=0.02)
    half = 1.96 * values.std() / np.sqrt(200)
    assert (result.low, result.high) == pytest.approx((result.value - half, result.value + half), abs=0.03)


@settings(max_examples=40)
@given(finite, st.integers(0, 50))
def test_the_same_seed_gives_the_same_interval_around_the_mean(values, seed):
    first, second = (bootstrap_mean(values, seed=seed, n_resamples=300) for _ in range(2))
    assert first == second
    assert min(values) - 1e-9 <= first.low <= first.high <= max(values) + 1e-9


@settings(max_examples=40)
@given(finite, st.floats(-3, 3), st.floats(0.1, 5))
def test_shifting_and_scaling_the_values_moves_the_interval_along(values, shift, scale):
    one = bootstrap_mean(values, seed=1, n_resamples=200)
    two = bootstrap_mean(np.asarray(values) * scale + shift, seed=1, n_resamples=200)
    assert (two.low, two.high) == pytest.approx((one.low * scale + shift, one.high * scale + shift), abs=1e-6)


def test_block_size_does_not_change_the_resamples(monkeypatch):
    values = np.random.default_rng(2).random(50)
    whole = bootstrap_mean(values, seed=3, n_resamples=500)
    monkeypatch.setattr("bsc_core.evaluation.stats.bootstrap.CELLS_AT_ONCE", 70)
    assert ends(bootstrap_mean(values, seed=3, n_resamples=500)) == pytest.approx(ends(whole))


def test_nineteen_of_twenty_intervals_contain_the_mean():
    generator = np.random.default_rng(4)
    held = [bootstrap_mean(generator.normal(1, 2, 60), seed=trial, n_resamples=400) for trial in range(300)]
    assert np.mean([one.low <= 1 <= one.high for one in held]) == pytest.approx(0.94, abs=0.035)


def test_one_query_has_a_mean_and_no_interval():
    result = bootstrap_mean([0.5], seed=0)
    assert (result.value, result.low, result.high) == (0.5, None, None)
    assert result.contains_zero
    assert str(result) == "0.500 [no interval]"
    assert str(bootstrap_mean([0.5, 0.5], seed=0)) == "0.500 [0.500, 0.500]"


def test_seeds_and_queries_have_separate_intervals():
    generator = np.random.default_rng(5)
    queries, seeds = generator.normal(0, 0.3, 100), np.asarray([-0.05, 0.0, 0.05])
    result = bootstrap_seeds(0.5 + queries + seeds[:, None], seed=0)
    assert result.seed_deviation == pytest.approx(0.05)
    assert result.queries.high - result.queries.low == pytest.approx(2 * 1.96 * 0.03, rel=0.15)
    assert result.seeds.low < result.queries.value - 0.05
    assert result.both.high - result.both.low > result.queries.high - result.queries.low
    same = bootstrap_seeds(np.tile(queries, (3, 1)), seed=0)
    assert same.both == same.queries
    assert same.seed_deviation == 0


def test_one_seed_leaves_only_its_queries():
    values = np.random.default_rng(6).random(40)
    result = bootstrap_seeds(values, seed=0)
    assert result.both == result.queries == bootstrap_mean(values, seed=0)
    assert (result.seeds.low, result.seed_deviation) == (None, None)


def test_intervals_of_three_seeds_have_their_nominal_coverage():
    generator, held = np.random.default_rng(7), []
    for trial in range(300):
        table = generator.normal(0, 0.1, 50) + generator.normal(0, 0.05, (3, 1)) + generator.normal(0, 0.1, (3, 50))
        result = bootstrap_seeds(table, seed=trial, n_resamples=400).both
        held.append(result.low <= 0 <= result.high)
    assert np.mean(held) > 0.91


def test_chance_differences_between_seeds_are_no_seed_effect():
    noise = np.random.default_rng(8).normal(size=(3, 400))
    assert np.abs(seed_effects(noise)).max() <= np.abs(noise.mean(axis=1) - noise.mean()).max()
    shifted = noise * 0.01 + np.asarray([[0.0], [1.0], [2.0]])
    np.testing.assert_allclose(seed_effects(shifted), [-1, 0, 1], atol=0.01)
    assert seed_effects(noise[:1]).tolist() == [0]


def test_few_seeds_have_the_freedom_of_welch():
    three = np.asarray([[0.0], [1.0], [2.0]])
    assert seed_freedom([three]) == pytest.approx(2)
    assert seed_freedom([three, three]) == pytest.approx(4)
    assert seed_freedom([three, np.zeros((1, 5))]) == seed_freedom([three])
    assert seed_freedom([np.ones((3, 4))]) is None


def test_draws_of_seeds_have_the_quantiles_of_students_t():
    effects = np.asarray([-1.0, 0.0, 1.0])  # a standard error of 1 / sqrt(3)
    drawn = resample_seeds([effects], 2.0, 2000, 0) * np.sqrt(3)
    np.testing.assert_allclose(np.quantile(drawn, [0.975, 0.995]), [4.303, 9.925], rtol=0.03)
    assert drawn.mean() == pytest.approx(0, abs=1e-9)
    assert np.array_equal(drawn, resample_seeds([effects], 2.0, 2000, 0) * np.sqrt(3))
    assert not resample_seeds([np.zeros(1)], None, 10, 0).any()


def test_spearmans_interval_is_that_of_scipy():
    from scipy.stats import bootstrap, spearmanr

    generator = np.random.default_rng(10)
    labels = generator.random(120)
    scores = labels + generator.normal(0, 0.4, 120)
    result = pair_intervals(ScoredPairs(scores, labels), range(120), seed=0, n_resamples=1000)["spearman"]
    peer = bootstrap((scores, labels), lambda x, y: spearmanr(x, y)[0], paired=True, vectorized=False, n_resamples=600,
                     method="percentile", random_state=1)  # fmt: skip
    expected = peer.confidence_interval
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high), abs=0.04)


def test_every_metric_has_its_interval_from_the_same_draws():
    generator = np.random.default_rng(11)
    measured = query_ranking_metrics(
        np.repeat(range(50), 4), generator.random(200), generator.random(200) < 0.4, k=(1, 3)
    )
    result = query_intervals(measured, seed=0)
    assert set(result) == set(measured.values)
    for name, values in measured.values.items():
        assert ends(result[name]) == pytest.approx(ends(bootstrap_mean(values, seed=0)))
    assert query_intervals(query_ranking_metrics([], [], []), seed=0) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "shape"), ([[1, 2]], "shape"), ([0.1, np.nan], "value 1 is nan"), ([np.inf], "value 0")],
)
def test_values_without_a_mean_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        bootstrap_mean(values, seed=0)


def test_many_values_are_resampled_in_groups_with_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).gamma(2.0, size=(40_000, 2))
    groups = bootstrap.grouped(values, 0)
    assert groups.shape == (bootstrap.MAX_VALUES, 2)
    np.testing.assert_allclose(groups.mean(axis=0), values.mean(axis=0))
    np.testing.assert_allclose(groups.std(axis=0) / np.sqrt(len(groups)), values.std(axis=0) / 200, rtol=0.05)
    fast = bootstrap_mean(values[:, 0], seed=0, n_resamples=1000)
    monkeypatch.setattr(bootstrap, "MAX_VALUES", 10**6)
    exact = bootstrap_mean(values[:, 0], seed=0, n_resamples=1000)
    assert fast.value == exact.value
    assert fast.high - fast.low == pytest.approx(exact.high - exact.low, rel=0.1)


def test_few_values_are_resampled_one_by_one() -> None:
    values = np.arange(bootstrap.MAX_VALUES, dtype=float)
    assert bootstrap.grouped(values, 0) is values

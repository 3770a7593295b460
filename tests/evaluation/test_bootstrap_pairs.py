"""Tests of bootstrapped pair metrics: weights give the same values as recomputing from the resampled rows."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.evaluation import pair_metrics
from bsc_core.evaluation.stats import bootstrap_pairs
from bsc_core.evaluation.stats.bootstrap_pairs import PAIR_METRICS, ScoredPairs, compare_pairs, pair_intervals
from tests.helpers.slow_bootstrap import bootstrap_statistic, compare_statistics, pair_statistic


def pairs(seed, *, size=60, ties=True, noise=0.4):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 6, size).astype(np.float32) / 5
    scores = labels + noise * generator.standard_normal(size)
    scores = np.round(scores, 1) if ties else scores
    return ScoredPairs(scores, labels, 0.5, decision=0.55, accuracy_decision=0.65)


def groups(size=60):
    return np.arange(size) // 3


@pytest.mark.parametrize("metric", PAIR_METRICS)
@pytest.mark.parametrize("ties", [True, False])
def test_a_weight_for_each_pair_gives_the_metric_of_the_rows_themselves(metric, ties):
    result = pairs(1, ties=ties)
    weights = np.random.default_rng(2).integers(0, 4, (50, 60)).astype(float)
    drawn = result.resampled(metric, weights)
    for value, times in zip(drawn, weights.astype(int), strict=True):
        rows = np.repeat(np.arange(60), times)
        chosen = {"decision": 0.55, "accuracy_decision": 0.65}
        oracle = pair_metrics(result.scores[rows], result.labels[rows], threshold=0.5, **chosen)[metric]
        assert value == pytest.approx(oracle, abs=1e-12)


@pytest.mark.parametrize("metric", PAIR_METRICS)
def test_intervals_are_those_of_the_plain_bootstrap(metric):
    result = pairs(3)
    decision = result.cut(metric)
    plain = pair_statistic(result.scores, result.labels, metric, threshold=0.5, decision=decision)
    slow = bootstrap_statistic(plain, groups(), seed=7, n_resamples=200)
    fast = pair_intervals(result, groups(), seed=7, n_resamples=200)[metric]
    assert (fast.value, fast.low, fast.high) == pytest.approx((slow.value, slow.low, slow.high), abs=1e-12)


def test_a_comparison_is_that_of_the_plain_statistics_with_seeds():
    first, second = [pairs(seed, noise=0.8) for seed in (1, 2)], [pairs(1, noise=noise) for noise in (0.3, 0.4, 0.5)]
    labels = first[0].labels
    first = [ScoredPairs(side.scores, labels, 0.5) for side in first]
    statistics = [[pair_statistic(side.scores, labels, "spearman") for side in setting] for setting in (first, second)]
    slow = compare_statistics(*statistics, groups(), seed=5, n_resamples=300)
    fast = compare_pairs(first, second, "spearman", groups(), seed=5, n_resamples=300)
    assert fast.p == slow.p
    assert (fast.queries, fast.seeds, fast.method) == (slow.queries, slow.seeds, slow.method)
    ends = [(result.difference.value, result.difference.low, result.difference.high) for result in (fast, slow)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-12)


def test_classification_metrics_are_undefined_without_a_threshold_from_dev():
    result = pairs(1)
    undecided = ScoredPairs(result.scores, result.labels, 0.5)
    assert undecided.metrics["f1"] is None
    assert undecided.metrics["best_accuracy"] is None
    assert set(pair_intervals(undecided, groups(), seed=0, n_resamples=50)) == set(PAIR_METRICS[:4])


def test_draws_without_a_negative_are_left_out_and_many_of_them_leave_no_range():
    labels = np.array([1.0, 1.0, 1.0, 0.0], dtype=np.float32)
    weights = np.array([[1.0, 1, 1, 0], [1, 1, 0, 1]])
    result = ScoredPairs(np.array([0.9, 0.4, 0.3, 0.5]), labels)
    assert np.isnan(result.resampled("auc", weights)).tolist() == [True, False]
    none = np.zeros((1, 4))
    none[0, 3] = 4
    assert np.isnan(result.resampled("average_precision", none)).all()
    rare = ScoredPairs(np.arange(200.0), np.r_[np.zeros(199), 1].astype(np.float32))
    drawn = pair_intervals(rare, np.r_[np.zeros(100), np.arange(1, 101)], seed=0, n_resamples=400)
    assert drawn["auc"].low is not None
    alone = pair_intervals(result, np.zeros(4), seed=0, n_resamples=100)["auc"]
    assert alone.low is None
    assert alone.value == pytest.approx(1 / 3)


def test_constant_scores_have_correlation_zero_in_every_resample():
    constant = ScoredPairs(np.full(20, 0.3), np.tile([0.0, 1.0], 10).astype(np.float32))
    result = pair_intervals(constant, np.arange(20), seed=0, n_resamples=100)
    assert (result["spearman"].value, result["spearman"].low, result["spearman"].high) == (0, 0, 0)
    assert (result["auc"].low, result["auc"].high) == (0.5, 0.5)


def test_pairs_without_a_positive_have_correlations_alone():
    labels = np.linspace(0, 0.4, 12).astype(np.float32)
    result = pair_intervals(
        ScoredPairs(np.linspace(0, 1, 12), labels, 0.5, 0.5, 0.5), np.arange(12), seed=0, n_resamples=50
    )
    assert {"spearman", "pearson"} <= set(result) <= {"spearman", "pearson", "accuracy", "best_accuracy"}
    assert (result["spearman"].low, result["spearman"].high) == (1, 1)


@pytest.mark.parametrize("metric", ["spearman", "auc", "f1"])
def test_a_part_of_many_pairs_has_the_interval_of_all(metric, monkeypatch):
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 2, 6000).astype(float)
    pairs = ScoredPairs(labels + generator.normal(size=6000), labels, decision=0.5)
    groups = np.arange(6000) // 2
    exact = pair_intervals(pairs, groups, seed=0, n_resamples=1000)[metric]
    monkeypatch.setattr(bootstrap_pairs, "MAX_PAIRS", 1000)
    part = pair_intervals(pairs, groups, seed=0, n_resamples=1000)[metric]
    assert part.value == exact.value
    assert part.low < part.value < part.high
    assert part.high - part.low == pytest.approx(exact.high - exact.low, rel=0.25)


def test_a_group_that_is_larger_than_the_part_has_no_interval(monkeypatch):
    monkeypatch.setattr(bootstrap_pairs, "MAX_PAIRS", 10)
    pairs = ScoredPairs(np.arange(40.0), np.arange(40.0) % 2)
    assert pair_intervals(pairs, np.repeat([0, 1], 20), seed=0)["auc"].low is None

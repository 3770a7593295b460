"""Tests of pair metrics, against scikit-learn, SciPy and sentence-transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from bsc_core.errors import DataError
from bsc_core.evaluation import pair_metrics
from bsc_core.evaluation.metrics.pairs import best_cut

pairs = st.lists(st.tuples(st.integers(0, 6).map(lambda number: number / 8), st.booleans()), min_size=2, max_size=30)


def columns(rows):
    scores, positive = zip(*rows, strict=True)
    return np.asarray(scores), np.asarray(positive)


@settings(max_examples=60)
@given(pairs)
def test_best_f1_is_the_maximum_over_all_thresholds(rows):
    scores, positive = columns(rows)
    metrics = pair_metrics(scores, positive)
    if not positive.any():
        assert metrics["f1"] is None
        return
    thresholds = [level + step for level in set(scores.tolist()) for step in (-0.01, 0.01)]
    best = max(f1_score(positive, scores >= threshold, zero_division=0) for threshold in thresholds)
    assert metrics["f1"] == pytest.approx(best)
    assert f1_score(positive, scores >= metrics["f1_threshold"]) == pytest.approx(best)


@settings(max_examples=60)
@given(pairs)
def test_average_precision_equals_scikit_learn_ties_included(rows):
    scores, positive = columns(rows)
    value = pair_metrics(scores, positive)["average_precision"]
    assert value is None if not positive.any() else value == pytest.approx(average_precision_score(positive, scores))


def test_correlations_equal_scipy_ties_included():
    from scipy.stats import pearsonr, spearmanr

    generator = np.random.default_rng(5)
    labels = generator.integers(0, 6, 200) / 5
    scores = np.round(labels + generator.normal(size=200), 1)
    metrics = pair_metrics(scores, labels)
    assert metrics["spearman"] == pytest.approx(spearmanr(scores, labels)[0])
    assert metrics["pearson"] == pytest.approx(pearsonr(scores, labels)[0])
    assert metrics["constant"] == 0


def test_binary_metrics_equal_the_evaluator_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

    generator = np.random.default_rng(6)
    labels = np.r_[np.ones(40), np.zeros(40)]
    scores = generator.permutation(80) / 160 + labels * 0.3
    metrics = pair_metrics(scores, labels)
    best, precision, recall, _ = BinaryClassificationEvaluator.find_best_f1_and_threshold(scores, labels, True)
    result = (metrics["f1"], metrics["precision"], metrics["recall"])
    assert result == pytest.approx((best, precision, recall))


def test_golden_threshold_that_predicts_every_pair_positive():
    scores, positive = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 0, 1, 1, 0, 1]
    metrics = pair_metrics(scores, positive)
    assert metrics["f1"] == pytest.approx(0.8)
    assert metrics["f1_threshold"] == pytest.approx(0.4)
    assert pair_metrics(scores, positive, decision=0.55)["f1"] == pytest.approx(0.75)


def test_tied_positives_are_both_predicted():
    assert pair_metrics([0.9, 0.9], [1, 1])["f1"] == 1


def test_the_cut_between_neighboring_floats_parts_them():
    lower = 0.5
    upper = math.nextafter(lower, 1)
    cut = best_cut(np.asarray([upper, lower]), np.asarray([True, False]))
    assert lower < cut <= upper


def test_a_given_threshold_is_applied_unchanged():
    metrics = pair_metrics([0.9, 0.6, 0.2], [1, 1, 0], decision=0.7)
    assert metrics["f1_threshold"] == 0.7
    assert metrics["recall"] == 0.5
    assert metrics["precision"] == 1
    assert metrics["accuracy"] == pytest.approx(2 / 3)


def test_a_label_at_the_threshold_is_negative():
    assert pair_metrics([0.1, 0.2], [0.5, 0.6], threshold=0.5)["positives"] == 0.5


@pytest.mark.parametrize(("scores", "labels"), [([1, 1, 1], [0, 0.5, 1]), ([0.1, 0.2, 0.3], [1, 1, 1])])
def test_constant_columns_correlate_zero_and_say_so(scores, labels):
    metrics = pair_metrics(scores, labels)
    assert (metrics["spearman"], metrics["pearson"], metrics["constant"]) == (0, 0, 1)


def test_without_positives_what_is_undefined_is_none():
    metrics = pair_metrics([0.1, 0.4], [0, 0])
    undefined = ("f1", "precision", "recall", "accuracy", "f1_threshold", "average_precision")
    assert all(metrics[name] is None for name in undefined)
    assert pair_metrics([0.1, 0.4], [0, 0], decision=0.3)["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [([], [], "no pair"), ([1.0], [1, 0], "1 scores and 2 labels"), ([math.nan], [1], r"scores\[0\] is NaN")],
)
def test_invalid_pairs_are_refused(scores, labels, message):
    with pytest.raises(DataError, match=message):
        pair_metrics(scores, labels)


def test_a_label_on_the_threshold_is_negative_in_float32_too():
    labels = np.array([0.6, 0.6, 0.9, 0.1], dtype=np.float32)
    assert pair_metrics([0.1, 0.2, 0.9, 0.3], labels, threshold=0.6)["positives"] == 0.25


@settings(max_examples=60)
@given(pairs)
def test_best_accuracy_is_the_maximum_over_all_thresholds(rows):
    scores, positive = columns(rows)
    metrics = pair_metrics(scores, positive)
    thresholds = [level + step for level in set(scores.tolist()) for step in (-0.01, 0.01)]
    best = max(((scores >= threshold) == positive).mean() for threshold in thresholds)
    assert metrics["best_accuracy"] == pytest.approx(best)
    assert ((scores >= metrics["accuracy_threshold"]) == positive).mean() == pytest.approx(best)


@settings(max_examples=60)
@given(pairs)
def test_the_area_under_the_curve_counts_pairs_of_pairs_ties_by_half(rows):
    scores, positive = columns(rows)
    value = pair_metrics(scores, positive)["auc"]
    won = [(scores[i] > scores[j]) + (scores[i] == scores[j]) / 2 for i in np.flatnonzero(positive) for j in
           np.flatnonzero(~positive)]  # fmt: skip
    assert value is None if not won else value == pytest.approx(np.mean(won))
    if won:
        assert value == pytest.approx(roc_auc_score(positive, scores))


def test_the_accuracy_threshold_of_dev_is_applied_to_test_unchanged():
    dev = pair_metrics([0.9, 0.8, 0.2], [1, 0, 0])
    assert 0.8 < dev["accuracy_threshold"] <= 0.9
    test = pair_metrics([0.9, 0.5], [0, 1], decision=0.4, accuracy_decision=dev["accuracy_threshold"])
    assert test["best_accuracy"] == 0
    assert test["accuracy"] == 0.5
    assert pair_metrics([0.9, 0.5], [0, 1], decision=0.4)["best_accuracy"] is None


def test_calling_no_pair_positive_is_tried_too():
    metrics = pair_metrics([0.9, 0.8, 0.7], [0, 0, 1])
    assert metrics["best_accuracy"] == pytest.approx(2 / 3)
    assert 0.9 < metrics["accuracy_threshold"] < 0.91


def test_binary_accuracy_equals_the_evaluator_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

    generator = np.random.default_rng(7)
    labels = np.r_[np.ones(50), np.zeros(30)]
    scores = generator.permutation(80) / 80 + labels * 0.4
    best, _ = BinaryClassificationEvaluator.find_best_acc_and_threshold(scores, labels, True)
    assert pair_metrics(scores, labels)["best_accuracy"] == pytest.approx(best)

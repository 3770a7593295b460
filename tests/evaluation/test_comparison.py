"""Tests of the queries and pairs that changed between two models."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.errors import DataError
from bsc_core.evaluation import QueryValues, pair_metrics
from bsc_core.evaluation.comparison import pair_correctness, query_differences
from bsc_core.evaluation.evaluator import EvalResult
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs


def measured(cosines, labels, *, queries=None, decision=0.5):
    return EvalResult("dev", "same", queries, cosines, labels, np.arange(len(cosines)), 0.5, decision, decision)


def asked(values, rows):
    ones = np.ones(len(rows), dtype=np.int64)
    return QueryValues(rows, {"mrr": np.asarray(values, dtype=float)}, ones, ones)


def test_queries_are_matched_by_their_row_and_seeds_are_means():
    flat, labels = np.zeros(3), np.ones(3, dtype=np.float32)
    first = [measured(flat, labels, queries=asked([0.1, 0.2, 0.3], [8, 4, 0]))]
    second = [measured(flat, labels, queries=asked(values, [0, 4, 8])) for values in ([0.3, 1, 0], [0.3, 0.6, 0])]
    result = query_differences(first, second, "mrr")
    assert result.unit == "query"
    assert result.rows.tolist() == [0, 4, 8]
    assert result.first.tolist() == [0.3, 0.2, 0.1]
    assert result.second == pytest.approx([0.3, 0.8, 0])
    assert result.wins().tolist() == [1]
    assert result.losses().tolist() == [2]


@pytest.mark.parametrize("metric", ["f1", "accuracy", "best_accuracy"])
def test_a_pair_is_correct_if_its_class_is_predicted(metric):
    labels = np.array([1, 1, 0, 0], dtype=np.float32)
    pairs = ScoredPairs(np.array([0.5, 0.4, 0.6, 0.1]), labels, decision=0.5, accuracy_decision=0.5)
    assert pair_correctness(pairs, metric).tolist() == [1, 0, 0, 1]
    assert pair_correctness(pairs, "accuracy").mean() == pairs.metrics["accuracy"]


def test_the_mean_over_positive_pairs_is_the_area_under_the_curve():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 80).astype(np.float32)
    pairs = ScoredPairs(np.round(generator.standard_normal(80), 1), labels)
    right = pair_correctness(pairs, "auc")
    assert right[labels > 0.5].mean() == pytest.approx(pair_metrics(pairs.scores, labels)["auc"])
    assert right[labels < 0.5].mean() == pytest.approx(pair_metrics(pairs.scores, labels)["auc"])


def test_scores_in_the_order_of_the_labels_are_right_everywhere():
    labels = np.array([0, 0.25, 0.5, 1], dtype=np.float32)
    assert pair_correctness(ScoredPairs(np.array([1.0, 2, 3, 9]), labels), "spearman").tolist() == [1, 1, 1, 1]
    assert pair_correctness(ScoredPairs(np.array([9.0, 3, 2, 1]), labels), "spearman").min() == 0


def test_pairs_carry_their_cosines_and_a_metric_that_is_not_there_is_refused():
    labels = np.array([0, 1], dtype=np.float32)
    sides = [[measured(np.array(cosines), labels)] for cosines in ([0.9, 0.1], [0.2, 0.8])]
    result = query_differences(*sides, "spearman")
    assert (result.unit, result.gained.tolist()) == ("pair", [1, 1])
    assert result.second_cosine.tolist() == [0.2, 0.8]
    with pytest.raises(DataError, match="'mrr' is not defined"):
        query_differences(*sides, "mrr")

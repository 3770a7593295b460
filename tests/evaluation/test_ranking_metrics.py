"""Tests of reranking metrics, against loops over their definitions and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import ranking_metrics

GOLDEN_QUERY = ["q1"] * 4 + ["q2"] * 3 + ["q3"] * 3
GOLDEN_SCORES = [0.9, 0.8, 0.3, 0.1, 0.2, 0.7, 0.5, 0.6, 0.4, 0.1]
GOLDEN_GRADES = [1, 4, 3, 2, 4, 1, 2, 1, 2, 1]


def slow_metrics(query, scores, relevant, cuts):
    """Compute metrics one list at a time, with ties ranked worst and None without relevant items."""
    collected = {"map": [], "mrr": []} | {f"{name}@{k}": [] for k in cuts for name in ("precision", "has_positive")}
    for wanted in sorted(set(query)):
        rows = [row for row in range(len(query)) if query[row] == wanted]
        ranked = [bool(relevant[row]) for row in sorted(rows, key=lambda row: (-scores[row], relevant[row]))]
        precisions, first = [], 0.0
        for position, hit in enumerate(ranked, start=1):
            if hit:
                precisions.append(sum(ranked[:position]) / position)
                first = first or 1 / position
        collected["map"].append(sum(precisions) / len(precisions) if precisions else 0.0)
        collected["mrr"].append(first)
        for k in cuts:
            collected[f"precision@{k}"].append(sum(ranked[:k]) / min(k, len(ranked)))
            collected[f"has_positive@{k}"].append(float(any(ranked[:k])))
    return {name: sum(values) / len(values) if any(relevant) else None for name, values in collected.items()}


candidate = st.tuples(st.integers(0, 4), st.integers(-3, 3).map(lambda number: number / 4), st.booleans())


@settings(max_examples=60)
@given(st.lists(candidate, min_size=1, max_size=40))
def test_agrees_with_a_slow_loop_ties_included(rows):
    query, scores, relevant = map(list, zip(*rows, strict=True))
    metrics = ranking_metrics(query, scores, relevant, k=(1, 2, 5))
    expected = slow_metrics(query, scores, relevant, (1, 2, 5))
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


@settings(max_examples=60)
@given(st.lists(candidate, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_row_order_does_not_change_the_metrics(rows, chooser):
    shuffled = rows.copy()
    chooser.shuffle(shuffled)
    results = [ranking_metrics(*map(list, zip(*given_rows, strict=True)), k=(1, 3)) for given_rows in (rows, shuffled)]
    assert results[0] == pytest.approx(results[1])


def test_golden_values_of_the_released_code():
    relevant = [grade >= 3 for grade in GOLDEN_GRADES]
    metrics = ranking_metrics(GOLDEN_QUERY, GOLDEN_SCORES, relevant, k=(1, 3, 9), grades=GOLDEN_GRADES)
    golden = {"map": 0.3056, "mrr": 0.2778, "precision@1": 0.0, "precision@3": 0.3333, "precision@9": 0.2778}
    golden |= {"ndcg@1": 0.3333, "ndcg@3": 0.7835, "ndcg@9": 0.8085}
    assert {name: metrics[name] for name in golden} == pytest.approx(golden, abs=5e-5)
    assert metrics["queries"] == 3
    assert metrics["queries_without_positive"] == 1


def test_queries_without_positive_can_be_left_out():
    relevant = [grade >= 3 for grade in GOLDEN_GRADES]
    metrics = ranking_metrics(GOLDEN_QUERY, GOLDEN_SCORES, relevant, skip_without_positive=True)
    assert metrics["mrr"] == pytest.approx(0.2778 * 3 / 2, abs=1e-4)
    assert metrics["queries"] == 2


def test_average_precision_equals_scikit_learn_without_ties():
    from sklearn.metrics import average_precision_score

    generator = np.random.default_rng(3)
    scores, relevant = generator.permutation(50) / 50, generator.random(50) < 0.3
    metrics = ranking_metrics(np.zeros(50), scores, relevant)
    assert metrics["map"] == pytest.approx(average_precision_score(relevant, scores))


def test_ndcg_equals_scikit_learn_without_ties():
    from sklearn.metrics import ndcg_score

    generator = np.random.default_rng(4)
    scores, grades = generator.permutation(30) / 30, generator.integers(0, 4, 30)
    metrics = ranking_metrics(np.zeros(30), scores, grades > 2, k=(5, 30), grades=grades)
    assert metrics["ndcg@5"] == pytest.approx(ndcg_score([grades], [scores], k=5))
    assert metrics["ndcg@30"] == pytest.approx(ndcg_score([grades], [scores]))


def test_ndcg_of_a_list_without_gain_is_zero():
    metrics = ranking_metrics([0, 0], [0.5, 0.2], [False, False], k=(1,), grades=[0, 0])
    assert metrics["ndcg@1"] == 0


def test_constant_scores_do_not_profit_from_positives_listed_first():
    metrics = ranking_metrics([0, 0, 0], [1, 1, 1], [True, False, False], k=(1, 3))
    assert metrics["mrr"] == pytest.approx(1 / 3)
    assert metrics["has_positive@1"] == 0


def test_no_candidates_give_undefined_means():
    metrics = ranking_metrics([], [], [], k=(1,))
    assert metrics["map"] is None
    assert metrics["has_positive@1"] is None
    assert metrics["queries"] == 0


def test_nan_scores_are_refused_with_their_index():
    with pytest.raises(DataError, match=r"scores\[1\] is NaN"):
        ranking_metrics([0, 0], [0.5, math.nan], [True, False])


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(DataError, match="2 queries, 1 scores"):
        ranking_metrics([0, 0], [0.5], [True, False])

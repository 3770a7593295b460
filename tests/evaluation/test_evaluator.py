"""Tests of the metrics selected for each kind of data, and of the comparison of checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bsc_core.config import EvaluationConfig
from bsc_core.data.dataset import Corpus, PairDataset, ReadReport
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import ConfigError
from bsc_core.evaluation import (
    Evaluator,
    evaluate,
    evaluate_queries,
    main_metric,
    pair_metrics,
    ranking_metrics,
    shared_queries,
    text_ids,
)


def vectors_for(dataset, seed=2):
    return np.random.default_rng(seed).normal(size=(len(dataset.texts), 6)).astype(np.float32)


def cosine(left, right):
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


@pytest.fixture
def lists():
    """Three queries with three graded candidates each."""
    queries = [f"query {number // 3}" for number in range(9)]
    return PairDataset.from_pairs(queries, [f"document {number}" for number in range(9)], [1, 0.25, 0] * 3)


@pytest.fixture
def corpus(lists):
    ids = np.unique(lists.document)
    report = ReadReport("corpus in memory", len(ids), len(ids), (), lists.report.columns, False, "row")
    return Corpus(lists.texts, ids, None, report)


def test_labeled_lists_get_pair_and_list_metrics(lists):
    vectors = vectors_for(lists)
    scores = [
        cosine(vectors[query], vectors[document]) for query, document in zip(lists.query, lists.document, strict=True)
    ]
    metrics = evaluate(vectors, lists, k=(1, 3))
    expected = pair_metrics(scores, lists.label) | ranking_metrics(
        lists.query_group, scores, lists.positive, k=(1, 3), grades=lists.label
    )
    assert metrics == pytest.approx(expected, abs=1e-6)


def test_a_corpus_adds_retrieval_to_pair_metrics(lists, corpus):
    metrics = evaluate(vectors_for(lists), lists, corpus, k=(1,))
    assert metrics["documents"] == 9
    assert "spearman" in metrics
    assert "queries_without_positive" not in metrics  # candidate lists have them


def test_pairs_with_one_candidate_a_query_get_pair_metrics_only():
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"], [1, 0, 0.4])
    metrics = evaluate(vectors_for(dataset), dataset)
    assert "spearman" in metrics
    assert "mrr" not in metrics


def test_positive_pairs_search_the_documents_of_the_dataset():
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"])
    metrics = evaluate(vectors_for(dataset), dataset, k=(1, 3))
    assert metrics["has_positive@3"] == 1
    assert metrics["documents"] == 3
    assert "spearman" not in metrics


def test_only_the_named_texts_are_read(lists, corpus):
    vectors = vectors_for(lists)
    part = lists.take(np.arange(3))
    rest = np.setdiff1d(np.arange(len(lists.texts)), text_ids(part))
    before = evaluate(vectors, part)
    vectors[rest] = np.nan
    assert evaluate(vectors, part) == before


def test_the_threshold_of_f1_is_chosen_on_dev_and_applied_to_test(lists):
    dev, test = lists.take(np.arange(6)), lists.take(np.arange(6, 9))
    evaluator = Evaluator(DatasetSplits(lists, dev, test, None), EvaluationConfig())
    results = evaluator.evaluate(vectors_for(lists))
    assert results["test"]["f1_threshold"] == results["dev"]["f1_threshold"]
    assert list(results) == ["dev", "test"]
    assert evaluator.text_ids.tolist() == list(range(len(lists.texts)))


def test_without_test_pairs_only_dev_is_evaluated(lists, corpus):
    evaluator = Evaluator(DatasetSplits(lists, lists, None, corpus), EvaluationConfig(k=(1, 2)))
    results = evaluator.evaluate(vectors_for(lists))
    assert list(results) == ["dev"]
    assert evaluator.main_metric(results) == ("mrr", results["dev"]["mrr"])


def test_metrics_are_plain_json_without_nan(lists, corpus):
    none_positive = lists.take(np.flatnonzero(~lists.positive))
    for metrics in (evaluate(vectors_for(lists), none_positive, corpus), evaluate(vectors_for(lists), lists)):
        assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_the_main_metric_is_mrr_then_spearman_or_the_configured_one():
    assert main_metric({"spearman": 0.3, "mrr": 0.5}) == ("mrr", 0.5)
    assert main_metric({"spearman": 0.3, "mrr": None}) == ("spearman", 0.3)
    assert main_metric({"spearman": 0.3, "mrr": 0.5}, "spearman") == ("spearman", 0.3)


@pytest.mark.parametrize("wanted", ["recall@7", "f1", None])
def test_a_metric_that_the_data_do_not_define_is_refused_with_those_they_do(wanted):
    with pytest.raises(ConfigError, match=r"evaluation.metric: .*they define: map"):
        main_metric({"map": 0.5, "f1": None}, wanted)


def test_thresholds_are_never_chosen_on_test():
    dev = PairDataset.from_pairs(["a", "b"], ["c", "d"], [1.0, 1.0])
    test = PairDataset.from_pairs(["a", "b"], ["c", "d"], [0.0, 1.0])
    vectors = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    result = Evaluator(DatasetSplits(dev, dev, test, None), EvaluationConfig()).evaluate(vectors)
    assert result["dev"].get("f1_threshold") is None
    assert result["test"]["f1"] is None
    assert result["test"]["f1_threshold"] is None
    assert result["test"]["spearman"] is not None


def test_the_accuracy_threshold_is_chosen_on_dev_and_applied_to_test(lists):
    dev, test = lists.take(np.arange(6)), lists.take(np.arange(6, 9))
    results = Evaluator(DatasetSplits(lists, dev, test, None), EvaluationConfig()).evaluate(vectors_for(lists))
    assert results["test"]["accuracy_threshold"] == results["dev"]["accuracy_threshold"]
    assert "queries_in_dev" not in results["test"]


def test_a_query_in_two_splits_is_counted_on_test(lists):
    dev, test = lists.take(np.arange(6)), lists.take(np.arange(5, 9))
    assert shared_queries(dev, test) == 1
    results = Evaluator(DatasetSplits(lists, dev, test, None), EvaluationConfig()).evaluate(vectors_for(lists))
    assert results["test"]["queries_in_dev"] == 1
    assert "queries_in_dev" not in results["dev"]


def test_values_by_query_average_to_the_metrics(lists, corpus):
    vectors = vectors_for(lists)
    for documents, row in ((None, [0, 3, 6]), (corpus, [0, 3, 6])):
        measured = evaluate_queries(vectors, lists, documents, k=(1, 3))
        metrics = evaluate(vectors, lists, documents, k=(1, 3))
        means = measured.means()
        assert {name: metrics[name] for name in means} == means
        assert measured.query == row


def test_pairs_without_lists_have_no_values_by_query():
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"], [1, 0, 0.4])
    assert evaluate_queries(vectors_for(dataset), dataset) is None

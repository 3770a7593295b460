"""Evaluators of sentence-transformers on this project's data, compared with its metrics."""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from bsc_core.data import read_pairs
from bsc_core.encoders import embed
from bsc_core.evaluation import evaluate, rank, ranking_metrics, retrieval_task
from bsc_core.evaluation.evaluator import pair_cosines
from bsc_core.integrations.evaluators import (
    binary_evaluator,
    reranking_evaluator,
    retrieval_evaluator,
    similarity_evaluator,
)


@pytest.fixture(scope="module")
def model(tiny_encoder):
    return SentenceTransformer(str(tiny_encoder), device="cpu")


@pytest.fixture
def pairs(small_pairs):
    return read_pairs(small_pairs)


@pytest.fixture
def vectors(pairs, tiny_encoder):
    return embed(str(tiny_encoder), pairs.texts)


def metric(results, suffix):
    """Return the only metric whose name ends with `suffix`."""
    (value,) = [value for name, value in results.items() if name.endswith(suffix)]
    return value


def test_retrieval_agrees(model, pairs, vectors):
    positives = pairs.take(pairs.positive)
    task = retrieval_task(positives)
    ours = rank(vectors[task.query], vectors[task.corpus], task, k=(1, 3)).metrics
    theirs = retrieval_evaluator(positives, k=(1, 3))(model)
    size = len(task.corpus)
    for mine, other in {"mrr": f"mrr@{size}", "map": f"map@{size}", "has_positive@3": "accuracy@3",
                        "precision@3": "precision@3", "recall@3": "recall@3", "ndcg@3": "ndcg@3"}.items():  # fmt: skip
        assert ours[mine] == pytest.approx(metric(theirs, other), abs=1e-6)


def test_correlations_agree(model, pairs, vectors):
    theirs, ours = similarity_evaluator(pairs)(model), evaluate(vectors, pairs)
    assert ours["spearman"] == pytest.approx(metric(theirs, "spearman_cosine"), abs=1e-6)
    assert ours["pearson"] == pytest.approx(metric(theirs, "pearson_cosine"), abs=1e-5)


def test_classification_agrees_up_to_a_threshold_that_the_library_does_not_try(model, pairs, vectors):
    theirs, ours = binary_evaluator(pairs)(model), evaluate(vectors, pairs)
    assert ours["average_precision"] == pytest.approx(metric(theirs, "cosine_ap"), abs=1e-6)
    assert ours["f1"] >= metric(theirs, "cosine_f1") - 1e-9
    assert ours["best_accuracy"] >= metric(theirs, "cosine_accuracy") - 1e-9


def test_candidate_lists_agree(model, pairs, vectors):
    theirs = reranking_evaluator(pairs, k=4)(model)
    ours = ranking_metrics(pairs.query_group, pair_cosines(vectors, pairs), pairs.positive, k=(4,))
    assert ours["map"] == pytest.approx(metric(theirs, "map"), abs=1e-6)
    assert ours["mrr"] == pytest.approx(metric(theirs, "mrr@4"), abs=1e-6)

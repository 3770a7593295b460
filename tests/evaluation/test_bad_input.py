"""Tests of degenerate input: a defined result or a clear error for every metric."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bsc_core import evaluation as measured
from bsc_core.config import DataConfig, EncoderConfig, EvaluationConfig
from bsc_core.data import audit, load_data
from bsc_core.data.dataset import PairDataset, TextTable
from bsc_core.encoders import cached_vectors, embed
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation import Evaluator, RetrievalTask
from bsc_core.neighbors import top_k
from bsc_core.runs import Run

SCORES = [0.1, 0.9, 0.4, 0.7]
TRUTH = [False, True, False, True]
EYE = np.eye(4, dtype=np.float32)
ONE_QUERY = [1, 1, 1, 1]


def pairs(labels, texts="abcdefgh"):
    queries, documents = list(texts[: len(labels)]), [f"{letter} answer" for letter in texts[: len(labels)]]
    return PairDataset.from_pairs(queries, documents, labels)


def scored(scores):
    return measured.ScoredPairs(np.asarray(scores), np.asarray(TRUTH, dtype=np.float32))


def vectors_for(dataset, seed=0):
    return np.random.default_rng(seed).normal(size=(len(dataset.texts), 4)).astype(np.float32)


def test_without_any_positive_rankings_are_undefined_but_for_grades():
    result = measured.ranking_metrics([1, 1, 2, 2], SCORES, [False] * 4, k=(1,), grades=[0.2, 0.4, 0.0, 0.5])
    assert [result[name] for name in ("mrr", "map", "has_positive@1")] == [None] * 3
    assert result["queries_without_positive"] == 2.0
    assert result["ndcg@1"] == 1.0
    skipped = measured.ranking_metrics([1, 1, 2, 2], SCORES, [False] * 4, k=(1,), skip_without_positive=True)
    assert (skipped["mrr"], skipped["queries"]) == (None, 0.0)


def test_lists_without_a_positive_are_compared_by_what_is_defined():
    dataset = PairDataset.from_pairs(list("aabbcc"), list("uvwxyz"), [0.1, 0.4, 0.2, 0.3, 0.0, 0.5])
    assert measured.main_metric(measured.evaluate(vectors_for(dataset), dataset))[0] == "spearman"


def test_without_a_positive_pair_threshold_and_f1_are_none():
    result = measured.pair_metrics(SCORES, [0.0, 0.1, 0.2, 0.3])
    assert [result[name] for name in ("f1", "f1_threshold", "auc", "average_precision")] == [None] * 4
    assert result["spearman"] is not None
    assert measured.calibration_curve(SCORES, [False] * 4).share.tolist() == [0.0] * 4


def test_a_dataset_without_any_positive_has_no_query_to_search_with():
    dataset = pairs([0.0, 0.1, 0.2])
    task = measured.retrieval_task(dataset)
    vectors = vectors_for(dataset)
    result = measured.rank(vectors[task.query], vectors[task.corpus], task)
    assert (result.metrics["queries"], result.metrics["mrr"]) == (0, None)
    assert measured.query_intervals(result.per_query, seed=0) == {}


def test_constant_scores_rank_in_the_worst_order_and_have_correlation_zero():
    result = measured.pair_metrics([0.5] * 4, TRUTH)
    assert (result["spearman"], result["constant"], result["auc"]) == (0.0, 1.0, 0.5)
    ranked = measured.ranking_metrics(ONE_QUERY, [0.5] * 4, TRUTH, k=(1, 2))
    assert (ranked["mrr"], ranked["has_positive@2"]) == (1 / 3, 0.0)
    assert len(measured.calibration_curve([0.5] * 4, TRUTH).score) == 1
    alike = scored([0.5] * 4)
    result = measured.compare_pairs([alike], [alike], "spearman", range(4), seed=0)
    assert (result.difference.value, result.p, result.significant) == (0.0, None, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "ask",
    [
        lambda scores, _: measured.pair_metrics(scores, TRUTH),
        lambda scores, _: measured.pair_metrics(SCORES, scores),
        lambda scores, _: measured.calibration_curve(scores, TRUTH),
        lambda scores, _: measured.compare(SCORES, scores, seed=0),
        lambda scores, _: measured.bootstrap_mean(scores, seed=0),
        lambda scores, _: measured.pair_intervals(scored(scores), range(4), seed=0),
        lambda _, vectors: top_k(vectors, EYE, 10),
        lambda _, vectors: top_k(EYE, vectors, 10),
        lambda _, vectors: measured.uniformity(vectors, seed=0),
        lambda _, vectors: measured.alignment(EYE, vectors),
        lambda _, vectors: measured.neighbor_overlap(EYE, vectors, seed=0, k=2),
        lambda _, vectors: measured.polarity_task((EYE, vectors), (TRUTH, TRUTH), k=2),
    ],
)
def test_what_is_no_number_is_refused_in_one_sentence(ask, value):
    scores, vectors = np.array(SCORES), EYE.copy()
    scores[2] = vectors[2, 1] = value
    with pytest.raises(DataError) as reported:
        ask(scores, vectors)
    assert "2" in str(reported.value)
    assert "\n" not in str(reported.value)


def test_a_ranking_takes_infinite_scores_and_refuses_nan():
    assert measured.ranking_metrics(ONE_QUERY, [math.inf, 0, -math.inf, 1], TRUTH, k=(1,))["mrr"] == 1 / 2
    with pytest.raises(DataError, match=r"scores\[1\] is NaN"):
        measured.ranking_metrics(ONE_QUERY, [1, math.nan, 0, 0], TRUTH)


def test_one_query_has_a_value_without_interval_or_test():
    single = measured.compare([0.2], [0.7], seed=0)
    seeds = measured.compare_seeds([[0.2]], [[0.7], [0.8]], seed=0)
    together = measured.compare_pairs([scored(SCORES)], [scored(SCORES[::-1])], "spearman", ONE_QUERY, seed=0)
    for result in (single, seeds, together):
        assert (result.p, result.significant, result.difference.low) == (None, False, None)
        assert "inconclusive" in result.sentence()
    assert str(measured.bootstrap_mean([0.2], seed=0)) == "0.200 [no interval]"


def test_a_k_above_the_corpus_takes_all_of_it():
    positions, _ = top_k(EYE, EYE[:2], 10)
    assert positions.shape == (4, 2)
    result = measured.ranking_metrics([1, 1], [2, 1], [False, True], k=(50,))
    assert (result["precision@50"], result["recall@50"]) == (0.5, 1.0)
    ids = np.arange(1, dtype=np.int32)
    task = RetrievalTask(ids, np.arange(4, dtype=np.int32), np.array([0, 1]), ids, np.zeros(1, np.int32), ids)
    assert measured.rank(EYE[:1], EYE, task, k=(50,), top=50).metrics["recall@50"] == 1.0


@pytest.mark.parametrize("k", [0, 4, 9])
def test_neighbors_that_are_not_there_are_refused(k):
    with pytest.raises(DataError, match="choose k from 1 to 3"):
        measured.neighbor_overlap(EYE, EYE, seed=0, k=k)


def test_a_reference_of_another_size_is_accepted_and_mixed_sizes_are_refused():
    wide = np.eye(4, 7, dtype=np.float32)
    task = measured.polarity_task((wide, wide), (TRUTH, TRUTH), k=2)
    assert task.evaluate(EYE, EYE).polarity.shape == (4,)
    for ask in (
        lambda: measured.polarity_task((EYE, wide), (TRUTH, TRUTH), k=2),
        lambda: task.evaluate(EYE, wide),
        lambda: top_k(EYE, wide, 10),
        lambda: measured.alignment(EYE, wide),
    ):
        with pytest.raises(DataError, match=r"4.* 7|both texts"):
            ask()
    with pytest.raises(DataError, match="encode the same sentences with both"):
        task.evaluate(EYE[:3], EYE)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_truncated_embedding_cache_is_recomputed(own_cache: Path, tiny_encoder: Path, kept: float):
    encoder = EncoderConfig(name=str(tiny_encoder), max_seq_length=16)
    texts = TextTable((f"soup and bread {kept}", "a garden", "the train"))
    vectors = embed(encoder, texts)
    (path,) = (own_cache / "embeddings").glob("*.npy")
    raw = path.read_bytes()
    path.write_bytes(raw[: int(kept * len(raw))])
    assert cached_vectors(encoder, texts) is None
    assert np.array_equal(embed(encoder, texts), vectors)
    assert path.read_bytes() == raw


def test_a_cache_file_with_other_content_is_recomputed(own_cache: Path, tiny_encoder: Path):
    encoder, texts = (
        EncoderConfig(name=str(tiny_encoder), max_seq_length=16),
        TextTable(("soup of another kind", "bread")),
    )
    vectors = embed(encoder, texts)
    (path,) = (own_cache / "embeddings").glob("*.npy")
    for other in (np.zeros((2, 32), np.int64), np.zeros(2, np.float32), np.zeros((3, 32), np.float32)):
        np.save(path, other)
        assert np.array_equal(embed(encoder, texts), vectors)
    with path.open("wb") as file:
        np.savez(file, vectors=vectors)
    assert np.array_equal(embed(encoder, texts), vectors)


def test_truncated_vectors_of_a_run_are_reported(tmp_path: Path):
    path = tmp_path / "run" / "embeddings_after.npy"
    path.parent.mkdir()
    np.save(path, EYE)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RunError, match=r"run run: embeddings_after\.npy is damaged"):
        Run(path.parent).array("embeddings_after")


@pytest.fixture
def split_file(tmp_path: Path):
    """Query id q1 in dev and test, with equal or different texts."""

    def write(again: str) -> DataConfig:
        rows = [("q0", "a", "x", 1, "train"), ("q1", "b", "y", 1, "dev"), ("q2", "c", "z", 1, "dev")]
        rows += [("q1", again, "w", 1, "test"), ("q3", "d", "v", 1, "test")]
        lines = ["query_id\tquery\tdocument\tlabel\tsplit", *("\t".join(map(str, row)) for row in rows)]
        path = tmp_path / "pairs.tsv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return DataConfig(train=str(path))

    return write


@pytest.mark.parametrize(("again", "shared"), [("b", 1), ("another", None)])
def test_a_query_id_in_two_splits_is_reported_and_evaluated_in_each(split_file, again, shared):
    data = load_data(split_file(again))
    results = Evaluator(data, EvaluationConfig()).evaluate(vectors_for(data))
    assert (results["dev"]["queries"], results["test"]["queries"]) == (2, 2)
    assert results["test"].get("queries_in_dev") == shared
    titles = {finding.title for finding in audit(data) if finding.split == "test"}
    reported = (
        "Queries of test that are also in dev: 1" if shared else "Query ids of test that dev uses for other texts: 1"
    )
    assert reported in titles


def test_ids_of_two_files_need_not_be_one_query(split_file, tmp_path: Path):
    path = tmp_path / "dev.tsv"
    path.write_text("query_id\tquery\tdocument\tlabel\nq0\tother\to\t1\nq9\tmore\tm\t0\n", encoding="utf-8")
    data = load_data(split_file("b").model_copy(update={"dev": str(path)}))
    assert not [finding for finding in audit(data) if finding.title.startswith("Query ids of dev")]

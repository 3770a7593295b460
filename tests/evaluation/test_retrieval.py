"""Tests of retrieval metrics, against a naive ranking and sentence-transformers, and on real claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bsc_core.data import read_corpus, read_pairs
from bsc_core.data.dataset import Corpus, PairDataset, ReadReport
from bsc_core.data.decisions import Decision, with_decisions
from bsc_core.errors import DataError
from bsc_core.evaluation import RetrievalTask, rank, retrieval_task
from bsc_core.evaluation.retrieval.adhoc_queries import adhoc_task
from bsc_core.neighbors import top_k


def small_task(gold, documents, absent=None):
    """Return a task in which query i has the gold positions gold[i]."""
    offsets = np.cumsum([0, *[len(result) for result in gold]])
    flat = np.asarray([position for result in gold for position in result], dtype=np.int32)
    ids = np.arange(len(gold), dtype=np.int32)
    return RetrievalTask(
        ids, 100 + np.arange(documents, dtype=np.int32), offsets, flat, np.asarray(absent or [0] * len(gold)), ids
    )


def slow_rank(queries, corpus, gold, cuts):
    """Sort all documents one query at a time, with gold documents last among ties."""
    first, reciprocal, precision = [], [], []
    for query, result in zip(queries, gold, strict=True):
        cosines = [query @ document / np.linalg.norm(query) / np.linalg.norm(document) for document in corpus]
        order = sorted(range(len(corpus)), key=lambda position: (-round(cosines[position], 6), position in result))
        ranks = [place for place, position in enumerate(order, start=1) if position in result]
        first.append(ranks[0] if ranks else 0)
        reciprocal.append(1 / ranks[0] if ranks else 0)
        precision.append(np.mean([(index + 1) / place for index, place in enumerate(ranks)]) if ranks else 0)
    metrics = {f"has_positive@{k}": np.mean([0 < place <= k for place in first]) for k in cuts}
    return metrics | {"mrr": np.mean(reciprocal), "map": np.mean(precision)}, first


@pytest.fixture
def vectors():
    generator = np.random.default_rng(11)
    return generator.normal(size=(20, 8)).astype(np.float32), generator.normal(size=(60, 8)).astype(np.float32)


def test_agrees_with_a_slow_ranking(vectors):
    queries, corpus = vectors
    corpus[10:20] = corpus[30:40] * 2  # equal cosines
    generator = np.random.default_rng(12)
    gold = [sorted(generator.choice(60, size=generator.integers(0, 4), replace=False).tolist()) for _ in range(20)]
    result = rank(queries, corpus, small_task(gold, 60), k=(1, 5, 20))
    expected, first = slow_rank(queries.astype(float), corpus.astype(float), gold, (1, 5, 20))
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert result.first_rank.tolist() == first


def test_agrees_with_the_evaluator_of_sentence_transformers(vectors):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import cos_sim

    queries, corpus = vectors
    gold = [[2 * query, 2 * query + 1] for query in range(20)]
    evaluator = InformationRetrievalEvaluator(
        {str(query): str(query) for query in range(20)},
        {str(position): str(position) for position in range(60)},
        {str(query): {str(position) for position in result} for query, result in enumerate(gold)},
        accuracy_at_k=[1, 5, 20],
        mrr_at_k=[60],
        map_at_k=[60],
    )
    cosines = cos_sim(queries, corpus)
    hits = [
        [{"corpus_id": str(place), "score": float(score)} for place, score in enumerate(row)] for row in cosines.numpy()
    ]
    expected = evaluator.compute_metrics(hits)
    metrics = rank(queries, corpus, small_task(gold, 60), k=(1, 5, 20)).metrics
    assert metrics["mrr"] == pytest.approx(expected["mrr@k"][60])
    assert metrics["map"] == pytest.approx(expected["map@k"][60])
    for cut in (1, 5, 20):
        assert metrics[f"has_positive@{cut}"] == pytest.approx(expected["accuracy@k"][cut])


def test_top_documents_are_the_best_in_order(vectors):
    queries, corpus = vectors
    result = rank(queries, corpus, small_task([[0]] * 20, 60), top=7)
    cosines = (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (
        corpus / np.linalg.norm(corpus, axis=1)[:, None]
    ).T
    expected = np.argsort(-cosines, axis=1)[:, :7]
    np.testing.assert_array_equal(result.top_positions, expected)
    np.testing.assert_array_equal(result.top_ids, expected + 100)
    np.testing.assert_allclose(result.top_scores, np.take_along_axis(cosines, expected, axis=1), rtol=1e-5)


def test_search_gives_what_rank_gives_and_stops_at_the_corpus(vectors):
    queries, corpus = vectors
    positions, scores = top_k(queries, corpus, 7)
    result = rank(queries, corpus, small_task([[0]] * 20, 60), top=7)
    np.testing.assert_array_equal(positions, result.top_positions)
    np.testing.assert_array_equal(scores, result.top_scores)
    assert top_k(queries, corpus[:3], 7)[0].shape == (20, 3)


def test_block_size_does_not_change_the_result(vectors, monkeypatch):
    queries, corpus = vectors
    task = small_task([[query] for query in range(20)], 60)
    whole = rank(queries, corpus, task)
    monkeypatch.setattr("bsc_core.neighbors.BLOCK_BYTES", 3 * 4 * 60)
    cut = rank(queries, corpus, task)
    assert cut.metrics == whole.metrics
    np.testing.assert_array_equal(cut.top_positions, whole.top_positions)


def test_lengths_of_vectors_do_not_matter(vectors):
    queries, corpus = vectors
    task = small_task([[query] for query in range(20)], 60)
    assert rank(queries * 7, corpus * np.arange(1, 61, dtype=np.float32)[:, None], task).metrics == rank(
        queries, corpus, task
    ).metrics  # fmt: skip


def test_queries_with_few_and_with_many_gold_documents_agree_with_a_slow_ranking(monkeypatch):
    generator = np.random.default_rng(3)
    queries, corpus = (generator.integers(-1, 2, size=(count, 4)).astype(np.float32) for count in (6, 300))
    gold = [sorted(generator.choice(300, count, replace=False).tolist()) for count in (1, 2, 17, 40, 290, 3)]
    task = small_task(gold, 300)
    result = rank(queries, corpus, task)
    monkeypatch.setattr("bsc_core.evaluation.retrieval.rank.FEW_GOLD", 1000)
    compared = rank(queries, corpus, task)
    assert result.metrics == compared.metrics
    assert result.first_rank.tolist() == compared.first_rank.tolist()


def test_the_number_of_gold_documents_is_limited(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text("query\tdocument\n" + "".join(f"q{n}\td\n" for n in range(4)))
    (tmp_path / "corpus.tsv").write_text("id\tdocument\n" + "".join(f"{n}\td\n" for n in range(5)))
    dataset = read_pairs(tmp_path / "pairs.tsv")
    corpus = read_corpus(tmp_path / "corpus.tsv")
    corpus = replace(corpus, texts=dataset.texts, document=np.full(5, dataset.document[0]), key=None)
    monkeypatch.setattr("bsc_core.evaluation.retrieval.rank.MAX_GOLD", 20)
    assert len(retrieval_task(dataset, corpus).gold) == 20
    assert len(adhoc_task([["A"]] * 4, ["a"] * 5).gold) == 20
    monkeypatch.setattr("bsc_core.evaluation.retrieval.rank.MAX_GOLD", 19)
    for make in (lambda: retrieval_task(dataset, corpus), lambda: adhoc_task([["A"]] * 4, ["a"] * 5)):
        with pytest.raises(DataError, match="more than 19 relevant documents"):
            make()


def test_a_gold_document_is_last_among_equals():
    same = np.ones((5, 3), dtype=np.float32)
    result = rank(same[:1], same, small_task([[0]], 5), k=(1, 5))
    assert result.first_rank.tolist() == [5]


def test_a_zero_query_is_equally_far_from_everything():
    corpus = np.eye(3, dtype=np.float32)
    result = rank(np.zeros((1, 3), dtype=np.float32), corpus, small_task([[1]], 3))
    assert result.first_rank.tolist() == [3]
    assert result.top_scores.tolist() == [[0, 0, 0]]


def test_a_query_whose_gold_is_missing_is_a_miss():
    eye = np.eye(2, dtype=np.float32)
    result = rank(eye, eye, small_task([[0], []], 2, absent=[0, 1]), k=(1,))
    assert result.metrics["has_positive@1"] == 0.5
    assert result.metrics["mrr"] == 0.5
    assert result.metrics["gold_missing"] == 1
    assert result.first_rank.tolist() == [1, 0]


def test_a_gold_document_that_the_corpus_lacks_counts_against_map():
    eye = np.eye(2, dtype=np.float32)
    result = rank(eye[:1], eye, small_task([[0]], 2, absent=[1]), k=(1,))
    assert result.metrics["map"] == 0.5
    assert result.metrics["mrr"] == 1.0


def test_no_queries_give_undefined_means():
    none = np.zeros((0, 2), dtype=np.float32)
    metrics = rank(none, np.eye(2, dtype=np.float32), small_task([], 2), k=(1,)).metrics
    assert metrics["mrr"] is None
    assert metrics["queries"] == 0


def test_vectors_that_are_not_finite_are_refused():
    broken = np.asarray([[1, 0], [np.nan, 0]], dtype=np.float32)
    with pytest.raises(DataError, match="row 1 is not finite"):
        rank(broken, np.eye(2, dtype=np.float32), small_task([[0], [1]], 2))


def test_a_wrong_number_of_vectors_is_refused():
    eye = np.eye(2, dtype=np.float32)
    with pytest.raises(DataError, match="2 x 2 vectors for 1 queries"):
        rank(eye, eye, small_task([[0]], 2))


def corpus_of(dataset, texts, keys=None):
    """Return a corpus of some texts of the dataset."""
    ids = [dataset.texts.texts.index(text) for text in texts]
    report = ReadReport("corpus in memory", len(ids), len(ids), (), dataset.report.columns, False, "row")
    return Corpus(dataset.texts, np.asarray(ids, dtype=np.int32), keys, report)


def test_gold_documents_match_by_text():
    dataset = PairDataset.from_pairs(["a", "b", "a", "c"], ["one", "two", "three", "four"], [1, 1, 1, 0])
    task = retrieval_task(dataset, corpus_of(dataset, ["three", "four", "one"]))
    assert dataset.texts.take(task.query) == ["a", "b"]  # c has no positive pair
    assert task.relevant(0).tolist() == [0, 2]
    assert task.relevant(1).tolist() == []
    assert task.missing == 1


def test_gold_documents_match_by_key_if_both_have_keys():
    dataset = PairDataset.from_pairs(["a", "b"], ["one", "two"])
    dataset = replace(dataset, document_key=("k2", ""))
    task = retrieval_task(dataset, corpus_of(dataset, ["one", "two", "one"], ("k1", "k9", "k2")))
    assert task.relevant(0).tolist() == [2]
    assert task.relevant(1).tolist() == [1]  # matched by text without a key


def test_queries_of_equal_text_and_other_ids_stay_apart():
    dataset = PairDataset.from_pairs(["a", "a"], ["one", "two"], query_ids=["q1", "q2"])
    assert len(retrieval_task(dataset).query) == 2


def test_without_a_corpus_the_documents_of_the_dataset_are_searched():
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["one", "two", "one"])
    task = retrieval_task(dataset)
    assert dataset.texts.take(task.corpus) == ["one", "two"]
    assert task.missing == 0


def test_every_gold_claim_of_the_real_data_is_in_its_corpus(shared_data):
    folder = shared_data / "pfcc_s"
    columns = {"query": "query", "document": "doc", "query_id": "query_id", "document_id": "doc_id", "split": "split"}
    pairs = read_pairs(folder / "pairs.tsv.gz", columns)
    corpus = read_corpus(folder / "corpus.tsv.gz", {"document": ["title", "text"], "document_id": "doc_id"})
    from bsc_core.data.dataset import merge_text_tables

    texts, (pair_ids, corpus_ids) = merge_text_tables([pairs.texts, corpus.texts])
    task = retrieval_task(pairs.reindex_texts(texts, pair_ids), corpus.reindex_texts(texts, corpus_ids))
    assert task.missing == 0
    assert len(task.corpus) == 10_369


def test_a_corpus_document_with_the_id_of_a_decided_positive_is_relevant():
    dataset = PairDataset.from_pairs(["a", "b", "c", "d"], ["one", "two", "longer two", "other"])
    dataset = replace(dataset, document_key=("k1", "k2", "", "")).take([0, 1])
    dataset = with_decisions(dataset, [Decision("a", "two", "positive")])
    task = retrieval_task(dataset, corpus_of(dataset, ["one", "longer two", "other"], ("k1", "k2", "k3")))
    assert [task.relevant(query).tolist() for query in range(2)] == [[0, 1], [1]]


def test_a_corpus_document_without_an_id_is_not_the_one_of_a_decided_positive():
    dataset = PairDataset.from_pairs(["a", "b", "c", "d"], ["one", "two", "no id", "other"])
    dataset = replace(dataset, document_key=("k1", "", "", "")).take([0, 1])
    dataset = with_decisions(dataset, [Decision("a", "two", "positive")])
    task = retrieval_task(dataset, corpus_of(dataset, ["one", "two", "no id"], ("k1", "k2", "")))
    assert task.relevant(0).tolist() == [0, 1]

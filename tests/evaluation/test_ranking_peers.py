"""Tests of per-query ranking metrics, against ir_measures (trec_eval and gdeval definitions) and loops."""

from __future__ import annotations

import math

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Success, nDCG

from bsc_core.data.dataset import PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation import QueryValues, RetrievalTask, query_ranking_metrics, rank, ranking_metrics, retrieval_task

CUTS = (1, 3, 5, 10)
HIGHEST = 4
PEERS = {
    "map": AP,
    "mrr": RR,
    **{f"recall@{cut}": R @ cut for cut in CUTS},
    **{f"has_positive@{cut}": Success @ cut for cut in CUTS},
    **{f"ndcg@{cut}": nDCG @ cut for cut in CUTS},
    **{f"precision@{cut}": P @ cut for cut in CUTS},
}


def peer_values(query, names, scores, grades):
    """Return {metric: {query: value}} of ir_measures, which breaks ties by document name, later names first."""
    result = {}
    for prefix, gains in (("", grades), ("exponential ", 2**grades - 1)):
        judged = [ir_measures.Qrel(str(q), name, int(gain)) for q, name, gain in zip(query, names, gains, strict=True)]
        run = [ir_measures.ScoredDoc(str(q), n, float(score)) for q, n, score in zip(query, names, scores, strict=True)]
        for metric in ir_measures.iter_calc(list(PEERS.values()), judged, run):
            result.setdefault(f"{prefix}{metric.measure}", {})[metric.query_id] = metric.value
    return result


def assert_equal_by_query(measured: QueryValues, peers):
    """Compare metrics by query, with precision divided as in trec_eval."""
    exponential = {f"ndcg_exponential@{cut}": f"exponential {nDCG @ cut}" for cut in CUTS}
    for name, measure in {name: str(measure) for name, measure in PEERS.items()}.items() | exponential.items():
        kind, _, cut = name.partition("@")
        values = measured.padded_precision(int(cut)) if kind == "precision" else measured.values[name]
        expected = [peers[measure][str(query)] for query in measured.query]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_lists_equal_ir_measures_query_by_query(seed):
    generator = np.random.default_rng(seed)
    query = np.repeat(np.arange(60), generator.integers(1, 30, 60))
    scores = generator.permutation(len(query)).astype(float)
    grades = generator.integers(0, HIGHEST + 1, len(query)) * (generator.random(len(query)) < 0.5)
    names = [f"d{place:05}" for place in range(len(query))]
    measured = query_ranking_metrics(query, scores, grades > 0, k=CUTS, grades=grades)
    assert_equal_by_query(measured, peer_values(query, names, scores, grades))


def test_ties_equal_ir_measures_if_relevant_documents_come_last():
    generator = np.random.default_rng(5)
    query = np.repeat(np.arange(40), 12)
    scores, grades = generator.integers(0, 4, len(query)), generator.integers(0, HIGHEST + 1, len(query))
    names = [f"{9 - grade}-{place:05}" for place, grade in enumerate(grades)]
    measured = query_ranking_metrics(query, scores, grades > 0, k=CUTS, grades=grades)
    assert_equal_by_query(measured, peer_values(query, names, scores, grades))


@pytest.mark.parametrize("documents", [30, 700])
def test_a_corpus_equals_ir_measures_query_by_query(documents):
    generator = np.random.default_rng(documents)
    queries, corpus = (generator.normal(size=(rows, 6)).astype(np.float32) for rows in (25, documents))
    gold = [np.sort(generator.choice(documents, generator.integers(1, 6), replace=False)) for _ in queries]
    grades = [generator.integers(1, HIGHEST + 1, len(result)) for result in gold]
    offsets = np.cumsum([0, *map(len, gold)])
    ids = np.arange(25, dtype=np.int32)
    task = RetrievalTask(
        ids, np.arange(documents), offsets, np.concatenate(gold), ids * 0, ids, np.concatenate(grades).astype(float)
    )
    measured = rank(queries, corpus, task, k=CUTS).per_query
    cosines = (queries / np.linalg.norm(queries, axis=1)[:, None]).astype(float) @ (
        corpus / np.linalg.norm(corpus, axis=1)[:, None]
    ).astype(float).T
    judged = np.zeros((25, documents), dtype=int)
    for query, (result, grade) in enumerate(zip(gold, grades, strict=True)):
        judged[query, result] = grade
    names = [f"d{place}" for _ in ids for place in range(documents)]
    owner = np.repeat(ids, documents)
    assert_equal_by_query(measured, peer_values(owner, names, cosines.ravel(), judged.ravel()))


candidates = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=25)


def slow_ndcg(ranked, cut, gain):
    worth = [gain(grade) / math.log2(place + 2) for place, grade in enumerate(ranked[:cut])]
    ideal = [gain(grade) / math.log2(place + 2) for place, grade in enumerate(sorted(ranked, reverse=True)[:cut])]
    return sum(worth) / sum(ideal) if sum(ideal) else 0.0


@settings(max_examples=80)
@given(candidates)
def test_ndcg_and_recall_agree_with_loops_ties_at_their_worst(rows):
    query, scores, grades = (np.asarray(column) for column in zip(*rows, strict=True))
    measured = query_ranking_metrics(query, scores, grades > 1, k=(1, 2, 9), grades=grades)
    for place, wanted in enumerate(measured.query):
        own = sorted((row for row in rows if row[0] == wanted), key=lambda row: (-row[1], row[2]))
        ranked = [grade for _, _, grade in own]
        positives = sum(grade > 1 for grade in ranked)
        assert measured.positives[place] == positives
        for cut in (1, 2, 9):
            hits = sum(grade > 1 for grade in ranked[:cut])
            linear, exponential = slow_ndcg(ranked, cut, float), slow_ndcg(ranked, cut, lambda grade: 2**grade - 1)
            assert measured.values[f"recall@{cut}"][place] == pytest.approx(hits / positives if positives else 0)
            assert measured.values[f"ndcg@{cut}"][place] == pytest.approx(linear)
            assert measured.values[f"ndcg_exponential@{cut}"][place] == pytest.approx(exponential)


@settings(max_examples=40)
@given(candidates, st.integers(1, 5))
def test_raising_a_relevant_candidate_never_lowers_a_metric(rows, lift):
    query, scores, grades = (np.asarray(column) for column in zip(*rows, strict=True))
    lifted = scores.copy()
    lifted[int(np.argmax(grades))] += lift
    if not (grades > 0).any():
        return
    before, after = (
        query_ranking_metrics(query, given_scores, grades > 0, grades=grades) for given_scores in (scores, lifted)
    )
    for name, values in before.values.items():
        assert (after.values[name] >= values - 1e-12).all() or "ndcg" in name or "map" in name
    for name in ("map", "mrr"):
        assert after.means()[name] >= before.means()[name] - 1e-12


def test_means_over_queries_are_the_metrics_and_skipping_leaves_out_those_without_positives():
    query, scores, relevant = [0, 0, 1, 1, 2], [0.9, 0.1, 0.3, 0.2, 1], [False, True, True, False, False]
    measured = query_ranking_metrics(query, scores, relevant, k=(1,))
    for skip in (False, True):
        metrics = ranking_metrics(query, scores, relevant, k=(1,), skip_without_positive=skip)
        means = measured.means(skip_without_positive=skip)
        assert {name: metrics[name] for name in means} == means
        assert metrics["queries"] == (2 if skip else 3)
        assert metrics["queries_without_positive"] == 1
    assert measured.values["mrr"].tolist() == [0.5, 1, 0]


def test_without_a_positive_all_means_are_none():
    metrics = ranking_metrics([0, 1], [0.3, 0.4], [False, False], k=(1, 5))
    assert {metrics[name] for name in ("map", "mrr", "precision@1", "recall@5", "has_positive@5")} == {None}
    assert metrics["queries"] == 2
    skipped = ranking_metrics([0, 1], [0.3, 0.4], [False, False], k=(1,), skip_without_positive=True)
    assert skipped["map"] is None
    assert skipped["queries"] == 0


def test_a_k_above_the_list_takes_the_list():
    metrics = ranking_metrics([0, 0], [0.9, 0.1], [True, False], k=(2, 100))
    assert metrics["precision@100"] == metrics["precision@2"] == 0.5
    assert query_ranking_metrics([0, 0], [0.9, 0.1], [True, False], k=(100,)).padded_precision(100).tolist() == [0.01]


@pytest.mark.parametrize("grade", [-1, math.nan, math.inf, 2000])
def test_an_invalid_grade_is_refused_with_its_index(grade):
    with pytest.raises(DataError, match=r"grades\[1\] is"):
        ranking_metrics([0, 0], [0.5, 0.2], [True, False], grades=[1, grade])


def test_the_corpus_grades_of_a_task_are_the_labels_of_its_positive_pairs():
    dataset = PairDataset.from_pairs(["a", "a", "b", "b"], ["one", "two", "two", "three"], [1, 0.7, 0.9, 0.2])
    task = retrieval_task(dataset)
    assert task.grades.tolist() == pytest.approx([1, 0.7, 0.9])
    eye = np.eye(3, dtype=np.float32)
    result = rank(np.stack([eye[1], eye[1]]), eye, task, k=(1,))
    assert result.per_query.values["ndcg@1"].tolist() == pytest.approx([0.7, 1.0])
    assert result.per_query.query == [0, 2]

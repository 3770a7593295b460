"""Tests of P and S: against loops over the paper's equations, chance levels of shuffled pools, and real text."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import polarity_task, sample_pool
from bsc_core.evaluation.metrics.polarity import linear_weights, uniform_weights

WEIGHTS = {"uniform": uniform_weights, "linear": linear_weights}


def cosine(left, right):
    lengths = np.linalg.norm(left) * np.linalg.norm(right)
    return float(left @ right) / lengths if lengths else 0.0


def slow_scores(model, reference, classes, weights):
    """Compute equations 1 and 2 one query at a time, for vectors without ties."""
    polarity, semantic = [], []
    for query in range(len(model[0])):
        cosines = [cosine(model[0][query], other) for other in model[1]]
        near = sorted(range(len(cosines)), key=lambda place: -cosines[place])[: len(weights)]
        polarity.append(sum(w * (classes[0][query] == classes[1][i]) for w, i in zip(weights, near, strict=True)))
        semantic.append(
            sum(w * cosine(reference[0][query], reference[1][i]) for w, i in zip(weights, near, strict=True))
        )
    return polarity, semantic


@pytest.fixture
def sentences():
    """Return model vectors (8 dimensions), reference vectors (5 dimensions) and four classes."""
    generator = np.random.default_rng(21)
    sides = [[generator.normal(size=(rows, size)).astype(np.float32) for rows in (30, 150)] for size in (8, 5)]
    classes = [generator.choice(["news", "sport", "weather", "none"], rows) for rows in (30, 150)]
    return sides[0], sides[1], classes


@pytest.mark.parametrize("weights", ["uniform", "linear"])
@pytest.mark.parametrize("k", [1, 7, 16, 150])
def test_agrees_with_the_papers_equations(sentences, weights, k):
    model, reference, classes = sentences
    scores = polarity_task(reference, classes, k=k, weights=weights).evaluate(*model)
    polarity, semantic = slow_scores(model, reference, classes, WEIGHTS[weights](k))
    np.testing.assert_allclose(scores.polarity, polarity, atol=1e-6)
    np.testing.assert_allclose(scores.semantic, semantic, atol=1e-6)
    own = slow_scores(reference, reference, classes, WEIGHTS[weights](k))
    np.testing.assert_allclose(scores.reference_polarity, own[0], atol=1e-6)
    np.testing.assert_allclose(scores.reference_semantic, own[1], atol=1e-6)


def test_golden_weights_of_the_paper():
    weights = linear_weights(16)
    assert weights[0] == pytest.approx(0.117647, abs=1e-6)
    assert weights[15] == pytest.approx(0.00735294, abs=1e-8)
    assert weights.sum() == pytest.approx(1)
    assert uniform_weights(16).tolist() == [1 / 16] * 16


def test_k_of_the_full_pool_scores_the_floors(sentences):
    _, reference, classes = sentences
    task = polarity_task(reference, classes, k=150)
    scores = task.evaluate(*reference)
    assert scores.polarity.mean() == pytest.approx(scores.polarity_floor)
    assert scores.semantic.mean() == pytest.approx(scores.semantic_floor)


def test_a_shuffled_pool_scores_its_floors_on_average(sentences):
    model, reference, classes = sentences
    task, generator = polarity_task(reference, classes, k=10), np.random.default_rng(3)
    shuffled = [task.evaluate(model[0], model[1][generator.permutation(150)]) for _ in range(60)]
    assert np.mean([scores.polarity for scores in shuffled]) == pytest.approx(task.floors[0], abs=0.01)
    assert np.mean([scores.semantic for scores in shuffled]) == pytest.approx(task.floors[1], abs=0.01)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from(["uniform", "linear"]))
def test_pool_order_does_not_change_the_scores_despite_ties(seed, weights):
    generator = np.random.default_rng(seed)
    vectors = [generator.integers(-1, 2, (rows, 2)).astype(np.float32) for rows in (6, 40)]  # few directions
    reference = [generator.normal(size=(rows, 3)).astype(np.float32) for rows in (6, 40)]
    classes = [generator.integers(0, 3, rows) for rows in (6, 40)]
    moved = generator.permutation(40)
    first = polarity_task(reference, classes, k=5, weights=weights).evaluate(*vectors)
    turned = polarity_task((reference[0], reference[1][moved]), (classes[0], classes[1][moved]), k=5, weights=weights)
    second = turned.evaluate(vectors[0], vectors[1][moved])
    np.testing.assert_allclose(first.polarity, second.polarity, atol=1e-6)
    np.testing.assert_allclose(first.semantic, second.semantic, atol=1e-6)


def test_a_collapsed_model_scores_the_floors_of_every_query(sentences):
    _, reference, classes = sentences
    task = polarity_task(reference, classes, k=16)
    scores = task.evaluate(np.ones((30, 4), dtype=np.float32), np.ones((150, 4), dtype=np.float32))
    shares = [np.mean(classes[1] == own) for own in classes[0]]
    np.testing.assert_allclose(scores.polarity, shares)
    assert scores.semantic.mean() == pytest.approx(scores.semantic_floor)


def test_a_class_with_a_very_long_name_needs_no_more_memory(sentences):
    model, reference, classes = sentences
    named = [[*side[:-1].tolist(), "long" * 25_000] for side in classes]
    tracemalloc.start()
    scores = polarity_task(reference, named, k=7).evaluate(*model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 2**20  # a table of equally long names has 72 MB
    numbered = [[*side[:-1].tolist(), "other"] for side in classes]
    assert scores.polarity.tolist() == polarity_task(reference, numbered, k=7).evaluate(*model).polarity.tolist()


def test_a_collapsed_model_is_evaluated_in_bounded_memory():
    generator = np.random.default_rng(6)
    reference = [generator.normal(size=(rows, 64)).astype(np.float32) for rows in (300, 8000)]
    task = polarity_task(reference, [generator.integers(0, 2, rows) for rows in (300, 8000)])
    task.evaluate(*reference)
    tracemalloc.start()
    scores = task.evaluate(np.ones((300, 2), dtype=np.float32), np.ones((8000, 2), dtype=np.float32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scores.polarity.mean() == pytest.approx(scores.polarity_floor)
    assert peak < 100 * 2**20  # all neighbors of all queries would take 614 MB


def test_no_model_reaches_a_higher_semantic_score_than_the_reference(sentences):
    model, reference, classes = sentences
    for weights in ("uniform", "linear"):
        scores = polarity_task(reference, classes, k=9, weights=weights).evaluate(*model)
        assert (scores.semantic <= scores.reference_semantic + 1e-6).all()
        assert scores.semantic.mean() < scores.reference_semantic.mean()


def test_the_pool_is_five_times_the_queries_or_all_there_is():
    rows = sample_pool(67_349, 872)
    assert len(rows) == 4360
    assert (np.diff(rows) > 0).all()
    assert sample_pool(67_349, 872).tolist() == rows.tolist()
    assert sample_pool(67_349, 872, seed=1).tolist() != rows.tolist()
    assert sample_pool(100, 872).tolist() == list(range(100))


def test_one_query_has_its_scores(sentences):
    model, reference, classes = sentences
    one = polarity_task((reference[0][:1], reference[1]), (classes[0][:1], classes[1])).evaluate(model[0][:1], model[1])
    whole = polarity_task(reference, classes).evaluate(*model)
    assert one.polarity[0] == pytest.approx(whole.polarity[0])
    assert one.semantic.shape == (1,)


def test_invalid_polarity_input_is_refused(sentences):
    model, reference, classes = sentences
    with pytest.raises(DataError, match="k is 151 and the pool has 150"):
        polarity_task(reference, classes, k=151)
    with pytest.raises(DataError, match="30 queries and 150 sentences in the pool, but 29 and 150 classes"):
        polarity_task(reference, (classes[0][1:], classes[1]))
    with pytest.raises(DataError, match="30 queries and 149 sentences in the pool, the reference 30 and 150"):
        polarity_task(reference, classes).evaluate(model[0], model[1][1:])
    with pytest.raises(DataError, match="there is no query"):
        polarity_task((reference[0][:0], reference[1]), (classes[0][:0], classes[1]))
    model[1][3, 0] = np.nan
    with pytest.raises(DataError, match="row 3 is not finite"):
        polarity_task(reference, classes).evaluate(*model)


def test_sst2_sentences_that_share_words_share_their_class_more_than_chance(shared_data):
    from sklearn.feature_extraction.text import TfidfVectorizer

    from bsc_core.evaluation import read_probe_task

    task = read_probe_task("SST2", shared_data)
    words = TfidfVectorizer(max_features=1000).fit_transform(task.texts)
    queries, train = task.rows("dev"), task.rows("train")
    pool = train[sample_pool(len(train), len(queries))]
    vectors = [words[task.left[rows]].toarray().astype(np.float32) for rows in (queries, pool)]
    scores = polarity_task(vectors, (task.classes[queries], task.classes[pool])).evaluate(*vectors)
    assert len(pool) == 4360
    assert scores.polarity_floor == pytest.approx(0.5, abs=0.02)
    assert scores.polarity.mean() > scores.polarity_floor + 0.03
    assert scores.semantic.mean() == pytest.approx(scores.reference_semantic.mean())
    assert scores.semantic.mean() > scores.semantic_floor + 0.1

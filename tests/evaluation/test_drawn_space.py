"""How sure alignment, uniformity and anisotropy are, against loops over the pairs of each draw."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bsc_core.errors import DataError
from bsc_core.evaluation import alignment, anisotropy, uniformity
from bsc_core.evaluation.bootstrap import draw_weights
from bsc_core.evaluation.drawn_space import drawn_alignment, drawn_anisotropy, drawn_uniformity
from bsc_core.evaluation.drawn_values import DrawnValue, compare_drawn, drawn_average, drawn_mean

DRAWS = 12


@pytest.fixture
def vectors():
    return np.random.default_rng(7).normal(size=(15, 5)).astype(np.float32) + 0.3


def units(vectors):
    return vectors.astype(float) / np.linalg.norm(vectors, axis=1)[:, None]


def texts_of_each_draw(count, seed):
    for _, weights in draw_weights(count, DRAWS, seed):
        for row in np.rint(weights * count).astype(int):
            yield [text for text, times in enumerate(row) for _ in range(times)]


def slow_mean(rows, value, texts):
    return np.mean([value(rows[one], rows[two]) for one, two in itertools.combinations(texts, 2) if one != two])


def test_a_draw_of_texts_counts_each_pair_of_different_ones(vectors):
    rows = units(vectors)
    draws = list(texts_of_each_draw(len(rows), seed=4))
    spread = drawn_uniformity(vectors, seed=4, draws=DRAWS)
    expected = [math.log(slow_mean(rows, lambda x, y: math.exp(-2 * np.sum((x - y) ** 2)), texts)) for texts in draws]
    np.testing.assert_allclose(spread.draws, expected, rtol=1e-4)
    cosine = drawn_anisotropy(vectors, seed=4, draws=DRAWS)
    np.testing.assert_allclose(cosine.draws, [slow_mean(rows, np.dot, texts) for texts in draws], atol=1e-6)
    assert (spread.value, cosine.value) == (uniformity(vectors, seed=4), anisotropy(vectors))
    assert (spread.rows, cosine.rows) == (15, 15)


def test_uniformity_in_blocks_is_drawn_as_in_one(vectors, monkeypatch):
    whole = drawn_uniformity(vectors, seed=4, draws=DRAWS).draws
    monkeypatch.setattr("bsc_core.evaluation.drawn_space.ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(drawn_uniformity(vectors, seed=4, draws=DRAWS).draws, whole, rtol=1e-6)
    assert drawn_uniformity(vectors, seed=4, most=6).rows == 6


def test_pairs_of_one_query_are_drawn_together(vectors):
    left, right, groups = vectors[:5], vectors[5:10], np.array([3, 3, 8, 8, 9])
    lengths, members = alignment(left, right), [[0, 1], [2, 3], [4]]
    found = drawn_alignment(left, right, groups, seed=2, draws=DRAWS)
    expected = [
        np.mean([lengths[row] for group in drawn for row in members[group]]) for drawn in texts_of_each_draw(3, seed=2)
    ]
    np.testing.assert_allclose(found.draws, expected)
    assert (found.value, found.rows) == (pytest.approx(lengths.mean()), 3)
    assert drawn_alignment(left, right, np.zeros(5), seed=2).interval.low is None
    with pytest.raises(DataError, match="there is no positive pair"):
        drawn_alignment(left[:0], right[:0], groups[:0], seed=2)


def test_a_model_does_not_differ_from_itself_and_one_that_shrank_does(vectors):
    near = vectors + 3
    for measured in (drawn_uniformity, drawn_anisotropy):
        first, second = measured(vectors, seed=0), measured(near, seed=0)
        same = compare_drawn(first, measured(vectors, seed=0), seed=0)
        assert (same.difference.value, same.difference.low, same.p, same.is_difference) == (0, 0, None, False)
        gained = compare_drawn(first, second, seed=0)
        assert gained.is_difference
        assert gained.difference.low > 0
        assert gained.queries == 15


def test_models_that_differ_by_chance_alone_are_rarely_called_different():
    called = np.zeros(2)
    for trial in range(60):
        sides = np.random.default_rng(trial).normal([1, 0.5, 0, 0], size=(2, 40, 4)).astype(np.float32)
        for place, measured in enumerate((drawn_uniformity, drawn_anisotropy)):
            first, second = (measured(side, seed=trial, draws=200) for side in sides)
            called[place] += compare_drawn(first, second, seed=trial).is_difference
    assert (called <= 9).all()  # 3 are expected


def test_where_nothing_can_be_drawn_there_is_a_value_and_no_interval(vectors):
    assert drawn_uniformity(vectors[:1], seed=0) is None
    assert drawn_anisotropy(vectors[:1], seed=0) is None
    assert drawn_mean(np.array([0.5]), seed=0).interval.low is None
    alone = DrawnValue(0.5, None, 1)
    assert compare_drawn(alone, drawn_mean(np.array([0.0, 1.0]), seed=0), seed=0).p is None
    assert drawn_average([alone, drawn_mean(np.array([0.0, 1.0]), seed=0)]).draws is None


def test_an_average_moves_less_than_each_of_its_data_sets():
    values = np.random.default_rng(0).random((2, 200))
    parts = [drawn_mean(own, seed=place) for place, own in enumerate(values)]
    together = drawn_average(parts)
    assert together.value == pytest.approx(values.mean())
    assert together.rows == 400
    expected = math.sqrt(sum(own.var() / 200 for own in values)) / 2
    assert together.draws.std() == pytest.approx(expected, rel=0.1)

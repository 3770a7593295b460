"""Tests of bootstrap intervals of alignment, uniformity and anisotropy, against loops over the resampled pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bsc_core.errors import DataError
from bsc_core.evaluation import alignment, anisotropy, uniformity
from bsc_core.evaluation.stats.bootstrap import resample_weights
from bsc_core.evaluation.stats.bootstrap_values import (
    BootstrapValue,
    average_values,
    bootstrap_alignment,
    bootstrap_anisotropy,
    bootstrap_uniformity,
    bootstrap_value,
    compare_values,
)

RESAMPLES = 12


@pytest.fixture
def vectors():
    return np.random.default_rng(7).normal(size=(15, 5)).astype(np.float32) + 0.3


def units(vectors):
    return vectors.astype(float) / np.linalg.norm(vectors, axis=1)[:, None]


def texts_of_each_draw(count, seed):
    for _, weights in resample_weights(count, RESAMPLES, seed):
        for row in np.rint(weights * count).astype(int):
            yield [text for text, times in enumerate(row) for _ in range(times)]


def slow_mean(rows, value, texts):
    return np.mean([value(rows[one], rows[two]) for one, two in itertools.combinations(texts, 2) if one != two])


def test_resampled_texts_count_each_pair_of_different_texts(vectors):
    rows = units(vectors)
    draws = list(texts_of_each_draw(len(rows), seed=4))
    spread = bootstrap_uniformity(vectors, seed=4, n_resamples=RESAMPLES)
    expected = [math.log(slow_mean(rows, lambda x, y: math.exp(-2 * np.sum((x - y) ** 2)), texts)) for texts in draws]
    np.testing.assert_allclose(spread.resamples, expected, rtol=1e-4)
    cosine = bootstrap_anisotropy(vectors, seed=4, n_resamples=RESAMPLES)
    np.testing.assert_allclose(cosine.resamples, [slow_mean(rows, np.dot, texts) for texts in draws], atol=1e-6)
    assert (spread.value, cosine.value) == (uniformity(vectors, seed=4), anisotropy(vectors))
    assert (spread.rows, cosine.rows) == (15, 15)


def test_block_size_does_not_change_resampled_uniformity(vectors, monkeypatch):
    whole = bootstrap_uniformity(vectors, seed=4, n_resamples=RESAMPLES).resamples
    monkeypatch.setattr("bsc_core.evaluation.stats.bootstrap_values.ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(bootstrap_uniformity(vectors, seed=4, n_resamples=RESAMPLES).resamples, whole, rtol=1e-6)
    assert bootstrap_uniformity(vectors, seed=4, max_texts=6).rows == 6


def test_pairs_of_one_query_are_resampled_together(vectors):
    left, right, groups = vectors[:5], vectors[5:10], np.array([3, 3, 8, 8, 9])
    lengths, members = alignment(left, right), [[0, 1], [2, 3], [4]]
    result = bootstrap_alignment(left, right, groups, seed=2, n_resamples=RESAMPLES)
    expected = [
        np.mean([lengths[row] for group in drawn for row in members[group]]) for drawn in texts_of_each_draw(3, seed=2)
    ]
    np.testing.assert_allclose(result.resamples, expected)
    assert (result.value, result.rows) == (pytest.approx(lengths.mean()), 3)
    assert bootstrap_alignment(left, right, np.zeros(5), seed=2).interval.low is None
    with pytest.raises(DataError, match="there is no positive pair"):
        bootstrap_alignment(left[:0], right[:0], groups[:0], seed=2)


def test_a_model_equals_itself_and_differs_from_a_collapsed_one(vectors):
    near = vectors + 3
    for measured in (bootstrap_uniformity, bootstrap_anisotropy):
        first, second = measured(vectors, seed=0), measured(near, seed=0)
        same = compare_values(first, measured(vectors, seed=0), seed=0)
        assert (same.difference.value, same.difference.low, same.p, same.significant) == (0, 0, None, False)
        gained = compare_values(first, second, seed=0)
        assert gained.significant
        assert gained.difference.low > 0
        assert gained.queries == 15


def test_models_that_differ_by_chance_are_rarely_significant():
    called = np.zeros(2)
    for trial in range(60):
        sides = np.random.default_rng(trial).normal([1, 0.5, 0, 0], size=(2, 40, 4)).astype(np.float32)
        for place, measured in enumerate((bootstrap_uniformity, bootstrap_anisotropy)):
            first, second = (measured(side, seed=trial, n_resamples=200) for side in sides)
            called[place] += compare_values(first, second, seed=trial).significant
    assert (called <= 9).all()  # 3 are expected


def test_a_single_row_has_a_value_and_no_interval(vectors):
    assert bootstrap_uniformity(vectors[:1], seed=0) is None
    assert bootstrap_anisotropy(vectors[:1], seed=0) is None
    assert bootstrap_value(np.array([0.5]), seed=0).interval.low is None
    alone = BootstrapValue(0.5, None, 1)
    assert compare_values(alone, bootstrap_value(np.array([0.0, 1.0]), seed=0), seed=0).p is None
    assert average_values([alone, bootstrap_value(np.array([0.0, 1.0]), seed=0)]).resamples is None


def test_an_average_varies_less_than_each_of_its_data_sets():
    values = np.random.default_rng(0).random((2, 200))
    parts = [bootstrap_value(own, seed=place) for place, own in enumerate(values)]
    together = average_values(parts)
    assert together.value == pytest.approx(values.mean())
    assert together.rows == 400
    expected = math.sqrt(sum(own.var() / 200 for own in values)) / 2
    assert together.resamples.std() == pytest.approx(expected, rel=0.1)

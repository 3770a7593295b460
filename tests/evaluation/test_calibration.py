"""Tests of the share of positives by score, against scikit-learn and the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import calibration_curve

pairs = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=50)


def test_bins_of_distinct_scores_are_those_of_scikit_learn():
    from sklearn.calibration import calibration_curve as peer

    generator = np.random.default_rng(0)
    scores = generator.permutation(400) / 400
    positive = generator.random(400) < scores
    curve = calibration_curve(scores, positive, bins=8)
    share, mean = peer(positive, scores, n_bins=8, strategy="quantile")
    assert curve.pairs.tolist() == [50] * 8
    np.testing.assert_allclose(curve.share, share)
    np.testing.assert_allclose(curve.score, mean)


@settings(max_examples=60)
@given(pairs, st.integers(1, 8), st.randoms(use_true_random=False))
def test_equal_scores_share_a_bin_and_no_pair_is_lost(rows, bins, chooser):
    shuffled = rows.copy()
    chooser.shuffle(shuffled)
    curves = [calibration_curve(*zip(*each, strict=True), bins=bins) for each in (rows, shuffled)]
    scores, positive = (np.asarray(column) for column in zip(*rows, strict=True))
    curve = curves[0]
    np.testing.assert_allclose(curve.share, curves[1].share)
    assert curve.pairs.sum() == len(rows)
    assert len(curve.pairs) <= min(bins, len(set(scores.tolist())))
    assert (curve.share * curve.pairs).sum() == pytest.approx(positive.sum())
    assert (curve.score * curve.pairs).sum() == pytest.approx(scores.sum())
    assert (np.diff(curve.score) > 0).all()
    assert (curve.low <= curve.share + 1e-12).all()
    assert (curve.share <= curve.high + 1e-12).all()


def test_a_score_that_is_the_chance_has_no_error_and_one_that_exaggerates_has():
    generator = np.random.default_rng(1)
    chance = generator.random(40_000)
    positive = generator.random(40_000) < chance
    assert calibration_curve(chance, positive).error < 0.01
    assert calibration_curve(np.clip(2 * chance - 0.5, 0, 1), positive).error > 0.05
    assert calibration_curve(2 * chance - 1, positive).error is None


def test_the_interval_of_a_share_is_wilsons():
    from scipy.stats import binomtest

    curve = calibration_curve([0.5] * 9, [True] * 3 + [False] * 6)
    expected = binomtest(3, 9).proportion_ci(method="wilson")
    assert (curve.low[0], curve.high[0]) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("scores", "positive", "bins", "message"),
    [([], [], 3, "0 scores"), ([0.1], [1, 0], 3, "1 scores, 2 labels"), ([0.1], [1], 0, "0 bins"),
     ([math.nan], [1], 3, r"scores\[0\] is NaN")],
)  # fmt: skip
def test_what_has_no_curve_is_refused(scores, positive, bins, message):
    with pytest.raises(DataError, match=message):
        calibration_curve(scores, positive, bins=bins)

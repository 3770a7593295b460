"""Tests of the ten example sentences of the article."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.errors import DataError
from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES, sentence_map


def test_vectors_that_know_the_pairs_find_all_three():
    vectors = np.eye(10, dtype=np.float32)
    for left, right in GOLD_PAIRS:
        vectors[right] = vectors[left] + 0.1 * vectors[right]
    reported = sentence_map(vectors)
    assert (reported.matches, reported.auc) == (3, 1)
    assert reported.margin > 0.9
    assert reported.others == pytest.approx(0)
    assert reported.cosines.shape == (10, 10)
    np.testing.assert_array_equal(reported.cosines, reported.cosines.T)


def test_equal_vectors_find_none_because_ties_are_at_their_worst():
    reported = sentence_map(np.ones((10, 4), dtype=np.float32))
    assert (reported.matches, reported.auc) == (0, 0.5)
    assert reported.margin == pytest.approx(0)


def test_another_number_of_vectors_is_refused():
    with pytest.raises(DataError, match="9 vectors"):
        sentence_map(np.ones((9, 4), dtype=np.float32))


def test_the_bundled_encoder_finds_the_three_pairs():
    from bsc_core.data import TextTable
    from bsc_core.encoders import embed

    reported = sentence_map(embed("bundled", TextTable(TEN_SENTENCES)))
    assert reported.matches == 3
    assert reported.margin > 0

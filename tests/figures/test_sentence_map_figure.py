"""Tests of the similarity matrix of the ten sentences: all cells, framed gold pairs and fixed colors."""

from __future__ import annotations

import numpy as np

from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES
from bsc_core.evaluation import sentence_map as evaluate
from bsc_core.figures import theme
from bsc_core.figures.evaluation.sentence_map import cells, sentence_map


def cosines():
    return evaluate(np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)).cosines


def test_every_pair_of_sentences_is_a_cell_with_its_cosine():
    table = cells(cosines(), TEN_SENTENCES, GOLD_PAIRS)
    assert len(table) == 100
    for line in table.itertuples():
        assert line.cosine == round(float(cosines()[line.row - 1, line.column - 1]), 4)
        assert (line.left, line.right) == (TEN_SENTENCES[line.row - 1], TEN_SENTENCES[line.column - 1])


def test_the_three_gold_pairs_are_framed_on_both_sides():
    table = cells(cosines(), TEN_SENTENCES, GOLD_PAIRS)
    framed = {(line.row - 1, line.column - 1) for line in table.itertuples() if line.gold}
    assert framed == set(GOLD_PAIRS) | {(right, left) for left, right in GOLD_PAIRS}


def test_colors_are_fixed_and_the_title_is_as_given():
    chart = sentence_map(cells(cosines(), TEN_SENTENCES, GOLD_PAIRS), TEN_SENTENCES, title="Ten sentences").to_dict()
    scale = chart["layer"][0]["encoding"]["color"]["scale"]
    assert (scale["domain"], scale["range"]) == ([-1, 1], list(theme.COSINE))
    assert chart["title"] == "Ten sentences"
    labels = chart["layer"][0]["encoding"]["y"]["sort"]
    assert [label.split()[0] for label in labels] == [str(number) for number in range(1, 11)]

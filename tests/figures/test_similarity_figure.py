"""Tests of the batch matrix and the interactive softmax: one row per cell, and values that match the equations."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np
import pytest

from bsc_core.config import BSCLossConfig
from bsc_core.figures import theme
from bsc_core.figures.batches import similarity, softmax
from bsc_core.losses.explain import explain


@pytest.fixture
def cells() -> similarity.Cells:
    """Four pairs: (0, 1) is closer than the positive, (1, 2) collides, (0, 3) and pair 3 are labeled negative."""
    values = np.array(
        [[0.5, 0.7, 0.1, 0.2], [0.1, 0.9, 0.3, 0.0], [0.0, 0.2, 0.8, 0.1], [0.3, 0.1, 0.2, 0.1]], dtype=np.float32
    )
    collisions = np.zeros((4, 4), dtype=bool)
    collisions[1, 2] = True
    negatives = np.zeros((4, 4), dtype=bool)
    negatives[0, 3] = True
    rows, groups = np.array([7, 3, 9, 4], dtype=np.int32), np.array([1, 1, 2, 3], dtype=np.int32)
    return similarity.Cells(values, rows, groups, np.array([True, True, True, False]), collisions, negatives)


def test_every_cell_is_one_line_with_its_rows_and_its_similarity(cells: similarity.Cells) -> None:
    table = similarity.batch_table(cells)
    assert len(table) == 16
    for line in table.itertuples():
        assert line.similarity == pytest.approx(cells.similarity[line.row, line.column], abs=1e-4)
        assert (line.query_row, line.document_row) == (cells.rows[line.row], cells.rows[line.column])
        assert line.positive_similarity == pytest.approx(cells.similarity[line.row, line.row], abs=1e-4)


def test_each_cell_has_its_kind(cells: similarity.Cells) -> None:
    kinds = cells.kinds()
    assert kinds[0, 1] == similarity.CLOSER
    assert kinds[1, 2] == similarity.COLLISION
    assert kinds[0, 3] == similarity.LABELED_NEGATIVE
    assert kinds[2, 1] == similarity.NEGATIVE
    assert [kinds[i, i] for i in range(4)] == [similarity.POSITIVE] * 3 + [similarity.NEGATIVE_PAIR]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("margin", [-0.1, 0.0, 0.15])
def test_the_mask_of_the_matrix_is_that_of_the_loss(margin: float, relative: bool) -> None:
    generator = np.random.default_rng(0)
    queries, documents = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in generator.normal(size=(2, 12, 4))
    )
    config = BSCLossConfig(
        mask="self", mask_margin=margin, mask_margin_kind="relative" if relative else "absolute", symmetric=False
    )
    expected = explain(queries, documents, config=config).row_masked
    none = np.zeros((12, 12), dtype=bool)
    cells = similarity.Cells(
        *(queries @ documents.T, np.arange(12), np.arange(12), np.ones(12, dtype=bool), none, none),
        mask=similarity.BatchMask(margin, relative),
    )
    assert ((cells.kinds() == similarity.MASKED) == expected).all()
    assert 0 < expected.sum() < 132


def test_a_mask_removes_no_labeled_negative_and_no_cell_of_a_negative_pair(cells: similarity.Cells) -> None:
    kinds = replace(cells, mask=similarity.BatchMask(2.0)).kinds()
    assert kinds[0, 3] == similarity.LABELED_NEGATIVE
    assert kinds[1, 2] == similarity.COLLISION
    assert similarity.MASKED not in kinds[3]
    assert (kinds == similarity.MASKED).sum() == 7


def test_a_row_labeled_negative_has_no_closer_negatives(cells: similarity.Cells) -> None:
    assert similarity.CLOSER not in cells.kinds()[3]


def test_borders_enclose_each_run_of_a_group() -> None:
    borders = similarity.group_borders(np.array([4, 4, 9, 9, 9, 2], dtype=np.int32))
    assert borders.to_dict("list") == {"group": [4, 9, 2], "start": [0, 2, 5], "end": [2, 5, 6]}
    assert len(similarity.group_borders(np.empty(0, dtype=np.int32))) == 0


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_interactive_matrix_computes_the_softmax(temperature: float) -> None:
    values = [[0.6, 0.4], [0.1, 0.9]]
    figure = softmax.interactive_softmax(values, ["q1", "q2"], ["d1", "d2"], temperature=temperature).to_dict()
    assert figure["params"][0]["value"] == temperature
    assert figure["params"][0]["bind"]["input"] == "range"
    steps = figure["layer"][0]["transform"]
    assert steps[1]["calculate"] == "exp((datum.similarity - datum.highest) / temperature)"
    weights = [math.exp((value - max(values[0])) / temperature) for value in values[0]]
    exact = np.exp(np.array(values[0]) / temperature)
    np.testing.assert_allclose(np.array(weights) / sum(weights), exact / exact.sum(), rtol=1e-12)
    assert steps[0]["groupby"] == steps[2]["groupby"] == ["row"]
    assert steps[3]["calculate"] == "datum.weight / datum.total"


def test_pixels_have_cosines_kinds_borders_and_short_texts() -> None:
    values = np.array([[1.0, -1.0], [0.0, 0.5]], dtype=np.float32)
    no = np.zeros((2, 2), dtype=bool)
    marked = np.array([[False, True], [False, False]])
    rows = np.array([4, 2], dtype=np.int32)
    cells = similarity.Cells(values, rows, np.array([6, 6], dtype=np.int32), np.array([True, True]), no, no, marked)
    data = similarity.canvas_data(cells, ["q" * 500, "<b>q</b>"], ["d", "e"])
    assert list(base64.b64decode(data["cosines"])) == [255, 0, 128, 191]
    kinds = [data["names"][number] for number in base64.b64decode(data["kinds"])]
    assert kinds == [similarity.POSITIVE, similarity.MARKED, similarity.NEGATIVE, similarity.POSITIVE]
    assert data["borders"] == [[0, 2]]
    assert len(data["queries"][0]) <= similarity.CANVAS_TEXT_LENGTH
    assert data["queries"][1] == "<b>q</b>"
    assert data["marks"][similarity.MARKED] == [theme.MARKED_FALSE_NEGATIVE, "diamond"]


def test_the_ramp_passes_through_the_colors_of_the_theme() -> None:
    ramp = similarity.ramp(7)
    assert ["#" + "".join(f"{channel:02X}" for channel in color) for color in ramp] == list(theme.COSINE)

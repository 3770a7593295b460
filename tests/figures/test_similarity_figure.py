"""The batch matrix and the live softmax as data: one line a cell, and the same numbers as the equations."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from bsc_core.figures import similarity, softmax


@pytest.fixture
def cells() -> similarity.Cells:
    """Row 0 has a nearer document, (1, 2) collides, (0, 3) is labelled negative, row 3 is negative itself."""
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
        assert line.own == pytest.approx(cells.similarity[line.row, line.row], abs=1e-4)


def test_cells_say_what_they_are_to_the_loss(cells: similarity.Cells) -> None:
    kinds = cells.kinds()
    assert kinds[0, 1] == similarity.CLOSER
    assert kinds[1, 2] == similarity.COLLISION
    assert kinds[0, 3] == similarity.LABELLED
    assert kinds[2, 1] == similarity.NEGATIVE
    assert [kinds[i, i] for i in range(4)] == [similarity.OWN] * 3 + [similarity.OWN_NEGATIVE]


def test_a_row_labelled_negative_has_no_document_to_be_nearer_than(cells: similarity.Cells) -> None:
    assert similarity.CLOSER not in cells.kinds()[3]


def test_borders_enclose_each_run_of_a_group() -> None:
    borders = similarity.group_borders(np.array([4, 4, 9, 9, 9, 2], dtype=np.int32))
    assert borders.to_dict("list") == {"group": [4, 9, 2], "start": [0, 2, 5], "end": [2, 5, 6]}
    assert len(similarity.group_borders(np.empty(0, dtype=np.int32))) == 0


def test_the_matrix_is_fixed_to_minus_one_and_one_and_returns_the_cell(cells: similarity.Cells) -> None:
    texts = pd.DataFrame({"position": range(4), "query": list("abcd"), "document": ["<b>x</b>", "**y**", "z", "w"]})
    figure = similarity.batch_matrix(similarity.batch_table(cells), texts, hardest=(0, 1)).to_dict()
    body = figure["layer"][0]
    assert body["encoding"]["color"]["scale"]["domain"] == [-1, 1]
    assert {"name": similarity.CELL}.items() <= figure["params"][0].items()
    assert figure["params"][0]["select"]["fields"] == ["row", "column"]
    assert len(figure["layer"]) == 4
    assert "<b>x</b>" in json.dumps(figure["datasets"])  # texts are data: carried letter by letter


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_formulas_of_the_live_matrix_are_the_softmax(temperature: float) -> None:
    values = [[0.6, 0.4], [0.1, 0.9]]
    figure = softmax.live_softmax(values, ["q1", "q2"], ["d1", "d2"], temperature=temperature).to_dict()
    assert figure["params"][0]["value"] == temperature
    assert figure["params"][0]["bind"]["input"] == "range"
    steps = figure["layer"][0]["transform"]
    assert steps[1]["calculate"] == "exp((datum.similarity - datum.highest) / temperature)"
    weights = [math.exp((value - max(values[0])) / temperature) for value in values[0]]
    exact = np.exp(np.array(values[0]) / temperature)
    np.testing.assert_allclose(np.array(weights) / sum(weights), exact / exact.sum(), rtol=1e-12)
    assert steps[0]["groupby"] == steps[2]["groupby"] == ["row"]
    assert steps[3]["calculate"] == "datum.weight / datum.total"


def test_a_live_matrix_is_kept_small() -> None:
    size = softmax.LIVE_LIMIT + 1
    with pytest.raises(ValueError, match="at most 64"):
        softmax.live_softmax([[0.0] * size] * size, ["q"] * size, ["d"] * size)

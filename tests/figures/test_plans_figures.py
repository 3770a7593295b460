"""Group sizes, lines over epochs, the map of groups and the pixels of a large matrix, as data."""

from __future__ import annotations

import base64

import numpy as np
import pandas as pd
import pytest

from bsc_core.figures import groups, matrix_pixels, plans, similarity, theme


def test_shares_of_group_sizes_are_shares_of_the_rows() -> None:
    table = plans.group_size_table({"random": {1: 10}, "examples": {1: 2, 8: 1, 20: 1, 30: 2}})
    shares = table.set_index(["strategy", "size"])["share"].to_dict()
    assert shares["random", "1"] == 1
    assert shares["examples", "8"] == pytest.approx(8 / 90)
    assert shares["examples", f"> {plans.LARGEST_SHOWN}"] == pytest.approx(80 / 90)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx([1, 1])
    assert table.loc[table["size"].str.startswith(">"), "groups"].tolist() == [3]
    assert plans.group_size_figure(table).to_dict()["encoding"]["xOffset"]["field"] == "strategy"


def test_what_is_not_defined_is_left_out_of_a_line() -> None:
    table = pd.DataFrame({"series": ["random"] * 3, "epoch": [1, 2, 3], "value": [0.5, np.nan, 0.25]})
    figure = plans.epoch_figure(table, value="groups intact", percent=True).to_dict()
    (rows,) = figure["datasets"].values()
    assert [row["epoch"] for row in rows] == [1, 3]
    assert figure["encoding"]["y"]["axis"]["format"] == "%"


def test_each_series_keeps_the_colour_of_its_strategy() -> None:
    table = pd.DataFrame({"series": ["random", "this run, after training"], "epoch": [1, 1], "value": [0.1, 0.2]})
    scale = plans.epoch_figure(table, value="x", percent=False).to_dict()["encoding"]["color"]["scale"]
    assert scale["range"][0] == theme.REFERENCE
    assert len(set(scale["range"])) == 2


def test_the_map_holds_all_texts_and_leads_each_row_to_its_anchor() -> None:
    ids = np.array([3, 5, 8, 9], dtype=np.int32)
    points = np.array([[0, 0], [1, 0], [0, 2], [5, 5]], dtype=np.float32)
    table = groups.map_table(points, ids, [(7, np.array([8, 3], dtype=np.int32))], ["a", "b", "c", "d"])
    assert (table["group"] == "").sum() == 4
    drawn = table[table["group"] == "group 7"]
    assert drawn["text"].tolist() == ["c", "a"]
    assert drawn["role"].tolist() == [groups.ANCHOR, groups.NEIGHBOUR]
    assert drawn[["anchor_x", "anchor_y"]].to_numpy().tolist() == [[0, 2], [0, 2]]
    assert len(groups.map_figure(table).to_dict()["layer"]) == 3


def test_pixels_carry_cosines_kinds_borders_and_short_texts() -> None:
    values = np.array([[1.0, -1.0], [0.0, 0.5]], dtype=np.float32)
    no = np.zeros((2, 2), dtype=bool)
    marked = np.array([[False, True], [False, False]])
    rows = np.array([4, 2], dtype=np.int32)
    cells = similarity.Cells(values, rows, np.array([6, 6], dtype=np.int32), np.array([True, True]), no, no, marked)
    data = matrix_pixels.pixels(cells, ["q" * 500, "<b>q</b>"], ["d", "e"])
    assert list(base64.b64decode(data["cosines"])) == [255, 0, 128, 191]
    kinds = [data["names"][number] for number in base64.b64decode(data["kinds"])]
    assert kinds == [similarity.OWN, similarity.BY_HAND, similarity.NEGATIVE, similarity.OWN]
    assert data["borders"] == [[0, 2]]
    assert len(data["queries"][0]) <= matrix_pixels.TEXT_LENGTH
    assert data["queries"][1] == "<b>q</b>"
    assert set(data["marks"]) == set(similarity.MARKED)


def test_the_ramp_meets_the_colours_of_the_theme() -> None:
    ramp = matrix_pixels.ramp(7)
    assert ["#" + "".join(f"{channel:02X}" for channel in colour) for colour in ramp] == list(theme.COSINE)

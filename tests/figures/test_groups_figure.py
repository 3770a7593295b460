"""Tests of the group figure: the anchor in the center, each neighbor at distance 1 - cosine."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.figures import theme
from bsc_core.figures.batches import groups


def test_the_distance_from_the_center_is_one_minus_cosine() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 16)).astype(np.float32)
    points, cosine = groups.group_layout(vectors, 2)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(cosine, units @ units[2], atol=1e-6)
    np.testing.assert_allclose(points[2], [0, 0])
    others = np.arange(7) != 2
    np.testing.assert_allclose(np.linalg.norm(points[others], axis=1), 1 - cosine[others], atol=1e-6)


def test_equal_vectors_are_at_the_anchor() -> None:
    points, cosine = groups.group_layout(np.ones((3, 4), dtype=np.float32), 0)
    np.testing.assert_allclose(points, 0, atol=1e-6)
    np.testing.assert_allclose(cosine, 1, atol=1e-6)


def test_each_row_is_one_line_and_the_first_is_the_anchor() -> None:
    vectors = np.eye(3, dtype=np.float32)
    table = groups.group_table([(5, np.array([8, 1, 4], dtype=np.int32), vectors, ["a", "b", "c"])])
    assert table["row"].tolist() == [8, 1, 4]
    assert table["role"].tolist() == [groups.ANCHOR, groups.NEIGHBOR, groups.NEIGHBOR]
    assert table["cosine"].tolist() == pytest.approx([1, 0, 0])


def test_all_groups_share_one_scale_and_the_colors_of_the_theme() -> None:
    generator = np.random.default_rng(1)
    groups_of_rows = [
        (number, np.arange(4, dtype=np.int32), generator.normal(size=(4, 8)).astype(np.float32), list("abcd"))
        for number in range(3)
    ]
    table = groups.group_table(groups_of_rows)
    figure = groups.group_figure(table).to_dict()
    layers = figure["spec"]["layer"]
    low, high = layers[1]["encoding"]["x"]["scale"]["domain"]
    assert low == -high
    assert high > float(np.hypot(table["x"], table["y"]).max())
    colors = layers[1]["encoding"]["color"]["scale"]
    assert colors == {"domain": ["group 0", "group 1", "group 2"], "range": list(theme.WITHOUT_MEANING[:3])}
    points = np.zeros((12, 2), dtype=np.float32)
    members = [(number, rows) for number, rows, _, _ in groups_of_rows]
    on_map = groups.map_figure(groups.map_table(points, np.arange(12, dtype=np.int32), members, ["a"] * 12)).to_dict()
    assert on_map["layer"][1]["encoding"]["color"]["scale"] == colors
    assert figure["facet"]["sort"] == ["group 0", "group 1", "group 2"]


def test_the_map_has_all_texts_and_a_line_from_each_row_to_its_anchor() -> None:
    ids = np.array([3, 5, 8, 9], dtype=np.int32)
    points = np.array([[0, 0], [1, 0], [0, 2], [5, 5]], dtype=np.float32)
    table = groups.map_table(points, ids, [(7, np.array([8, 3], dtype=np.int32))], ["a", "b", "c", "d"])
    assert (table["group"] == "").sum() == 4
    drawn = table[table["group"] == "group 7"]
    assert drawn["text"].tolist() == ["c", "a"]
    assert drawn["role"].tolist() == [groups.ANCHOR, groups.NEIGHBOR]
    assert drawn[["anchor_x", "anchor_y"]].to_numpy().tolist() == [[0, 2], [0, 2]]
    assert len(groups.map_figure(table).to_dict()["layer"]) == 3

"""Groups as small multiples: the anchor in the middle, each neighbour at one minus its cosine."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.figures import groups, theme


def test_the_distance_from_the_middle_is_one_minus_cosine() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 16)).astype(np.float32)
    points, cosine = groups.group_layout(vectors, 2)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(cosine, units @ units[2], atol=1e-6)
    np.testing.assert_allclose(points[2], [0, 0])
    others = np.arange(7) != 2
    np.testing.assert_allclose(np.linalg.norm(points[others], axis=1), 1 - cosine[others], atol=1e-6)


def test_equal_vectors_fall_on_the_anchor() -> None:
    points, cosine = groups.group_layout(np.ones((3, 4), dtype=np.float32), 0)
    np.testing.assert_allclose(points, 0, atol=1e-6)
    np.testing.assert_allclose(cosine, 1, atol=1e-6)


def test_each_row_is_one_line_and_the_first_is_the_anchor() -> None:
    vectors = np.eye(3, dtype=np.float32)
    table = groups.group_table([(5, np.array([8, 1, 4], dtype=np.int32), vectors, ["a", "b", "c"])])
    assert table["row"].tolist() == [8, 1, 4]
    assert table["role"].tolist() == [groups.ANCHOR, groups.NEIGHBOUR, groups.NEIGHBOUR]
    assert table["cosine"].tolist() == pytest.approx([1, 0, 0])


def test_all_groups_share_one_scale_and_the_colours_of_the_theme() -> None:
    generator = np.random.default_rng(1)
    made = [
        (number, np.arange(4, dtype=np.int32), generator.normal(size=(4, 8)).astype(np.float32), list("abcd"))
        for number in range(3)
    ]
    table = groups.group_table(made)
    figure = groups.group_figure(table).to_dict()
    layers = figure["spec"]["layer"]
    low, high = layers[1]["encoding"]["x"]["scale"]["domain"]
    assert low == -high
    assert high > float(np.hypot(table["x"], table["y"]).max())
    assert layers[1]["encoding"]["color"]["scale"]["range"] == [theme.QUERY, theme.HARD_NEGATIVE]
    assert figure["facet"]["sort"] == ["group 0", "group 1", "group 2"]

"""Tests of embedding maps: shared frame, bitmask round trip, selection on every map, and category colors."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from bsc_core.figures import theme
from bsc_core.figures.evaluation import maps

POINTS = np.array([[0, 0], [1, 2], [3, 1], [2, 5]], dtype=np.float32)
IDS = np.array([10, 11, 12, 13], dtype=np.int32)
SIDES = maps.coloring(["query", "document", "document", "query"], maps.SIDES)
NOTHING = np.empty(0, dtype=np.int32)


def drawn(**changes: object) -> dict[str, object]:
    values = {"colors": [SIDES], "ids": IDS, "selected": NOTHING, "trails": NOTHING} | changes
    colors = values.pop("colors")
    return maps.map_picture([POINTS, POINTS + 1], ["Before", "After"], colors, **values)  # type: ignore[arg-type]


def coordinates(frame: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(frame), dtype="<u2").reshape(-1, 2).astype(np.int64)


def test_all_maps_share_a_frame_and_a_scale() -> None:
    points = maps.map_points([POINTS, POINTS + 1])
    first, second = (coordinates(frame) for frame in points["frames"])
    step = 6 / maps.MAX_COORDINATE  # the larger side of the frame: y from 0 to 6
    assert points["size"] == [round(4 / step), maps.MAX_COORDINATE]
    assert np.allclose(first[:, 0] * step, POINTS[:, 0], atol=step)
    assert np.allclose(
        (maps.MAX_COORDINATE - first[:, 1]) * step, POINTS[:, 1], atol=step
    )  # the y-axis of a canvas points down
    assert np.allclose((second - first) * step, [1, -1], atol=2 * step)


def test_overlays_are_in_the_coordinates_of_the_points() -> None:
    pairs = np.array([[10, 13], [11, 99]], dtype=np.int32)  # text 99 is not on the map
    segments = np.stack([POINTS[:2], POINTS[2:]])
    overlays = maps.Overlays(pairs, [[segments], [segments]], [[(2.0, 5.0, "bread")], []])
    picture = drawn(overlays=overlays)
    first = coordinates(picture["frames"][0])  # type: ignore[index]
    assert picture["pairs"] == [[0, 3]]
    assert np.array_equal(np.array(picture["contours"])[0, 0].reshape(4, 2), first)
    assert picture["labels"] == [[[*first[3].tolist(), "bread"]], []]


def test_the_id_depends_on_the_points_only() -> None:
    assert maps.map_points([POINTS])["id"] == maps.map_points([POINTS.copy()])["id"]
    assert maps.map_points([POINTS])["id"] != maps.map_points([POINTS[::-1]])["id"]


@pytest.mark.parametrize("points", [POINTS[:1], np.zeros((3, 2), np.float32), POINTS[:0]])
def test_equal_points_have_a_frame(points: np.ndarray) -> None:
    encoded = maps.map_points([points])
    assert min(encoded["size"]) >= 1
    assert encoded["count"] == len(points)
    assert len(coordinates(encoded["frames"][0])) == len(points)


def test_sides_have_the_colors_they_have_everywhere() -> None:
    picture = drawn()
    assert picture["categories"] == [
        ["query", theme.QUERY, "circle", False],
        ["document", theme.DOCUMENT, "circle", False],
    ]
    assert list(base64.b64decode(picture["values"][0])) == [0, 1, 1, 0]  # type: ignore[index]


def test_models_that_differ_in_a_category_share_the_legend() -> None:
    fixed = {"first": theme.POSITIVE, "missed": theme.HARD_NEGATIVE, "not searched": theme.REFERENCE}
    before = maps.coloring(["missed", "missed", "not searched", "not searched"], fixed)
    after = maps.coloring(["first", "missed", "not searched", "not searched"], fixed)
    picture = drawn(colors=[before, after])
    names = [category[0] for category in picture["categories"]]  # type: ignore[attr-defined]
    reported = [[names[index] for index in base64.b64decode(values)] for values in picture["values"]]  # type: ignore[attr-defined]
    assert reported == [list(before.values), list(after.values)]
    assert [category[0] for category in picture["categories"] if category[3]] == ["not searched"]  # type: ignore[attr-defined]


def test_the_selection_is_a_bit_mask_and_trails_are_indices() -> None:
    picture = drawn(selected=np.array([11, 13], dtype=np.int32), trails=np.array([12], dtype=np.int32))
    assert maps.unpack(str(picture["selected"]), 4).tolist() == [1, 3]
    assert picture["trails"] == [2]
    assert drawn()["selected"] == ""


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_a_mask_survives_packing(count: int) -> None:
    chosen = np.random.default_rng(count).random(count) < 0.3
    assert maps.unpack(maps.pack(chosen), count).tolist() == np.flatnonzero(chosen).tolist()


def test_a_picture_is_ready_for_json() -> None:
    assert json.loads(json.dumps(drawn(selected=IDS))) == drawn(selected=IDS)


def test_categories_8_to_14_repeat_the_colors_as_diamonds() -> None:
    coloring = maps.coloring([f"c{number:02}" for number in range(10)])
    marks = [tuple(coloring.mark(name).values()) for name in coloring.colors]
    assert len(set(marks)) == 10
    assert coloring.mark("c00")["color"] == coloring.mark("c07")["color"]
    assert coloring.mark("c07")["symbol"] == "diamond"


def test_categories_beyond_14_become_other() -> None:
    values = [f"c{number:02}" for number in range(20) for _ in range(20 - number)]
    coloring = maps.coloring(values)
    assert len(coloring.colors) == 15
    assert coloring.mark(maps.OTHER) == {"color": theme.REFERENCE, "symbol": "circle"}
    assert next(iter(coloring.colors)) == "c00"
    assert set(coloring.values) == set(coloring.colors)

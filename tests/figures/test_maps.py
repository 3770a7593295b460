"""Maps of texts as data: one frame, ids that come back as bits, one selection in every map, and colours by category."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from bsc_core.figures import maps, theme

POINTS = np.array([[0, 0], [1, 2], [3, 1], [2, 5]], dtype=np.float32)
IDS = np.array([10, 11, 12, 13], dtype=np.int32)
SIDES = maps.colouring(["query", "document", "document", "query"], maps.SIDES)
NOTHING = np.empty(0, dtype=np.int32)


def drawn(**changes: object) -> dict[str, object]:
    values = {"colours": [SIDES], "ids": IDS, "picked": NOTHING, "trails": NOTHING} | changes
    colours = values.pop("colours")
    return maps.map_picture(maps.map_points([POINTS, POINTS + 1]), ["Before", "After"], colours, **values)  # type: ignore[arg-type]


def places(frame: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(frame), dtype="<u2").reshape(-1, 2).astype(np.int64)


def test_every_map_lies_in_one_frame_with_steps_of_equal_length() -> None:
    points = maps.map_points([POINTS, POINTS + 1])
    first, second = (places(frame) for frame in points.frames)
    step = 6 / maps.FINEST  # the larger side of the frame: y from 0 to 6
    assert points.size == (round(4 / step), maps.FINEST)
    assert np.allclose(first[:, 0] * step, POINTS[:, 0], atol=step)
    assert np.allclose((maps.FINEST - first[:, 1]) * step, POINTS[:, 1], atol=step)  # y of a canvas points down
    assert np.allclose((second - first) * step, [1, -1], atol=2 * step)


def test_the_id_changes_with_the_places_only() -> None:
    assert maps.map_points([POINTS]).id == maps.map_points([POINTS.copy()]).id
    assert maps.map_points([POINTS]).id != maps.map_points([POINTS[::-1]]).id


@pytest.mark.parametrize("points", [POINTS[:1], np.zeros((3, 2), np.float32), POINTS[:0]])
def test_texts_in_one_place_still_have_a_frame(points: np.ndarray) -> None:
    made = maps.map_points([points])
    assert min(made.size) >= 1
    assert made.count == len(points)
    assert len(places(made.frames[0])) == len(points)


def test_sides_have_the_colours_they_have_everywhere() -> None:
    picture = drawn()
    assert picture["categories"] == [
        ["query", theme.QUERY, "circle", False],
        ["document", theme.DOCUMENT, "circle", False],
    ]
    assert list(base64.b64decode(picture["values"][0])) == [0, 1, 1, 0]  # type: ignore[index]


def test_models_that_differ_in_a_category_share_the_legend() -> None:
    ways = {"first": theme.POSITIVE, "missed": theme.HARD_NEGATIVE, "not asked": theme.REFERENCE}
    before = maps.colouring(["missed", "missed", "not asked", "not asked"], ways)
    after = maps.colouring(["first", "missed", "not asked", "not asked"], ways)
    picture = drawn(colours=[before, after])
    names = [category[0] for category in picture["categories"]]  # type: ignore[attr-defined]
    told = [[names[place] for place in base64.b64decode(values)] for values in picture["values"]]  # type: ignore[attr-defined]
    assert told == [list(before.values), list(after.values)]
    assert [category[0] for category in picture["categories"] if category[3]] == ["not asked"]  # type: ignore[attr-defined]


def test_what_is_picked_is_told_by_bits_and_ways_by_places() -> None:
    picture = drawn(picked=np.array([11, 13], dtype=np.int32), trails=np.array([12], dtype=np.int32))
    assert maps.unpack(str(picture["picked"]), 4).tolist() == [1, 3]
    assert picture["trails"] == [2]
    assert drawn()["picked"] == ""


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_bits_come_back_as_they_went(count: int) -> None:
    chosen = np.random.default_rng(count).random(count) < 0.3
    assert maps.unpack(maps.pack(chosen), count).tolist() == np.flatnonzero(chosen).tolist()


def test_a_picture_is_ready_for_json() -> None:
    assert json.loads(json.dumps(drawn(picked=IDS))) == drawn(picked=IDS)


def test_past_seven_categories_colours_come_again_as_diamonds() -> None:
    made = maps.colouring([f"c{number:02}" for number in range(10)])
    marks = [tuple(made.mark(name).values()) for name in made.colours]
    assert len(set(marks)) == 10
    assert made.mark("c00")["color"] == made.mark("c07")["color"]
    assert made.mark("c07")["symbol"] == "diamond"


def test_past_fourteen_categories_the_smallest_become_other() -> None:
    values = [f"c{number:02}" for number in range(20) for _ in range(20 - number)]
    made = maps.colouring(values)
    assert len(made.colours) == 15
    assert made.mark(maps.OTHER) == {"color": theme.REFERENCE, "symbol": "circle"}
    assert next(iter(made.colours)) == "c00"
    assert set(made.values) == set(made.colours)

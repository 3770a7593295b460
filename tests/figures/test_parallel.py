"""The runs of a sweep as data: where each lies on each axis, which is best, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bsc_core.figures import curves, parallel

SETTINGS: dict[str, dict[str, Any]] = {
    "a": {"loss.temperature": 0.05, "batching.strategy": "random"},
    "b": {"loss.temperature": 0.5, "batching.strategy": "examples"},
    "c": {"loss.temperature": 5.0, "batching.strategy": "random"},
}
RESULTS = {"a": 0.5, "b": 0.75, "c": None}


def points(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of the runs' lines in a figure, as it is sent to the browser."""
    return next(layer["data"]["values"] for layer in spec["layer"] if "run" in layer["data"]["values"][0])


def test_numbers_that_span_a_factor_of_ten_lie_on_a_logarithmic_axis() -> None:
    axis = parallel.axis("loss.temperature", {run: values["loss.temperature"] for run, values in SETTINGS.items()})
    assert axis.places == pytest.approx({"a": 0.0, "b": 0.5, "c": 1.0})
    assert [words for _, words in axis.ticks] == ["0.05", "0.5", "5"]


@given(some.lists(some.integers(-1000, 1000), min_size=2, max_size=30))
def test_numbers_keep_their_order_on_the_axis(values: list[int]) -> None:
    axis = parallel.axis("x", {str(number): value for number, value in enumerate(values)})
    places = [axis.places[str(number)] for number in range(len(values))]
    assert all(place is not None and 0.0 <= place <= 1.0 for place in places)
    for one, first in zip(values, places, strict=True):
        for other, second in zip(values, places, strict=True):
            assert (one < other) == (first is not None and second is not None and first < second)


def test_words_lie_evenly_and_equal_ones_at_one_place() -> None:
    axis = parallel.axis("strategy", {"a": "random", "b": "words", "c": None, "d": "random"})
    assert axis.places == {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.0}
    assert axis.ticks == [(0.0, "random"), (0.5, "words"), (1.0, "not set")]


def test_switches_are_words_and_one_value_lies_in_the_middle() -> None:
    assert parallel.axis("x", {"a": True, "b": False}).ticks == [(0.0, "True"), (1.0, "False")]
    assert parallel.axis("x", {"a": 3, "b": 3}).places == {"a": 0.5, "b": 0.5}


def test_a_long_axis_has_few_ticks() -> None:
    axis = parallel.axis("x", {str(number): number for number in range(50)})
    assert [words for _, words in axis.ticks] == ["0", "25", "49"]


def test_every_run_has_a_point_on_every_axis_but_not_at_a_result_it_has_not() -> None:
    found = points(parallel.parallel(SETTINGS, RESULTS, metric="mrr").to_dict())
    assert {(one["run"], one["axis"]) for one in found if one["axis"] != "mrr"} == {
        (run, name) for run, values in SETTINGS.items() for name in values
    }
    assert {one["run"]: one["place"] for one in found if one["axis"] == "mrr"} == {"a": 0.0, "b": 1.0}
    assert {one["run"] for one in found if one["best"]} == {"b"}


def test_the_title_names_the_settings_of_the_best_run() -> None:
    title = parallel.parallel(SETTINGS, RESULTS, metric="mrr").to_dict()["title"]
    assert title == ["The best of 3 runs reaches mrr 0.750", "with temperature 0.5, strategy examples"]
    unmeasured = dict.fromkeys(SETTINGS)
    assert parallel.headline(SETTINGS, unmeasured, metric="mrr") == ["3 runs, none of them measured"]
    assert points(parallel.parallel(SETTINGS, unmeasured, metric="mrr").to_dict())


def test_the_axes_stand_in_the_order_of_the_settings_with_the_metric_last() -> None:
    spec = parallel.parallel(SETTINGS, RESULTS, metric="mrr").to_dict()
    orders = [layer["encoding"]["x"]["sort"] for layer in spec["layer"]]
    assert all(order == ["loss.temperature", "batching.strategy", "mrr"] for order in orders)


def test_a_section_is_told_by_its_name_and_a_list_by_its_entries() -> None:
    assert parallel.words({"name": "mnrl", "temperature": 0.1}) == "mnrl"
    assert parallel.words((1, 2.5)) == "1, 2.5"


def test_the_curve_of_the_best_run_lies_over_the_others() -> None:
    found: dict[str, curves.Points] = {"a": [{"step": 1, "value": 2.0}], "b": [{"step": 1, "value": 1.0}]}
    spec = parallel.sweep_curves(found, title="t", value="loss", across="step", top="b").to_dict()
    assert [layer["transform"][0]["filter"] for layer in spec["layer"]] == ["!datum.best", "datum.best"]
    values = spec["data"]["values"]
    assert {one["run"]: one["best"] for one in values} == {"a": False, "b": True}

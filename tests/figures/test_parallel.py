"""Tests of the parallel coordinates of a sweep: positions on each axis, best run and title."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bsc_core.figures import theme
from bsc_core.figures.runs import curves, parallel

SETTINGS: dict[str, dict[str, Any]] = {
    "a": {"loss.temperature": 0.05, "batching.strategy": "random"},
    "b": {"loss.temperature": 0.5, "batching.strategy": "nearest"},
    "c": {"loss.temperature": 5.0, "batching.strategy": "random"},
}
RESULTS = {"a": 0.5, "b": 0.75, "c": None}
COLORS = dict(zip(SETTINGS, theme.RUNS, strict=False))


def points(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the points of the run lines from the chart specification."""
    return next(layer["data"]["values"] for layer in spec["layer"] if "run" in layer["data"]["values"][0])


def test_an_axis_that_spans_a_factor_of_ten_is_logarithmic() -> None:
    axis = parallel.axis("loss.temperature", {run: values["loss.temperature"] for run, values in SETTINGS.items()})
    assert axis.positions == pytest.approx({"a": 0.0, "b": 0.5, "c": 1.0})
    assert [label for _, label in axis.ticks] == ["0.05", "0.5", "5"]


@given(some.lists(some.integers(-1000, 1000), min_size=2, max_size=30))
def test_positions_are_in_the_order_of_the_numbers(values: list[int]) -> None:
    axis = parallel.axis("x", {str(number): value for number, value in enumerate(values)})
    positions = [axis.positions[str(number)] for number in range(len(values))]
    assert all(position is not None and 0.0 <= position <= 1.0 for position in positions)
    for one, first in zip(values, positions, strict=True):
        for other, second in zip(values, positions, strict=True):
            assert (one < other) == (first is not None and second is not None and first < second)


def test_names_are_evenly_spaced_and_equal_names_share_a_position() -> None:
    axis = parallel.axis("strategy", {"a": "random", "b": "words", "c": None, "d": "random"})
    assert axis.positions == {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.0}
    assert axis.ticks == [(0.0, "random"), (0.5, "words"), (1.0, "not set")]


def test_booleans_are_names_and_a_single_value_is_in_the_middle() -> None:
    assert parallel.axis("x", {"a": True, "b": False}).ticks == [(0.0, "True"), (1.0, "False")]
    assert parallel.axis("x", {"a": 3, "b": 3}).positions == {"a": 0.5, "b": 0.5}


def test_a_long_axis_has_few_ticks() -> None:
    axis = parallel.axis("x", {str(number): number for number in range(50)})
    assert [label for _, label in axis.ticks] == ["0", "25", "49"]


def test_every_run_has_a_point_on_every_axis_except_a_missing_result() -> None:
    result = points(parallel.parallel(SETTINGS, RESULTS, metric="mrr", colors=COLORS).to_dict())
    assert {(one["run"], one["axis"]) for one in result if one["axis"] != "MRR"} == {
        (run, name) for run, values in SETTINGS.items() for name in values
    }
    assert {one["run"]: one["position"] for one in result if one["axis"] == "MRR"} == {"a": 0.0, "b": 1.0}
    assert {one["run"] for one in result if one["best"]} == {"b"}


@pytest.mark.parametrize(("key", "kind"), [("loss.temperature", "quantitative"), ("batching.strategy", "nominal")])
def test_the_runs_of_one_setting_are_points_above_its_values(key: str, kind: str) -> None:
    settings = {run: {key: values[key]} for run, values in SETTINGS.items()}
    chart = parallel.parallel(settings, RESULTS, metric="mrr", colors=COLORS).to_dict()
    above, best = chart["layer"]
    assert (above["encoding"]["x"]["type"], above["encoding"]["y"]["title"]) == (kind, "MRR")
    assert above["encoding"]["x"].get("scale", {}).get("type") == ("log" if kind == "quantitative" else None)
    (table,) = [one["data"]["values"] for one in (chart, above) if "data" in one]
    shown = {one["run"]: (one["value"], one["result"], one["best"]) for one in table}
    assert shown == {"a": (settings["a"][key], 0.5, False), "b": (settings["b"][key], 0.75, True)}
    assert best["mark"]["size"] > above["mark"]["size"]


def test_the_title_names_the_settings_of_the_best_run() -> None:
    title = parallel.parallel(SETTINGS, RESULTS, metric="mrr", colors=COLORS).to_dict()["title"]
    assert title == ["Highest of the 2 runs that are done: MRR 0.750", "with temperature 0.5, strategy nearest"]
    not_evaluated = dict.fromkeys(SETTINGS)
    assert parallel.headline(SETTINGS, not_evaluated, metric="mrr") == ["3 runs, none evaluated yet"]
    assert points(parallel.parallel(SETTINGS, not_evaluated, metric="mrr", colors=COLORS).to_dict())


def test_runs_that_differ_in_the_seed_have_a_mean_and_no_best_run() -> None:
    seeds = {run: {"Seed": number} for number, run in enumerate("abc")}
    title = parallel.headline(seeds, {"a": 0.5, "b": 0.75, "c": None}, metric="mrr")
    assert title == ["Mean of 2 seeds: MRR 0.625", "from 0.500 to 0.750"]


def test_axes_are_in_the_order_of_the_settings_with_the_metric_last() -> None:
    spec = parallel.parallel(SETTINGS, RESULTS, metric="mrr", colors=COLORS).to_dict()
    orders = [layer["encoding"]["x"]["sort"] for layer in spec["layer"]]
    assert all(order == ["loss.temperature", "batching.strategy", "MRR"] for order in orders)


def test_a_section_is_formatted_as_its_name_and_a_list_as_its_entries() -> None:
    assert parallel.format_value({"name": "mnrl", "temperature": 0.1}) == "mnrl"
    assert parallel.format_value((1, 2.5)) == "1, 2.5"


def test_the_curve_of_the_best_run_is_on_top() -> None:
    result: dict[str, curves.Points] = {"a": [{"step": 1, "value": 2.0}], "b": [{"step": 1, "value": 1.0}]}
    names = {"a": "Seed 1", "b": "Seed 2"}
    spec = parallel.sweep_curves(
        result, names, title="t", value="loss", across="step", top="b", colors=COLORS
    ).to_dict()
    assert [layer["transform"][0]["filter"] for layer in spec["layer"]] == ["!datum.best", "datum.best"]
    values = spec["data"]["values"]
    assert {one["run"]: one["best"] for one in values} == {"a": False, "b": True}
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["Seed 1", "Seed 2"]


def test_runs_have_their_colors_in_both_figures() -> None:
    shown = {
        one["run"]: one["color"]
        for one in points(parallel.parallel(SETTINGS, RESULTS, metric="mrr", colors=COLORS).to_dict())
    }
    assert shown == COLORS
    result: dict[str, curves.Points] = {run: [{"step": 1, "value": 2.0}] for run in SETTINGS}
    names = {run: run for run in SETTINGS}
    spec = parallel.sweep_curves(
        result, names, title="t", value="loss", across="step", top="b", colors=COLORS
    ).to_dict()
    assert {one["run"]: one["color"] for one in spec["data"]["values"]} == shown


def test_labels_are_outside_of_the_lines() -> None:
    labels = parallel.parallel(SETTINGS, RESULTS, metric="mrr", colors=COLORS).to_dict()["layer"][-1]["data"]["values"]
    sides = {name: [(one["align"], one["dy"]) for one in labels if one["axis"] == name] for name in SETTINGS["a"]}
    assert sides["loss.temperature"] == [("right", 0)] * 3
    assert sides["batching.strategy"] == [("center", 14), ("center", -14)]
    assert {one["align"] for one in labels if one["axis"] == "MRR"} == {"left"}

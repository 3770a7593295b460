"""Curves as data: values by step, bins that do not flicker, and titles that say what is seen."""

from __future__ import annotations

import pytest

from bsc_core.figures import curves, theme


def steps(values: list[float], field: str = "loss") -> list[dict[str, object]]:
    return [{"kind": "step", "step": number, "epoch": 1, field: value} for number, value in enumerate(values, 1)]


def test_a_short_series_keeps_every_step() -> None:
    assert curves.series(steps([2.0, 1.5]), "loss") == [{"step": 1, "value": 2.0}, {"step": 2, "value": 1.5}]


def test_a_long_series_becomes_means_of_a_power_of_two() -> None:
    thinned = curves.series(steps([float(value) for value in range(40)]), "loss", most=10)
    assert [point["value"] for point in thinned[:2]] == [1.5, 5.5]
    assert [point["step"] for point in thinned[:2]] == [4, 8]


def test_early_points_stay_where_they_were_when_the_series_grows() -> None:
    values = [float(value % 7) for value in range(90)]
    shorter, longer = (curves.series(steps(values[:size]), "loss", most=32) for size in (70, 90))
    assert longer[: len(shorter) - 1] == shorter[:-1]


def test_values_that_are_missing_are_left_out() -> None:
    rows = [*steps([1.0]), {"kind": "step", "step": 2, "loss": None}, {"kind": "evaluation", "epoch": 1, "dev": {}}]
    assert len(curves.series(rows, "loss")) == 1


def test_evaluations_leave_out_what_is_not_defined() -> None:
    rows = [
        {"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}}
        for epoch, value in ((0, 0.5), (1, None), (2, 0.7))
    ]
    assert [(point["epoch"], point["value"]) for point in curves.evaluations(rows, "mrr")] == [(0, 0.5), (2, 0.7)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([2.0, 1.0], "The loss falls from 2.000 to 1.000"),
        ([1.0, 2.0], "The loss rises from 1.000 to 2.000"),
        ([1.0, 1.0], "The loss stays at 1.000"),
        ([1.0], "The loss is 1.000"),
        ([], "The loss: no value yet"),
    ],
)
def test_the_title_says_what_the_curve_does(values: list[float], words: str) -> None:
    assert curves.step_curve({"a": steps(values)}, "loss").to_dict()["title"] == words


def test_the_first_run_is_solid_and_the_second_dashed() -> None:
    spec = curves.step_curve({"a": steps([2.0, 1.0]), "b": steps([3.0, 2.0])}, "loss").to_dict()
    scale = spec["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert scale["domain"] == ["a", "b"]
    assert scale["range"] == [list(theme.DASHES[0]), list(theme.DASHES[1])]
    assert spec["layer"][0]["encoding"]["color"]["scale"]["range"] == list(curves.RUN_COLOURS[:2])
    meant = {theme.QUERY, theme.DOCUMENT, theme.POSITIVE, theme.HARD_NEGATIVE, theme.FALSE_NEGATIVE}
    assert not meant & set(curves.RUN_COLOURS)


def test_a_run_alone_needs_no_legend() -> None:
    spec = curves.step_curve({"a": steps([0.1, 0.09], "temperature")}, "temperature").to_dict()
    assert spec["layer"][0]["encoding"]["color"]["legend"] is None


def test_the_dev_curve_runs_over_epochs() -> None:
    rows = [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": epoch / 10}} for epoch in range(3)]
    spec = curves.metric_curve({"a": rows}, "mrr").to_dict()
    assert spec["layer"][0]["encoding"]["x"]["field"] == "epoch"
    assert spec["title"] == "mrr on dev rises from 0.000 to 0.200"


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("learning_rate", [2e-5, 1e-6], "The learning rate falls from 2.0e-5 to 1.0e-6"),
        ("tokens_per_second", [1500.4, 12000.0], "The speed rises from 1,500 to 12,000"),
        ("memory_bytes", [2.0**28, 2.0**29], "The peak of memory rises from 256.000 to 512.000"),
    ],
)
def test_a_title_says_small_and_large_numbers_so_that_they_can_be_read(
    field: str, values: list[float], words: str
) -> None:
    assert curves.step_curve({"a": steps(values, field)}, field).to_dict()["title"] == words


def test_only_what_the_steps_noted_has_a_curve() -> None:
    rows = [{"kind": "step", "step": 1, "loss": 1.0, "temperature": None, "memory_bytes": 5, "loss_extra": 1.0}]
    assert curves.noted([*rows, {"kind": "evaluation", "epoch": 1, "hardness": 0.5}]) == ["loss", "memory_bytes"]

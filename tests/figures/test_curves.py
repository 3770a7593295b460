"""Tests of training curves: values by step, stable bins and titles."""

from __future__ import annotations

import pytest

from bsc_core.figures import theme
from bsc_core.figures.runs import curves


def steps(values: list[float], field: str = "loss") -> list[dict[str, object]]:
    return [{"kind": "step", "step": number, "epoch": 1, field: value} for number, value in enumerate(values, 1)]


def test_a_short_series_has_every_step() -> None:
    assert curves.series(steps([2.0, 1.5]), "loss") == [{"step": 1, "value": 2.0}, {"step": 2, "value": 1.5}]


def test_a_long_series_is_averaged_over_a_power_of_two() -> None:
    thinned = curves.series(steps([float(value) for value in range(40)]), "loss", max_points=10)
    assert [point["value"] for point in thinned[:2]] == [1.5, 5.5]
    assert [point["step"] for point in thinned[:2]] == [4, 8]


def test_early_points_do_not_move_when_the_series_grows() -> None:
    values = [float(value % 7) for value in range(90)]
    shorter, longer = (curves.series(steps(values[:size]), "loss", max_points=32) for size in (70, 90))
    assert longer[: len(shorter) - 1] == shorter[:-1]


def test_missing_values_are_omitted() -> None:
    rows = [*steps([1.0]), {"kind": "step", "step": 2, "loss": None}, {"kind": "evaluation", "epoch": 1, "dev": {}}]
    assert len(curves.series(rows, "loss")) == 1


def test_evaluations_omit_undefined_values() -> None:
    rows = [
        {"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}}
        for epoch, value in ((0, 0.5), (1, None), (2, 0.7))
    ]
    assert [(point["epoch"], point["value"]) for point in curves.evaluations(rows, "mrr")] == [(0, 0.5), (2, 0.7)]


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ([2.0, 1.0], "The gradient norm falls from 2.000 to 1.000"),
        ([1.0, 2.0], "The gradient norm rises from 1.000 to 2.000"),
        ([1.0, 1.0], "The gradient norm stays at 1.000"),
        ([2.0, 3.0, 1.0], "The gradient norm goes from 2.000 to 1.000"),
    ],
)
def test_the_title_summarizes_the_curve(values: list[float], title: str) -> None:
    assert curves.step_curve({"a": [steps(values, "grad_norm")]}, "grad_norm").to_dict()["title"] == title


@pytest.mark.parametrize(
    ("values", "title"),
    [
        (
            [6.0, 4.0] * 5 + [2.0, 1.0] * 5,
            "The loss falls from 5.000 to 1.500 (means of the first and last fifth of the steps)",
        ),
        ([1.0, 9.0] * 10, "The loss has no clear trend: 5.000 at first, 5.000 at the end"),
        ([3.0, 1.0], "The loss is 2.000 on average over 2 steps"),
        ([1.0], "The loss is 1.000"),
        ([], "The loss: no value yet"),
    ],
)
def test_the_title_of_the_loss_names_a_trend_only_beyond_the_noise(values: list[float], title: str) -> None:
    assert curves.step_curve({"a": [steps(values)]}, "loss").to_dict()["title"] == title


def test_the_first_run_is_solid_and_the_second_has_another_dash_pattern() -> None:
    spec = curves.step_curve({"a": [steps([2.0, 1.0])], "b": [steps([3.0, 2.0])]}, "loss").to_dict()
    scale = spec["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert scale["domain"] == ["a", "b"]
    assert scale["range"] == [list(theme.DASHES[0]), list(theme.DASHES[1])]
    assert spec["layer"][0]["encoding"]["color"]["scale"]["range"] == list(theme.RUNS[:2])
    meant = {theme.QUERY, theme.DOCUMENT, theme.POSITIVE, theme.HARD_NEGATIVE, theme.FALSE_NEGATIVE}
    assert not meant & set(theme.RUNS)


def test_smoothed_values_are_weighted_means_of_the_values_before() -> None:
    values, weight = [3.0, 1.0, 2.0, 5.0], 0.6
    smoothed = curves.smooth(curves.series(steps(values), "loss"), weight)
    for number, point in enumerate(smoothed):
        weights = [weight ** (number - position) for position in range(number + 1)]
        mean = sum(one * value for one, value in zip(weights, values, strict=False)) / sum(weights)
        assert point["value"] == pytest.approx(mean)
        assert point["raw"] == values[number]
    assert curves.smooth(smoothed, 0.0) is smoothed


def test_a_view_smooths_uses_a_log_axis_and_the_training_time() -> None:
    rows = [{**row, "elapsed_seconds": 0.5 * row["step"]} for row in steps([2.0, 1.0, 1.5])]  # type: ignore[operator]
    view = curves.CurveView(smoothing=0.5, log=True, by_time=True)
    spec = curves.step_curve({"a": [rows, rows]}, "loss", view).to_dict()
    line, raw = (layer["encoding"] for layer in spec["layer"][:2])
    assert (line["x"]["field"], line["x"]["title"]) == ("seconds", "training time (s)")
    assert line["y"]["scale"]["type"] == "log"
    assert (line["y"]["field"], raw["y"]["field"]) == ("value", "raw")
    assert spec["title"] == "The loss is 1.500 on average over 3 steps"
    compared = curves.step_curve({"a": [rows], "b": [rows]}, "loss", view).to_dict()
    assert {layer["encoding"]["color"]["legend"]["symbolOpacity"] for layer in compared["layer"]} == {1}


def test_a_log_axis_needs_positive_values_and_a_time_axis_logged_times() -> None:
    view = curves.CurveView(log=True, by_time=True)
    line = curves.step_curve({"a": [steps([1.0, -1.0])]}, "loss", view).to_dict()["layer"][0]["encoding"]
    assert "type" not in line["y"]["scale"]
    assert line["x"]["field"] == "step"


def test_the_time_of_an_epoch_includes_the_epochs_before() -> None:
    rows = [
        {"kind": "evaluation", "epoch": epoch, "dev": {"mrr": 0.5}, "train_seconds": seconds}
        for epoch, seconds in ((0, None), (1, 2.0), (2, 3.0))
    ]
    assert [point["seconds"] for point in curves.evaluations(rows, "mrr")] == [0.0, 2.0, 5.0]
    spec = curves.metric_curve({"a": [rows]}, "mrr", curves.CurveView(by_time=True)).to_dict()
    assert spec["layer"][0]["encoding"]["x"]["field"] == "seconds"


def test_a_single_run_has_no_legend() -> None:
    spec = curves.step_curve({"a": [steps([0.1, 0.09], "temperature")]}, "temperature").to_dict()
    assert spec["layer"][0]["encoding"]["color"]["legend"] is None


def test_the_dev_curve_is_by_epoch() -> None:
    rows = [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": epoch / 10}} for epoch in range(3)]
    spec = curves.metric_curve({"a": [rows]}, "mrr").to_dict()
    assert spec["layer"][0]["encoding"]["x"]["field"] == "epoch"
    assert spec["title"] == "MRR on dev rises from 0.000 to 0.200"


def test_the_title_of_the_dev_curve_names_the_best_epoch() -> None:
    values = [0.123, 0.137, 0.109]
    rows = [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}} for epoch, value in enumerate(values)]
    title = curves.metric_curve({"a": [rows]}, "mrr").to_dict()["title"]
    assert title == "MRR on dev goes from 0.123 to 0.109; the best model, after epoch 1, has 0.137"


@pytest.mark.parametrize(
    ("field", "values", "title"),
    [
        ("learning_rate", [2e-5, 1e-6], "The learning rate falls from 2.0e-5 to 1.0e-6"),
        ("tokens_per_second", [1500.4, 12000.0], "The speed rises from 1,500 to 12,000 tokens/s"),
        ("memory_bytes", [2.0**28, 2.0**29], "The peak memory rises from 256 to 512 MiB"),
    ],
)
def test_a_title_formats_small_and_large_numbers(field: str, values: list[float], title: str) -> None:
    assert curves.step_curve({"a": [steps(values, field)]}, field).to_dict()["title"] == title


def test_logged_fields_are_those_of_the_steps() -> None:
    rows = [{"kind": "step", "step": 1, "loss": 1.0, "temperature": None, "memory_bytes": 5, "loss_extra": 1.0}]
    assert curves.logged_fields([*rows, {"kind": "evaluation", "epoch": 1, "hardness": 0.5}]) == [
        "loss",
        "memory_bytes",
    ]


def evaluated(*values: float) -> list[dict[str, object]]:
    return [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}} for epoch, value in enumerate(values)]


def test_the_curve_of_a_setting_is_the_mean_of_its_seeds_at_shared_epochs() -> None:
    result = [curves.evaluations(rows, "mrr") for rows in (evaluated(0.5, 0.6, 0.9), evaluated(0.5, 0.8))]
    assert curves.mean_curve(result, across="epoch") == [
        {"epoch": 0, "value": 0.5, "low": 0.5, "high": 0.5, "seconds": 0.0},
        {"epoch": 1, "value": pytest.approx(0.7), "low": 0.6, "high": 0.8, "seconds": 0.0},
    ]


def test_a_single_seed_has_no_band() -> None:
    alone = curves.evaluations(evaluated(0.5, 0.6), "mrr")
    assert curves.mean_curve([alone, []], across="epoch") == alone
    assert curves.mean_curve([[], []], across="epoch") == []


def test_the_best_epoch_is_the_first_of_ties_and_never_the_untrained_one() -> None:
    result = curves.best_and_last(curves.evaluations(evaluated(0.9, 0.6, 0.7, 0.7, 0.5), "mrr"))
    assert result == curves.BestAndLast(0.7, 2, 0.5, 4)
    assert curves.best_and_last(curves.evaluations(evaluated(0.9), "mrr")) is None


def test_a_loss_that_diverges_at_once_has_a_trend() -> None:
    jump = [0.3, 1.0, 3.7, *[3.3, 3.5] * 10]
    title = curves.step_curve({"hot": [steps(jump)]}, "loss").to_dict()["title"]
    assert title == "The loss rises from 0.300 to 3.400 (first step, mean of the last fifth of the steps)"


def test_titles_of_several_settings() -> None:
    settings = {"cold": [evaluated(0.5, 0.6), evaluated(0.5, 0.8)], "warm": [evaluated(0.5, 0.4)]}
    assert curves.metric_curve(settings, "mrr").to_dict()["title"] == (
        "MRR on dev is 0.700 and 0.400 after the best epoch, 0.500 before training"
    )
    losses = {"cold": [steps([2.0] * 5 + [1.0, 0.0] * 10)], "warm": [steps([0.5] * 25)]}
    assert curves.step_curve(losses, "loss").to_dict()["title"] == (
        "The loss ends at 0.400 and 0.500 on average over the last fifth"
    )
    assert curves.metric_curve({"cold": [[]]}, "mrr").to_dict()["title"] == "MRR on dev: no value yet"
    assert (
        curves.step_curve({"cold": [steps([2.0, 1.0])]}, "loss").to_dict()["title"]
        == "The loss is 1.500 on average over 2 steps"
    )
    assert curves.step_curve({"cold": [[]]}, "loss").to_dict()["title"] == "The loss: no value yet"


def test_only_a_setting_of_several_seeds_has_a_band() -> None:
    spec = curves.metric_curve({"a": [evaluated(0.5, 0.6)]}, "mrr").to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["line", "rule"]
    spec = curves.metric_curve({"a": [evaluated(0.5, 0.6), evaluated(0.5, 0.7)]}, "mrr").to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["line", "area", "rule"]


def test_the_untrained_value_that_all_runs_share_is_a_dashed_gray_line() -> None:
    *_, line = curves.metric_curve({"a": [evaluated(0.5, 0.6)]}, "mrr").to_dict()["layer"]
    assert line["data"]["values"] == [{"value": 0.5, "run": "untrained"}]
    assert (line["mark"]["color"], line["mark"]["strokeDash"]) == (theme.REFERENCE, list(theme.BASELINE_DASH))
    two = curves.metric_curve({"a": [evaluated(0.5, 0.6)] * 2, "b": [evaluated(0.5, 0.7)]}, "mrr").to_dict()
    assert two["layer"][-1]["data"]["values"] == [{"value": 0.5, "run": "untrained"}]
    for others in ([evaluated(0.4, 0.7)], [evaluated(0.4, 0.7), evaluated(0.6, 0.7)]):
        two = curves.metric_curve({"a": [evaluated(0.5, 0.6)], "b": others}, "mrr").to_dict()
        assert all(layer["mark"]["type"] != "rule" for layer in two["layer"])


def test_the_highest_value_of_a_single_setting_has_its_interval() -> None:
    settings = {"a": [evaluated(0.5, 0.7, 0.6)]}
    spec = curves.metric_curve(settings, "mrr", colors=["#123456"], interval=(0.6, 0.8)).to_dict()
    (bar,) = [layer for layer in spec["layer"] if "y2" in layer["encoding"]]
    assert bar["data"]["values"] == [{"epoch": 1, "low": 0.6, "high": 0.8}]
    assert bar["mark"]["color"] == "#123456"


def test_a_run_that_was_evaluated_within_an_epoch_has_steps() -> None:
    rows = [
        {"kind": "evaluation", "epoch": 0, "dev": {"mrr": 0.3}},
        {"kind": "evaluation", "epoch": 0.4, "step": 8, "dev": {"mrr": 0.4}},
    ]
    spec = curves.metric_curve({"a": [rows]}, "mrr", verdict="significant", interval=(0.3, 0.5)).to_dict()
    assert spec["title"] == "MRR on dev rises from 0.300 to 0.400 (against the start: significant)"
    assert spec["layer"][0]["encoding"]["x"]["field"] == "step"
    assert {"step": 8, "low": 0.3, "high": 0.5} in [
        layer.get("data", {}).get("values", [{}])[0] for layer in spec["layer"]
    ]


def test_exact_values_are_not_smoothed() -> None:
    rows = [{"kind": "step", "step": step, "loss": 1.0 / step, "temperature": 0.1} for step in range(1, 90)]
    view = curves.CurveView(smoothing=0.6)
    for field, is_smoothed in (("temperature", False), ("loss", True)):
        spec = curves.step_curve({"a": [rows]}, field, view).to_dict()
        values = spec["layer"][0]["data"]["values"] if "data" in spec["layer"][0] else spec["data"]["values"]
        assert ("raw" in values[0]) is is_smoothed
        assert is_smoothed or {point["value"] for point in values} == {0.1}


def test_a_run_with_a_single_step_has_a_marker_next_to_longer_runs() -> None:
    rows = [{"kind": "step", "step": step, "loss": 1.0 / step} for step in range(1, 9)]
    layers = curves.step_curve({"long": [rows], "short": [rows[:1]]}, "loss").to_dict()["layer"]
    (marker,) = [layer for layer in layers if layer["mark"]["type"] == "point"]
    assert marker["transform"] == [{"filter": {"field": "run", "oneOf": ["short"]}}]


def test_the_merge_curve_shows_target_and_general_score_and_a_rule_at_alpha() -> None:
    points = [{"alpha": alpha, "dev": alpha / 2, "general_score": 1 - alpha} for alpha in (0.0, 0.5, 1.0)]
    text = str(curves.merge_curve(points, "mrr", 0.5).to_dict())
    assert "'run': 'general score'" in text
    assert "'run': 'MRR on dev'" in text
    assert "[{'alpha': 0.5}]" in text
    without = [point | {"general_score": None} for point in points]
    assert "'run': 'general score'" not in str(curves.merge_curve(without, "mrr", 0.5).to_dict())


def test_the_axis_of_a_constant_metric_has_a_range_around_it() -> None:
    def domain(values: list[float], view: curves.CurveView = curves.DEFAULT_VIEW) -> list[float] | None:
        rows = [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}} for epoch, value in enumerate(values)]
        scales = [
            layer["encoding"]["y"]["scale"]
            for layer in curves.metric_curve({"a": [rows]}, "mrr", view).to_dict()["layer"]
            if "scale" in layer["encoding"]["y"]
        ]
        assert len(scales) == 1
        return scales[0].get("domain")

    for view in (curves.DEFAULT_VIEW, curves.CurveView(log=True)):
        assert domain([5 / 12, 5 / 12 + 1e-12], view) == pytest.approx([0.375, 0.458], abs=1e-3)
        assert domain([0.4, 0.5], view) is None
    assert domain([1.0, 1.0]) == [0.9, 1.0]
    assert domain([0.0, 0.0]) == [0.0, 1.0]

"""Tests of the figures of the lessons."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bsc_core.figures import lessons, theme
from bsc_core.figures.batches import plans


def drawn(chart) -> dict:
    return json.loads(chart.to_json())


def test_metrics_are_drawn_over_the_setting_with_a_rule_at_its_value() -> None:
    table = lessons.metric_table([0.0, 0.5, 1.0], {"MRR": [0.1, 0.9, 0.8], "rank correlation": [0.9, 0.8, 0.3]})
    assert list(table.columns) == ["setting", "metric", "value", "low", "high"]
    assert len(table) == 6
    figure = drawn(lessons.metrics_figure(table, 0.5, title="Two metrics", axis="mu", value="score"))
    assert figure["title"] == "Two metrics"
    rows = [row for data in figure["datasets"].values() for row in data]
    assert {"setting": 0.5} in rows
    assert sum("metric" in row for row in rows) == 6
    scales = json.dumps(figure)
    assert lessons.METRIC_COLORS[0] in scales
    assert lessons.METRIC_COLORS[1] in scales


def test_a_setting_over_decades_has_a_logarithmic_axis() -> None:
    table = lessons.metric_table([0.01, 10.0], {"share": [0.2, 1.0]})
    figure = json.dumps(
        drawn(
            lessons.metrics_figure(
                table, 0.1, title="t", axis="margin", value="share", value_format="%", logarithmic=True
            )
        )
    )
    assert '"type": "log"' in figure


def test_repetitions_are_a_band_and_the_baseline_is_dashed() -> None:
    table = lessons.metric_table([0.0, 1.0], {"MRR": [[0.1, 0.3], [0.5, 0.9]]})
    assert table["value"].tolist() == pytest.approx([0.2, 0.7])
    assert table[["low", "high"]].to_numpy().tolist() == [[0.1, 0.3], [0.5, 0.9]]
    figure = drawn(
        lessons.metrics_figure(table, 0.5, title="t", axis="mu", value="MRR", baseline=("untrained", [0.4, 0.4]))
    )
    marks = [layer["mark"] for layer in figure["layer"]]
    assert any(mark["type"] == "area" for mark in marks)
    [dashes] = {json.dumps(layer["encoding"]["strokeDash"]["scale"]) for layer in figure["layer"] if _has_dashes(layer)}
    assert json.loads(dashes) == {"domain": ["MRR", "untrained"], "range": [[1, 0], [6, 4]]}


def test_metrics_drawn_together_have_one_name_and_color_and_stay_separate_lines() -> None:
    table = lessons.metric_table([0.0, 1.0], {"query 1": [0.1, 0.2], "query 2": [0.3, 0.1]})
    figure = drawn(lessons.metrics_figure(table, 0, title="t", axis="x", value="y", together="each query"))
    lines = [layer for layer in figure["layer"] if layer["mark"]["type"] == "line"]
    assert lines[0]["encoding"]["color"]["scale"]["domain"] == ["each query"]
    assert lines[0]["encoding"]["detail"]["field"] == "metric"
    settings = {"title": "t", "axis": "x", "value": "y", "together": "others"}
    figure = drawn(lessons.metrics_figure(table, 0, single=("query 2", "the second"), **settings))
    lines = [layer for layer in figure["layer"] if layer["mark"]["type"] == "line"]
    scale = lines[0]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["the second", "others"]
    assert len(set(scale["range"])) == 2


def test_the_rows_of_a_legend_are_not_wider_than_the_figure() -> None:
    names = {"weights": [0.1, 0.2], "lower temperature": [0.1, 0.3]}
    table = lessons.metric_table([0.0, 1.0], names)

    def columns(**settings: bool) -> int:
        figure = drawn(lessons.metrics_figure(table, 0, title="t", axis="x", value="y", **settings))
        return next(layer for layer in figure["layer"] if _has_dashes(layer))["encoding"]["color"]["legend"]["columns"]

    assert [columns(), columns(narrow=True)] == [2, 1]
    wide = lessons.LEGEND
    assert lessons.legend_columns(["positive", "false negative", "false negative, if excluded"], wide) == 1
    assert lessons.legend_columns(["MRR", "recall", "before"], wide) == 3
    assert lessons.legend_columns(["MRR"], wide) == 1


def _has_dashes(layer: dict) -> bool:
    return "strokeDash" in layer.get("encoding", {})


def test_positives_and_false_negatives_have_their_colors() -> None:
    table = lessons.metric_table([0, 1, 2], {"positive": [0.1, 0.2, 0.3], "false negative": [0.3, 0.2, 0.1]})
    figure = drawn(lessons.metrics_figure(table, 2, title="t", axis="step", value="cosine"))
    [color] = {json.dumps(layer["encoding"]["color"]["scale"]) for layer in figure["layer"] if _has_dashes(layer)}
    assert json.loads(color)["range"] == [theme.POSITIVE, theme.FALSE_NEGATIVE]
    assert '"tickMinStep": 1' in json.dumps(figure)


def test_shares_are_bars_with_their_percentage() -> None:
    figure = drawn(lessons.shares_figure(["hard", "easy"], np.array([0.875, 0.125]), title="t", axis="share"))
    [rows] = figure["datasets"].values()
    assert [row["text"] for row in rows] == ["88%", "12%"]


def test_the_bars_of_batch_orders_have_the_colors_of_the_other_figures() -> None:
    names, colors = ["random", "nearest"], plans.STRATEGY_COLORS
    chart = lessons.shares_figure(names, np.array([0.2, 0.8]), title="t", axis="share", colors=colors)
    scale = drawn(chart)["layer"][0]["encoding"]["color"]["scale"]
    assert scale == {"domain": names, "range": [theme.REFERENCE, theme.HARD_NEGATIVE]}


def test_classes_are_all_drawn_in_their_colors() -> None:
    names = ("entailment", "neutral", "contradiction")
    classes = lessons.classes_figure(np.array([0.9, 0.1, -0.5]), np.array([0, 1, 2]), names, title="t")
    figure = json.dumps(drawn(classes))
    assert all(color in figure for color in lessons.CLASS_COLORS.values())
    assert all(name in figure for name in names)
    classes = lessons.classes_figure(np.zeros(3), np.arange(3), names, title="t", before=[0.3, 0.2, 0.1])
    tables = list(drawn(classes)["datasets"].values())
    assert [{"cosine": cosine, "class": name} for cosine, name in zip((0.3, 0.2, 0.1), names, strict=True)] in tables


def test_pairs_are_points_at_their_grade_and_cosine() -> None:
    figure = drawn(lessons.grades_figure(np.array([0.2, 1.0]), np.array([0.3, 0.9]), title="t"))
    tables = list(figure["datasets"].values())
    assert [{"grade": 0.2, "cosine": 0.3}, {"grade": 1.0, "cosine": 0.9}] in tables
    assert [{"grade": 0.0, "cosine": 0.0}, {"grade": 1.0, "cosine": 1.0}] in tables


def test_the_axis_of_a_limit_can_be_fixed() -> None:
    figure = lessons.limit_figure({"one": np.array([0.1])}, 0.0, title="t", axis="gap", domain=(-1, 1), colors=["red"])
    assert '"domain": [-1, 1]' in json.dumps(drawn(figure))
    assert '"red"' in json.dumps(drawn(figure))


def test_values_below_a_limit_are_in_the_shaded_range() -> None:
    gaps = {"false": np.array([-0.1, 0.05]), "hard": np.array([0.02])}
    figure = drawn(lessons.limit_figure(gaps, 0.03, title="t", axis="gap"))
    tables = list(figure["datasets"].values())
    [edges] = [rows for rows in tables if "start" in rows[0]]
    [values] = [rows for rows in tables if "kind" in rows[0]]
    assert edges[0]["gap"] == 0.03
    assert edges[0]["start"] < min(row["gap"] for row in values)
    assert [row["kind"] for row in values] == ["false", "false", "hard"]
    assert theme.FALSE_NEGATIVE in json.dumps(figure)

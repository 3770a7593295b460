"""Tests of the calibration figure: bins with confidence intervals, and thresholds."""

from __future__ import annotations

import json

from bsc_core.evaluation import calibration_curve
from bsc_core.figures import theme
from bsc_core.figures.evaluation.calibration import Bin, calibration, hit_curve, table

SCORES = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9]
TRUTH = [False, False, True, False, True, True]


def bins():
    curve = calibration_curve(SCORES, TRUTH, bins=3)
    columns = zip(curve.score, curve.share, curve.low, curve.high, curve.pairs, strict=True)
    return [Bin(*(float(value) for value in one[:4]), int(one[4])) for one in columns]


def rows(chart):
    return [row for layer in chart["layer"] for row in layer["data"]["values"]]


def test_every_bin_of_every_model_is_drawn_with_its_interval():
    chart = calibration({"one": bins(), "two": bins()[:2]}, thresholds={"one": 0.5, "two": None}).to_dict()
    drawn = [row for row in rows(chart) if "share" in row]
    assert {json.dumps(row) for row in drawn} == {json.dumps(row) for row in table({"one": bins(), "two": bins()[:2]})}
    assert all(row["low"] <= row["share"] <= row["high"] for row in drawn)
    assert [(row["model"], row["score"]) for row in rows(chart) if "what" in row] == [("one", 0.5)]


def test_the_first_model_is_gray_and_dashed_the_second_solid():
    line = calibration({"one": bins(), "two": bins()}, thresholds={}).to_dict()["layer"][0]["encoding"]
    assert line["color"]["scale"]["range"][0] == theme.REFERENCE
    assert line["strokeDash"]["scale"]["range"] == [[6, 4], [1, 0]]


def test_axis_titles_and_the_range_of_shares():
    line = calibration({"one": bins()}, thresholds={}).to_dict()["layer"][0]["encoding"]
    assert (line["x"]["title"], line["y"]["title"]) == ("cosine of the pair", "share of positive pairs")
    assert line["y"]["scale"]["domain"] == [0, 1]


def test_hits_by_cut_off_leave_out_other_metrics_and_undefined_values() -> None:
    models = {"before": {"has_positive@1": 0.5, "has_positive@5": None, "mrr": 0.6}, "after": {"has_positive@1": 0.7}}
    values = hit_curve(models).to_dict()["data"]["values"]
    assert values == [{"model": "before", "k": 1, "value": 0.5}, {"model": "after", "k": 1, "value": 0.7}]

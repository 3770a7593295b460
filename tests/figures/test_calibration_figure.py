"""The calibration curve as data: every bin with its interval, and the thresholds."""

from __future__ import annotations

import json

from bsc_core.evaluation import calibration_curve
from bsc_core.figures import theme
from bsc_core.figures.calibration import Bin, calibration, table

SCORES = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9]
TRUTH = [False, False, True, False, True, True]


def bins():
    curve = calibration_curve(SCORES, TRUTH, bins=3)
    columns = zip(curve.score, curve.share, curve.low, curve.high, curve.pairs, strict=True)
    return [Bin(*(float(value) for value in one[:4]), int(one[4])) for one in columns]


def rows(chart):
    return [row for layer in chart["layer"] for row in layer["data"]["values"]]


def test_every_bin_of_every_model_is_drawn_with_its_interval():
    chart = calibration({"one": bins(), "two": bins()[:2]}, cuts={"one": 0.5, "two": None}).to_dict()
    drawn = [row for row in rows(chart) if "share" in row]
    assert {json.dumps(row) for row in drawn} == {json.dumps(row) for row in table({"one": bins(), "two": bins()[:2]})}
    assert all(row["low"] <= row["share"] <= row["high"] for row in drawn)
    assert [(row["model"], row["score"]) for row in rows(chart) if "what" in row] == [("one", 0.5)]


def test_the_first_model_is_grey_and_solid_the_second_dashed():
    line = calibration({"one": bins(), "two": bins()}, cuts={}).to_dict()["layer"][0]["encoding"]
    assert line["color"]["scale"]["range"][0] == theme.REFERENCE
    assert line["strokeDash"]["scale"]["range"] == [[1, 0], [6, 4]]


def test_axes_say_what_they_show_and_shares_go_from_0_to_1():
    line = calibration({"one": bins()}, cuts={}).to_dict()["layer"][0]["encoding"]
    assert (line["x"]["title"], line["y"]["title"]) == ("cosine of the pair", "share of positive pairs")
    assert line["y"]["scale"]["domain"] == [0, 1]

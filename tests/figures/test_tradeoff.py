"""Polarity against semantics as data: every point once, both floors, the untrained model, and the front marked."""

from __future__ import annotations

import json

from bsc_core.evaluation import pareto_front
from bsc_core.figures.tradeoff import MARKED, OTHER, TradeoffPoint, tradeoff


def figure():
    polarity, semantic = [0.7, 0.9, 0.88, 0.86], [0.83, 0.81, 0.8, 0.82]
    front = pareto_front(polarity, semantic)
    names = [("margin 0.1", 1), ("margin 0.1", 2), ("margin 5", 1), ("margin 5", 2)]
    points = [
        TradeoffPoint(*name, *each) for name, *each in zip(names, polarity, semantic, front.tolist(), strict=True)
    ]
    return tradeoff(points, floors=(0.5, 0.6), reference=(0.68, 0.84)).to_dict()


def values(chart):
    return {json.dumps(row) for layer in chart["layer"] for row in layer["data"]["values"]}


def test_every_point_both_floors_and_the_untrained_model_are_drawn():
    rows = [json.loads(row) for row in values(figure())]
    assert len([row for row in rows if "series" in row]) == 4
    assert {row["what"]: row.get("value") for row in rows if "what" in row} == {
        "P by chance": 0.5,
        "S by chance": 0.6,
        "untrained": None,
    }


def test_points_that_no_other_beats_are_marked():
    rows = [json.loads(row) for row in values(figure())]
    marked = {(row["series"], row["epoch"]): row["front"] for row in rows if "series" in row}
    assert marked == {
        ("margin 0.1", 1): MARKED,
        ("margin 0.1", 2): MARKED,
        ("margin 5", 1): OTHER,
        ("margin 5", 2): MARKED,
    }


def test_axes_say_what_they_show():
    titles = [layer["encoding"]["x"].get("title") for layer in figure()["layer"] if "x" in layer["encoding"]]
    assert "polarity P" in titles

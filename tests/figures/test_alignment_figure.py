"""Tests of the alignment and uniformity figure: models in training order, and the title."""

from __future__ import annotations

import pytest

from bsc_core.figures import theme
from bsc_core.figures.evaluation import alignment

NAMES = ["Before", "Epoch 1", "Epoch 2"]


def test_points_are_in_training_order_and_the_untrained_model_is_gray() -> None:
    figure = alignment.alignment_figure(
        alignment.alignment_table(NAMES, [1.1, 0.9, 1.0], [-3.7, -3.8, -3.75], ["a"] * 3)
    ).to_dict()
    line, points, right, left = figure["layer"]
    assert (right["mark"]["align"], left["mark"]["align"]) == ("left", "right")
    assert {one["encoding"]["text"]["field"] for one in (right, left)} == {"label"}
    [rows] = figure["datasets"].values()
    assert [row["outside"] for row in rows] == [1, -1, 1], "a label is not on the side away from the line"
    assert [row["label"] for row in rows] == ["Before", "1", "2"]
    assert line["mark"]["type"] == "line"
    assert line["encoding"]["order"]["field"] == "order"
    assert line["encoding"]["detail"]["field"] == "run"
    scale = points["encoding"]["color"]["scale"]
    assert scale["domain"] == NAMES
    assert scale["range"][0] == theme.REFERENCE
    low, high = points["encoding"]["y"]["scale"]["domain"]
    assert low < 0.9 < 1.1 < high


CLOSER, FURTHER = alignment.Change(-0.11, -0.13, -0.09, True), alignment.Change(0.11, 0.09, 0.13, True)
CHANCE, SAME = alignment.Change(-0.11, -0.3, 0.1, False), alignment.Change(0.0, 0.0, 0.0, False)
ALONE = alignment.Change(-0.11, None, None, False)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ((CLOSER, CLOSER), "Pairs closer together, texts spread more evenly"),
        ((FURTHER, FURTHER), "Pairs further apart, texts spread less evenly"),
        ((SAME, SAME), "Pairs unchanged, texts spread unchanged"),
        ((CHANCE, FURTHER), "Pairs: change not significant, texts spread less evenly"),
        ((CLOSER, ALONE), "Pairs closer together, spread: change not significant"),
        (None, "Alignment 1.000, uniformity -3.000"),
    ],
)
def test_the_title_summarizes_significant_changes(changes: alignment.GeometryChanges | None, title: str) -> None:
    table = alignment.alignment_table(NAMES[:1], [1.0], [-3.0], ["a"])
    assert ", ".join(alignment.alignment_summary(table, changes)) == title


def test_the_subtitle_has_the_differences_with_their_intervals() -> None:
    table = alignment.alignment_table(NAMES[:2], [1.0, 0.89], [-3.0, -3.11], ["a", "a"])
    title = alignment.alignment_figure(table, (CHANCE, ALONE)).to_dict()["title"]
    assert title["text"] == ["Pairs: change not significant,", "spread: change not significant"]
    minus = "\N{MINUS SIGN}"
    assert title["subtitle"] == [
        f"alignment {minus}0.110 [{minus}0.300, +0.100]",
        f"uniformity {minus}0.110 [no interval]",
    ]


def test_axes_of_equal_models_have_a_range() -> None:
    figure = alignment.alignment_figure(
        alignment.alignment_table(NAMES[:2], [1.0, 1.0], [-3.0, -3.0], ["a", "a"])
    ).to_dict()
    low, high = figure["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < high


def test_a_single_model_has_a_label() -> None:
    figure = alignment.alignment_figure(alignment.alignment_table(NAMES[:1], [1.1], [-3.7], ["a"])).to_dict()
    [rows] = figure["datasets"].values()
    assert [(row["label"], row["outside"]) for row in rows] == [("Before", 1)]

"""Alignment against uniformity: the models as points in the order of training, and a title that says what changed."""

from __future__ import annotations

import pytest

from bsc_core.figures import sphere, theme

NAMES = ["Before", "Epoch 1", "Epoch 2"]


def test_points_come_in_the_order_of_training_and_the_untrained_one_is_grey() -> None:
    figure = sphere.sphere_figure(sphere.sphere_table(NAMES, [1.1, 0.9, 1.0], [-3.7, -3.8, -3.75], ["a"] * 3)).to_dict()
    line, points = figure["layer"]
    assert line["mark"]["type"] == "line"
    assert line["encoding"]["order"]["field"] == "order"
    assert line["encoding"]["detail"]["field"] == "run"
    scale = points["encoding"]["color"]["scale"]
    assert scale["domain"] == NAMES
    assert scale["range"][0] == theme.REFERENCE
    low, high = points["encoding"]["y"]["scale"]["domain"]
    assert low < 0.9 < 1.1 < high


CLOSER, FURTHER = sphere.Change(-0.11, -0.13, -0.09, True), sphere.Change(0.11, 0.09, 0.13, True)
CHANCE, SAME = sphere.Change(-0.11, -0.3, 0.1, False), sphere.Change(0.0, 0.0, 0.0, False)
ALONE = sphere.Change(-0.11, None, None, False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((CLOSER, CLOSER), "Pairs lie closer together, texts more evenly spread"),
        ((FURTHER, FURTHER), "Pairs lie further apart, texts less evenly spread"),
        ((SAME, SAME), "Pairs lie unchanged, texts spread unchanged"),
        ((CHANCE, FURTHER), "How pairs moved cannot be told from chance, texts less evenly spread"),
        ((CLOSER, ALONE), "Pairs lie closer together, how texts spread cannot be told from chance"),
        (None, "Alignment 1.000, uniformity -3.000"),
    ],
)
def test_the_title_says_what_training_did_where_that_can_be_told(changes: sphere.Changes | None, words: str) -> None:
    table = sphere.sphere_table(NAMES[:1], [1.0], [-3.0], ["a"])
    assert ", ".join(sphere.sphere_clauses(table, changes)) == words


def test_the_differences_stand_below_the_title_with_their_intervals() -> None:
    table = sphere.sphere_table(NAMES[:2], [1.0, 0.89], [-3.0, -3.11], ["a", "a"])
    title = sphere.sphere_figure(table, (CHANCE, ALONE)).to_dict()["title"]
    assert title["text"] == [
        *("How pairs moved cannot be told", "from chance"),
        *("how texts spread cannot be told", "from chance"),
    ]
    minus = "\N{MINUS SIGN}"
    assert title["subtitle"] == [
        f"alignment {minus}0.110 [{minus}0.300, +0.100]",
        f"uniformity {minus}0.110 [no interval]",
    ]


def test_models_that_are_alike_still_have_a_frame() -> None:
    figure = sphere.sphere_figure(sphere.sphere_table(NAMES[:2], [1.0, 1.0], [-3.0, -3.0], ["a", "a"])).to_dict()
    low, high = figure["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < high

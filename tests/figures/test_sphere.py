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


@pytest.mark.parametrize(
    ("alignments", "uniformities", "words"),
    [
        ([1.0, 0.9], [-3.0, -3.1], "Pairs lie closer together, texts more evenly spread"),
        ([1.0, 1.2], [-3.0, -2.9], "Pairs lie further apart, texts less evenly spread"),
        ([1.0], [-3.0], "Alignment 1.000, uniformity -3.000"),
    ],
)
def test_the_title_says_what_training_did(alignments: list[float], uniformities: list[float], words: str) -> None:
    own = len(alignments)
    table = sphere.sphere_table(
        [*NAMES[:own], "Another run"], [*alignments, 0.1], [*uniformities, -9.0], ["a"] * own + ["b"]
    )
    assert sphere.sphere_sentence(table) == words


def test_models_that_are_alike_still_have_a_frame() -> None:
    figure = sphere.sphere_figure(sphere.sphere_table(NAMES[:2], [1.0, 1.0], [-3.0, -3.0], ["a", "a"])).to_dict()
    low, high = figure["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < high

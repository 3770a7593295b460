"""The funnel: every step with its count, measured against the most of its kind."""

from __future__ import annotations

import pytest

from bsc_core.data.stages import Stage
from bsc_core.figures import funnel

STAGES = (
    Stage("sentences", 144, (), "2 classes"),
    Stage("neighbours", 4608),
    Stage("above the threshold", 2304),
    Stage("distinct", 1152),
    Stage("examples", 10_000),
    Stage("after the cap", 1000),
    Stage("after the target", 0),
)


def test_each_step_is_a_share_of_the_most_of_its_kind() -> None:
    table = funnel.funnel_table(STAGES)
    assert table["step"].tolist() == [stage.name for stage in STAGES]
    assert table["count"].tolist() == [stage.count for stage in STAGES]
    assert table["left"].tolist() == pytest.approx([1, 1, 0.5, 0.25, 1, 0.1, 0])
    assert table["kind"].tolist() == ["sentences", *["neighbours"] * 3, *["examples"] * 3]


def test_steps_of_other_funnels_all_count_rows() -> None:
    table = funnel.funnel_table((Stage("positive pairs", 50), Stage("negatives", 200), Stage("training rows", 100)))
    assert table["kind"].unique().tolist() == ["rows"]
    assert table["left"].tolist() == pytest.approx([0.25, 1, 0.5])


def test_a_funnel_in_which_nothing_is_left_has_shares_of_zero() -> None:
    assert funnel.funnel_table((Stage("rows read", 0),))["left"].tolist() == [0]


def test_the_picture_has_a_bar_and_a_number_for_each_step_in_their_order() -> None:
    figure = funnel.funnel_figure(funnel.funnel_table(STAGES), "144 sentences became 0 pairs").to_dict()
    [bars, words] = figure["layer"]
    assert bars["title"] == "144 sentences became 0 pairs"
    assert (bars["mark"]["type"], words["mark"]["type"]) == ("bar", "text")
    assert bars["encoding"]["y"]["sort"] is None
    [rows] = figure["datasets"].values()
    assert [row["told"] for row in rows][:2] == ["144", "4,608"]
    assert bars["encoding"]["color"]["scale"]["domain"] == ["sentences", "neighbours", "examples"]


def test_one_kind_needs_no_legend() -> None:
    figure = funnel.funnel_figure(funnel.funnel_table((Stage("anchors", 3),)), "3 anchors").to_dict()
    assert figure["layer"][0]["encoding"]["color"]["legend"] is None

"""Points and figure of a finding on margins: one for each setting and epoch, means over seeds, and the front."""

from __future__ import annotations

import pytest

from bsc_core.figures.findings.margins import ON_FRONT, caption, margins_figure
from bsc_core.reproduction.margin_points import chance_point, margin_points, untrained_point


def arm(name: str, title: str, points: list[tuple[int, int, float, float]], **settings: object) -> dict:
    keys = ("seed", "epoch", "polarity", "semantic")
    details = {"points": [dict(zip(keys, point, strict=True)) for point in points]}
    details |= {"reference": [0.6, 0.5], "floors": [0.5, 0.1]}
    return {"name": name, "title": title, "settings": settings, "details": details}


FINDING = {
    "arms": [
        arm("untrained", "Untrained", []),
        arm(
            "small",
            "Triplet 0.1",
            [(0, 1, 0.7, 0.48), (0, 2, 0.8, 0.44), (1, 1, 0.72, 0.46), (1, 2, 0.84, 0.46)],
            **{"loss.name": "triplet", "loss.margin": 0.1},
        ),
        arm("mnrl", "MNRL", [(0, 1, 0.55, 0.45), (0, 2, 0.56, 0.45), (1, 1, 0.57, 0.45)], **{"loss.name": "mnrl"}),
    ]
}


def test_points_are_means_over_seeds_of_the_epochs_that_all_seeds_store() -> None:
    rows = margin_points(FINDING)
    assert [(row["setting"], row["epoch"]) for row in rows] == [("Triplet 0.1", 1), ("Triplet 0.1", 2), ("MNRL", 1)]
    assert [row["polarity"] for row in rows] == pytest.approx([0.71, 0.82, 0.56])
    assert [row["semantic"] for row in rows] == pytest.approx([0.47, 0.45, 0.45])
    assert [row["margin"] for row in rows] == [0.1, 0.1, None]


def test_a_point_worse_than_another_or_the_untrained_encoder_is_not_on_the_front() -> None:
    assert [row["front"] for row in margin_points(FINDING)] == [True, True, False]
    assert untrained_point(FINDING) == (0.6, 0.5)
    assert chance_point(FINDING) == (0.5, 0.1)


def test_a_finding_of_other_metrics_has_no_points() -> None:
    other = {"arms": [{"name": "bsc", "title": "BSC", "settings": {}, "details": {}}, {"name": "old", "settings": {}}]}
    assert margin_points(other) == []
    assert untrained_point(other) is None


def test_the_figure_draws_every_point_and_names_each_margin_once() -> None:
    figure = margins_figure(margin_points(FINDING), untrained=(0.6, 0.5), title="Gains and costs")
    chart = figure.to_dict()
    rows = chart["layer"][0]["data"]["values"]
    assert [row["label"] for row in rows] == ["", "0.1", ""]
    assert {row["loss"] for row in rows} == {"Triplet", "MNRL"}
    assert [row["front"] == ON_FRONT for row in rows] == [True, True, False]
    assert chart["title"] == "Gains and costs"
    assert "by chance P is 0.500 and S 0.100" in caption((0.5, 0.1))
    assert chart["layer"][-1]["data"]["values"] == [{"polarity": 0.6, "semantic": 0.5, "what": "untrained"}]


def test_settings_of_one_loss_that_end_in_one_point_share_a_label() -> None:
    five, ten = (
        arm(f"m{margin}", f"Triplet {margin}", [(0, 1, 0.7, 0.45)], **{"loss.name": "triplet", "loss.margin": margin})
        for margin in (5.0, 10.0)
    )
    rows = margin_points({"arms": [*FINDING["arms"], five, ten]})
    chart = margins_figure(rows, untrained=(0.6, 0.5), title="Saturated").to_dict()
    assert [row["label"] for row in chart["layer"][0]["data"]["values"]] == ["", "0.1", "", "5, 10", ""]

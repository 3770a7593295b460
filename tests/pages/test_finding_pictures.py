"""Pictures of a finding: polarity against meaning where it has points, the ten sentences where it has their map."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest


def arm(name: str, **details: Any) -> dict[str, Any]:
    settings = {"loss.name": "triplet", "loss.margin": 0.1}
    return {"name": name, "title": f"Arm {name}", "settings": settings, "details": details}


def shown(finding: dict[str, Any], *, opened: bool = False) -> AppTest:
    def page(finding: dict, opened: bool) -> None:
        import streamlit as st

        from pages.ui import finding_pictures

        if opened:
            st.session_state["findings.ten.x"] = True
        finding_pictures.draw(finding)

    app = AppTest.from_function(page, args=(finding, opened), default_timeout=60).run()
    assert not app.exception
    return app


def titles(app: AppTest) -> list[str]:
    return [json.loads(chart.proto.spec)["title"] for chart in app.get("vega_lite_chart")]


def test_points_are_drawn_with_what_the_best_setting_gained_and_paid() -> None:
    points = [{"seed": 0, "epoch": 1, "polarity": 0.65, "semantic": 0.36}]
    both = {"reference": [0.6, 0.4], "floors": [0.5, 0.1]}
    app = shown({"name": "x", "arms": [arm("untrained", points=[], **both), arm("a", points=points, **both)]})
    assert titles(app) == ["Arm a gains most: P +0.050 for S -0.040"]
    assert "by chance P is 0.500 and S 0.100" in app.caption[0].value
    assert [button.key for button in app.get("download_button")] == ["figure.findings.x.margins.data"]


def test_the_ten_sentences_are_drawn_once_they_are_opened() -> None:
    found = {"found": [2, 3], "margin": [0.1, 0.2], "others": [0.1, 0.1], "cosines": np.eye(10).tolist()}
    finding = {"name": "x", "arms": [arm("untrained", **found), arm("a", **{**found, "found": [3]})]}
    assert titles(shown(finding)) == []
    app = shown(finding, opened=True)
    assert titles(app) == ["Arm untrained: 2 to 3 of the 3 pairs that say the same come first"]
    assert "mean of 2 seeds" in app.caption[0].value
    app.selectbox[0].select("Arm a").run()
    assert titles(app) == ["Arm a: 3 of the 3 pairs that say the same come first"]


def test_a_finding_of_other_measures_has_none() -> None:
    app = shown({"name": "x", "arms": [arm("bsc"), {"name": "old", "title": "Old", "settings": {}}]})
    assert titles(app) == []
    assert not app.selectbox

"""Figures of a finding: polarity against semantic similarity, and the ten sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from tests.helpers.pages import figure_titles
from tests.helpers.waiting import PATIENCE_SECONDS


def arm(name: str, **details: Any) -> dict[str, Any]:
    settings = {"loss.name": "triplet", "loss.margin": 0.1}
    return {"name": name, "title": f"Arm {name}", "settings": settings, "details": details}


def draw_finding(finding: dict[str, Any], *, opened: bool = False) -> AppTest:
    def page(finding: dict, opened: bool) -> None:
        import streamlit as st

        from pages.ui.findings import figures

        if opened:
            st.session_state["findings.ten.x"] = True
        figures.draw(finding)

    app = AppTest.from_function(page, args=(finding, opened), default_timeout=PATIENCE_SECONDS).run()
    assert not app.exception
    return app


def test_the_title_names_the_setting_with_the_highest_polarity() -> None:
    points = [{"seed": 0, "epoch": 1, "polarity": 0.65, "semantic": 0.36}]
    both = {"reference": [0.6, 0.4], "floors": [0.5, 0.1]}
    app = draw_finding({"name": "x", "arms": [arm("untrained", points=[], **both), arm("a", points=points, **both)]})
    changes = "P +0.050, S \N{MINUS SIGN}0.040 compared with the untrained encoder"
    assert figure_titles(app) == [f"Highest polarity: Arm a ({changes})"]
    assert "by chance P is 0.500 and S 0.100" in app.caption[0].value
    assert [button.key for button in app.get("download_button")] == ["figure.findings.x.margins.data"]


def test_the_ten_sentences_are_drawn_when_expanded() -> None:
    result = {"found": [2, 3], "margin": [0.1, 0.2], "others": [0.1, 0.1], "cosines": np.eye(10).tolist()}
    finding = {"name": "x", "arms": [arm("untrained", **result), arm("a", **{**result, "found": [3]})]}
    assert figure_titles(draw_finding(finding)) == []
    app = draw_finding(finding, opened=True)
    assert figure_titles(app) == ["Arm untrained: 2 to 3 of the 3 paraphrase pairs are among the 3 most similar pairs"]
    assert "mean of 2 seeds" in app.caption[0].value
    app.selectbox[0].select("Arm a").run()
    assert figure_titles(app) == ["Arm a: 3 of the 3 paraphrase pairs are among the 3 most similar pairs"]


def test_a_finding_without_their_data_has_no_figures() -> None:
    app = draw_finding({"name": "x", "arms": [arm("bsc"), {"name": "old", "title": "Old", "settings": {}}]})
    assert figure_titles(app) == []
    assert not app.selectbox

"""New run offers the settings that were shown to help first, each beside what it was measured to gain."""

from __future__ import annotations

import pytest

from bsc_core.recipes.best import BEST_PRESETS
from bsc_core.recipes.presets import FAMILIES
from bsc_core.runs import RunStore
from pages.ui import starting

GAIN = "On stsb (dev, 3 seeds) spearman went from 0.800 untrained to 0.820: +0.020, interval +0.010 to +0.030."


def test_a_recommended_setting_is_offered_with_its_measured_gain(
    pages: type, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "measured_gain", {"best_stsb": GAIN}.get)
    app = pages.alone("train")
    assert next(iter(FAMILIES)) == "Recommended for"
    assert app.selectbox(key="train.family").options[0] == "Recommended for"
    assert not any("untrained to" in caption.value for caption in app.caption)
    app.selectbox(key="train.family").set_value("Recommended for").run()
    app.selectbox(key="train.preset").set_value("best_stsb").run()
    assert not app.exception
    assert f"{BEST_PRESETS['best_stsb'].when} {GAIN}" in [caption.value for caption in app.caption]
    assert app.selectbox(key="train.loss.name").value == "pearson"

"""Recommended settings: each preset is what its recipe proves, and the gain it is shown with is the measured one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import make_config
from bsc_core.recipes.best import ARM, BEST, BEST_PRESETS, BEST_RECIPES
from bsc_core.recipes.catalogue import RECIPES
from bsc_core.recipes.claims import UNTRAINED
from bsc_core.recipes.findings import read_findings, write_finding
from bsc_core.recipes.gains import gain_sentence, measured_gain
from bsc_core.recipes.presets import FAMILIES, preset_config
from bsc_core.recipes.reproducing import plans
from bsc_core.recipes.sample import sample_config


def finding(**statement: Any) -> dict[str, Any]:
    told = {"metric": "map", "split": "dev", "better": ARM, "difference": 0.05, "low": 0.02, "high": 0.08, **statement}
    before, after = ({"dev": {"map": {"value": value, "low": None, "high": None}}} for value in (0.7, 0.75))
    return {
        "name": "best_of_all",
        "form": "full",
        "data": [{"folder": "threads"}],
        "seeds": [0, 1, 2],
        "arms": [{"name": UNTRAINED, "metrics": before}, {"name": ARM, "metrics": after}],
        "statements": [told],
    }


def test_recommended_settings_are_the_first_family_of_presets_and_recipes_of_their_own() -> None:
    assert next(iter(FAMILIES.values())) == BEST_PRESETS
    assert {name: RECIPES[name] for name in BEST} == BEST_RECIPES


@pytest.mark.parametrize("name", list(BEST))
def test_a_recipe_trains_with_the_settings_that_its_preset_offers(name: str, tmp_path: Path) -> None:
    planned = plans(BEST_RECIPES[name], "small", data=None, runs=tmp_path)
    offered = make_config({**BEST[name].preset.values, "data": sample_config().model_dump()})
    assert {plan.values["loss"]["name"] for plan in planned} == {offered.loss.name}
    assert {plan.values["batching"]["strategy"] for plan in planned} == {offered.batching.strategy}
    for section, values in BEST_RECIPES[name].arms[ARM].values.items():
        proven = make_config({"data": {"train": "pairs.tsv"}, section: values})
        assert getattr(offered, section) == getattr(proven, section)


@pytest.mark.parametrize("name", list(BEST))
def test_every_statement_sets_the_trained_encoder_above_the_untrained_one_on_rows_not_trained_on(name: str) -> None:
    recipe = BEST_RECIPES[name]
    assert recipe.statements[0].split == "dev"
    assert {(one.better, one.worse, one.expects) for one in recipe.statements} == {(ARM, UNTRAINED, "better")}
    assert {one.metric for one in recipe.statements} <= set(recipe.metrics)
    parts = BEST[name].subset.parts
    assert all(parts[one.split].split != parts["train"].split for one in recipe.statements)
    assert len(recipe.seeds) >= 3


@pytest.mark.parametrize("name", list(BEST))
def test_a_setting_is_offered_only_where_its_gain_was_shown(name: str) -> None:
    known = read_findings().get(name)
    if known is None:
        pytest.skip("not measured")
    assert BEST[name].offered == (known["verdict"] == "holds")


@pytest.mark.parametrize("name", list(BEST_PRESETS))
def test_no_gain_is_typed_into_a_preset(name: str) -> None:
    assert not re.search(r"\d", BEST_PRESETS[name].when.replace("0 or 1", ""))
    assert preset_config(name, sample_config()).encoder.name == "bundled"


def test_the_gain_is_told_from_the_finding_with_both_values_and_the_interval() -> None:
    expected = "On threads (dev, 3 seeds) map went from 0.700 untrained to 0.750: +0.050, interval +0.020 to +0.080."
    assert gain_sentence(finding()) == expected
    assert gain_sentence(finding(low=None, high=None)).endswith("untrained to 0.750: +0.050, no interval.")


def test_a_loss_is_told_with_its_sign() -> None:
    assert ": -0.050, interval -0.080 to -0.020." in gain_sentence(finding(difference=-0.05, low=-0.08, high=-0.02))


def test_a_preset_without_a_finding_has_no_gain(tmp_path: Path) -> None:
    kept = read_findings()["best_stsb"] | finding()
    assert measured_gain("best_of_all", tmp_path) is None
    write_finding(kept, tmp_path)
    assert measured_gain("best_of_all", tmp_path) == gain_sentence(kept)

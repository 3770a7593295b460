"""Recommended settings: each preset is what its claim tests, and its gain is the one in the finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.presets.catalog import FAMILIES, RECOMMENDED, preset_config
from bsc_core.reproduction.catalog import ARM, CLAIMS, RECOMMENDED_SETTINGS
from bsc_core.reproduction.claims import UNTRAINED
from bsc_core.reproduction.findings import gain_sentence, measured_gain, read_findings, write_finding
from bsc_core.reproduction.runs import plan_runs


def finding(**statement: Any) -> dict[str, Any]:
    values = {
        "metric": "map",
        "split": "dev",
        "better": ARM,
        "difference": 0.05,
        "low": 0.02,
        "high": 0.08,
        **statement,
    }
    before, after = ({"dev": {"map": {"value": value, "low": None, "high": None}}} for value in (0.7, 0.75))
    return {
        "name": "best_of_all",
        "form": "full",
        "data": [{"folder": "threads"}],
        "seeds": [0, 1, 2],
        "arms": [{"name": UNTRAINED, "metrics": before}, {"name": ARM, "metrics": after}],
        "statements": [values],
    }


def test_recommended_settings_are_the_first_family_of_presets_and_have_claims() -> None:
    assert next(iter(FAMILIES.values())) == RECOMMENDED
    assert set(RECOMMENDED_SETTINGS) <= set(CLAIMS)


@pytest.mark.parametrize("name", list(RECOMMENDED_SETTINGS))
def test_a_claim_trains_with_the_settings_of_its_preset(name: str, tmp_path: Path) -> None:
    planned = plan_runs(CLAIMS[name], "small", data=None, runs=tmp_path)
    offered = make_config({**RECOMMENDED_SETTINGS[name].values, "data": sample_config().model_dump()})
    assert {plan.values["loss"]["name"] for plan in planned} == {offered.loss.name}
    assert {plan.values["batching"]["strategy"] for plan in planned} == {offered.batching.strategy}
    for section, values in CLAIMS[name].arms[ARM].values.items():
        tested = make_config({"data": {"train": "pairs.tsv"}, section: values})
        assert getattr(offered, section) == getattr(tested, section)


@pytest.mark.parametrize("name", list(RECOMMENDED_SETTINGS))
def test_every_statement_compares_trained_and_untrained_encoder_on_held_out_rows(name: str) -> None:
    claim = CLAIMS[name]
    assert claim.statements[0].split == "dev"
    assert {(one.better, one.worse, one.expects) for one in claim.statements} == {(ARM, UNTRAINED, "better")}
    assert {one.metric for one in claim.statements} <= set(claim.metrics)
    parts = RECOMMENDED_SETTINGS[name].subset.parts
    assert all(parts[one.split].split != parts["train"].split for one in claim.statements)
    assert len(claim.seeds) >= 3


@pytest.mark.parametrize("name", list(RECOMMENDED_SETTINGS))
def test_the_claim_of_each_setting_that_is_offered_is_supported(name: str) -> None:
    assert name in RECOMMENDED
    assert read_findings()[name]["verdict"] == "supported"


@pytest.mark.parametrize("name", list(RECOMMENDED))
def test_no_gain_is_typed_into_a_preset(name: str) -> None:
    assert not re.search(r"\d", RECOMMENDED[name].when.replace("0 or 1", ""))
    assert preset_config(name, sample_config()).encoder.name == "bundled"


def test_the_gain_has_both_values_and_the_interval() -> None:
    expected = "On threads (dev, 3 seeds) map went from 0.700 untrained to 0.750: +0.050, interval +0.020 to +0.080."
    assert gain_sentence(finding()) == expected
    assert gain_sentence(finding(low=None, high=None)).endswith("untrained to 0.750: +0.050, no interval.")


def test_a_loss_has_its_sign() -> None:
    assert ": -0.050, interval -0.080 to -0.020." in gain_sentence(finding(difference=-0.05, low=-0.08, high=-0.02))


def test_a_preset_without_a_finding_has_no_gain(tmp_path: Path) -> None:
    stored = read_findings()["best_stsb"] | {"name": "best_of_all"}
    assert measured_gain("best_of_all", tmp_path) is None
    write_finding(stored, tmp_path)
    assert measured_gain("best_of_all", tmp_path) == gain_sentence(stored)

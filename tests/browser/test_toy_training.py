"""Toy training in the browser: equal to torch over 100 steps, with points that can be dragged."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from bsc_core.config import DIRECTIONS, LOSS_CONFIGS, LossConfig
from bsc_core.lab.batch import LabBatch, circle_batch
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.toy_training import TOY_LOSSES, train_points
from pages.ui.loss_lab import browser as loss_lab

SETTINGS: list[dict[str, Any]] = [
    *({"name": name, **({"threshold": 0.5} if name == "bsc" else {})} for name in TOY_LOSSES),
    {"name": "bsc", "threshold": 0.5, "learn_temperature": True, "symmetric": False},
    {"name": "mnrl", "learn_temperature": True},
    {"name": "sigmoid", "learn_temperature": False, "learn_bias": False, "bias": 0.0},
    {"name": "cosent", "learn_temperature": True},
    {"name": "angle", "learn_temperature": True},
    {"name": "triplet", "margin": 0.5},
    {"name": "triplet", "margin": 1.9, "reduction": "sum"},
    {"name": "bsc", "threshold": 0.5, "normalization": "l2_columns", "temperature": 0.3},
    {"name": "bsc", "threshold": 0.5, "normalization": "range_columns", "reduction": "sum", "temperature": 2.0},
    {"name": "bsc", "threshold": 0.5, "normalization": "minmax_columns", "average": "positives", "temperature": 1.0},
    {"name": "bsc", "threshold": 0.5, "normalization": "none", "labeled_negatives": False},
    {"name": "bsc", "threshold": 0.5, "duplicates": "multi_positive", "learn_temperature": True},
    {"name": "bsc", "threshold": 0.5, "mask": "self", "mask_margin": -0.1, "decoupled": True},
    {"name": "bsc", "threshold": 0.5, "mask": "self", "mask_margin": 0.2, "mask_margin_kind": "relative"},
    {
        "name": "bsc",
        "threshold": 0.5,
        "hardness": "in_batch_negatives",
        "hardness_strength": 3.0,
        "debiased_prior": 0.1,
    },
    *(
        {"name": "bsc", "threshold": 0.5, "directions": DIRECTIONS, "partition": "joint", "temperature": 0.3}
        | {"normalization": normalization, "learn_temperature": True}
        for normalization in ("l2", "minmax_columns")
    ),
]


def labeled_batch() -> LabBatch:
    batch = circle_batch(pairs=8, spread=90, seed=1)
    labels = np.array([1.0, 0.0, 1.0, 0.9, 0.2, 1.0, 0.3, 1.0])
    return LabBatch(batch.title, batch.queries, batch.documents, labels, batch.query_texts, batch.document_texts)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(map(str, settings.values())))
@pytest.mark.parametrize("batch", [circle_batch(pairs=6, spread=60), labeled_batch()], ids=["all positive", "labeled"])
def test_the_browser_trains_as_torch_does(scripts, batch: LabBatch, settings: dict[str, Any]) -> None:
    loss: LossConfig = LOSS_CONFIGS[settings["name"]].model_validate(settings)  # type: ignore[assignment]
    expected = train_points(batch, loss, steps=100)
    arguments = [batch.plain(), loss.model_dump(mode="json")]
    trace = scripts.evaluate("([batch, loss]) => trainPoints(batch, loss, 100)", arguments)
    for name in ("points", "moves", "similarity", "loss", "correct", "gap"):
        np.testing.assert_allclose(trace[name], getattr(expected, name), atol=1e-4, rtol=1e-4, err_msg=name)
    if trace["temperature"] is not None:
        np.testing.assert_allclose(trace["temperature"], expected.temperature, atol=1e-4)
        is_trained = getattr(loss, "learn_temperature", False) and expected.loss.any()
        assert (len(set(trace["temperature"])) > 1) == is_trained


def test_the_browser_trains_angle_in_an_odd_number_of_dimensions(scripts) -> None:
    rng = np.random.default_rng(0)
    sides = [rng.normal(size=(5, 7)).astype(np.float32).astype(np.float64) for _ in range(2)]
    batch = LabBatch("", *sides, np.array([0.0, 1.0, 0.4, 0.8, 0.4]), tuple("abcde"), tuple("fghij"))
    loss: LossConfig = LOSS_CONFIGS["angle"].model_validate({})  # type: ignore[assignment]
    expected = train_points(batch, loss, steps=20)
    trace = scripts.evaluate(
        "([batch, loss]) => trainPoints(batch, loss, 20)", [batch.plain(), loss.model_dump(mode="json")]
    )
    np.testing.assert_allclose(trace["loss"], expected.loss, rtol=1e-4)
    np.testing.assert_allclose(trace["similarity"], expected.similarity, atol=1e-4)


@pytest.mark.parametrize("preset", ["near_misses", "repeats"])
@pytest.mark.parametrize(
    "settings", [SETTINGS[0], SETTINGS[2], {**SETTINGS[0], "mask": "guide", "learn_temperature": True}]
)
def test_the_browser_trains_vectors_of_texts_and_projects_them_on_their_main_axes(
    scripts, preset: str, settings: dict[str, Any]
) -> None:
    batch = preset_batch(preset)
    loss: LossConfig = LOSS_CONFIGS[settings["name"]].model_validate(settings)  # type: ignore[assignment]
    expected = train_points(batch, loss, steps=20)  # later, Adam amplifies rounding errors
    trace = scripts.evaluate(
        "([batch, loss]) => trainPoints(batchOf(batch), loss, 20)",
        [loss_lab.packed_batch(batch), loss.model_dump(mode="json")],
    )
    for name in ("similarity", "loss", "correct", "gap"):
        np.testing.assert_allclose(trace[name], getattr(expected, name), atol=1e-3, rtol=1e-3, err_msg=name)
    for name in ("points", "moves"):  # the direction of an axis is arbitrary
        found, wanted = np.array(trace[name]), getattr(expected, name)
        np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-3 * np.abs(wanted).max(), err_msg=name)


def test_two_losses_are_trained_under_one_slider_and_kept_in_the_link(visit) -> None:
    visit.open("learn", source="circle", watch="bsc", second_loss="mse", learn_temperature="1")
    player = visit.page.locator(".player")
    expect(player).to_have_attribute("data-step", "100")
    facts = player.locator(".facts")
    expect(facts).to_have_count(2)
    expect(facts.first).to_contain_text("smallest gap")
    ends = facts.all_inner_texts()
    gaps = player.locator("svg:has(> .curve.gap)")
    expect(gaps).to_have_count(2)
    limits = [gaps.nth(run).locator(".tick").all_inner_texts() for run in range(2)]
    assert limits[0] == limits[1], "the gaps of two losses have one scale"
    expect(visit.page.get_by_text("compare the smallest gap")).to_be_visible()
    expect(player.locator("h3")).to_have_text(["batch softmax", "squared error"])
    player.get_by_role("slider", name="Step", exact=True).focus()
    visit.page.keyboard.press("Home")
    expect(player).to_have_attribute("data-step", "0")
    starts = facts.all_inner_texts()
    assert all(start != end for start, end in zip(starts, ends, strict=True))
    assert "second_loss=mse" in visit.page.url
    assert "learn_temperature=1" in visit.page.url
    visit.click_button("Use in a run")
    visit.wait("What will this run do")
    expect(visit.page.get_by_text("temperature learned, initially 0.1").first).to_be_visible()


def test_a_dragged_point_changes_the_training_the_matrices_and_the_link(visit) -> None:
    visit.open("learn", source="circle", watch="bsc")
    page, player = visit.page, visit.page.locator(".player")
    expect(player).to_have_attribute("data-step", "100")
    cell = page.locator(".board .panel.similarity .cell").nth(1)
    before = cell.evaluate("cell => cell.value")
    dot = player.get_by_role("slider", name="Document 2: angle at the start")
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    plane = player.locator("svg").first.bounding_box()
    assert box is not None
    assert plane is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(plane["x"] + plane["width"] - 20, plane["y"] + plane["height"] / 2)
    expect(dot).to_have_attribute("aria-valuenow", "0")
    page.mouse.up()
    page.wait_for_url("**angles=*")
    angles = [int(angle) for angle in page.url.split("angles=")[1].split("&")[0].replace("%2C", ",").split(",")]
    assert angles[7] == 0
    visit.wait()
    expected = circle_batch(angles=angles, spread=60)
    after = float(expected.queries[0] @ expected.documents[1])
    assert after != pytest.approx(before, abs=0.01)
    page.wait_for_function("([cell, value]) => Math.abs(cell.value - value) < 1e-6", arg=[cell.element_handle(), after])
    address = page.url
    page.goto(address)
    visit.wait()
    assert visit.page.locator(".board .panel.similarity .cell").nth(1).evaluate("cell => cell.value") == pytest.approx(
        after, abs=1e-6
    )
    dot.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(lambda url: url != address)
    expect(dot).to_have_attribute("aria-valuenow", "5")


def test_an_unknown_loss_in_a_link_is_reported(visit) -> None:
    visit.open("learn", source="circle", watch="softmax")
    expect(visit.page.get_by_text(re.compile("watch is 'softmax' in the link"))).to_be_visible()

"""Runs page: a group of two settings with two seeds each is compared, and a link restores the comparison."""

from __future__ import annotations

import re
import shutil
import time
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import short_id

QUESTION = "How is training going"
FIGURE = "[class*=st-key-figure-]"
GROUP = "20260101-000000-warmth-abcd"
METRICS = "Metrics of the settings, and whether they differ"
CHANGES = "Queries on which the settings differ, with their texts"


@pytest.fixture(scope="module")
def group(server) -> list[Run]:
    """Four runs of the static encoder on the sample data, trained in this process."""
    store: RunStore = server.store
    return [train(store, temperature, seed) for temperature in (0.05, 0.5) for seed in (0, 1)]


def train(store: RunStore, temperature: float, seed: int) -> Run:
    from bsc_core.pipeline import run_experiment

    config = make_config(
        {
            "data": sample_config().model_dump(),
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "loss": {"name": "bsc", "temperature": temperature},
            "training": {"epochs": 2, "batch_size": 32, "learning_rate": 5e-3, "seed": seed, "threads": 1},
        }
    )
    run = store.create(config, f"{GROUP}-{temperature}-{seed}")
    advance(run, "running")
    run.update_status(group=GROUP, started=time.time())
    run_experiment(config, run)
    advance(run, "done", exit_code=0)
    run.update_status(finished=time.time())
    return run


def test_a_group_is_compared_and_the_link_restores_the_view(group, visit, visitor, server):
    visit.open("runs", group=GROUP)
    page = visit.page
    summary = page.get_by_role("heading", name=re.compile("4 of 4 runs done$"))
    expect(summary).to_be_visible()
    visit.select_option("Run", short_id(group[0].id))
    expect(summary).to_be_hidden()
    page.go_back()
    expect(summary).to_be_visible()
    visit.click_button("Compare 4 runs")
    visit.wait(QUESTION)
    expect(page).to_have_url(re.compile("compare="))
    expect(page.get_by_role("button", name="Search with the run of the highest MRR")).to_be_visible()
    runs = page.get_by_test_id("stDataFrame").first.locator("tbody tr")
    expect(runs).to_have_count(4)
    for row in range(4):
        expect(runs.nth(row)).to_have_attribute("aria-selected", "true")
    page.reload()
    visit.wait(QUESTION)
    cold, warm = "temperature 0.05 · 2 seeds", "temperature 0.5 · 2 seeds"
    expect(page.locator(FIGURE).first).to_contain_text(
        re.compile(f"MRR on dev: ({warm} is|no significant difference between {warm})")
    )
    rows = visit.rows(METRICS, containing="MRR")
    mrr = next(row for row in rows if row[0] == "MRR")
    assert all(re.fullmatch(r"\N{MINUS SIGN}?\d\.\d{3} \[.*\]", value) for value in mrr[1:4])
    assert re.match(r"yes, |inconclusive|no difference", mrr[4])

    visit.select_option("Metric", "MAP")
    visit.wait(QUESTION)
    visit.select_option("Baseline", "Untrained")
    visit.wait(QUESTION)
    page.get_by_role("tab", name="Queries", exact=True).click()
    visit.wait(QUESTION)
    page.get_by_role("radio", name="Losses").or_(page.get_by_role("button", name="Losses")).first.click()
    visit.wait(QUESTION)
    expect(page.get_by_text(re.compile(f"^Compared with .*, {re.escape(cold)} is better on"))).to_be_visible()
    expect(visit.table(CHANGES)).not_to_contain_text(re.compile(r"\+0\.\d"))  # no query with a better value
    losses = visit.rows(CHANGES, containing="−")
    assert all("−" in " ".join(row) for row in losses)

    page.get_by_role("button", name="Link to this comparison").click()
    link = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text().strip()
    again = visitor(server)
    again.page.goto(link)
    again.wait(QUESTION)
    expect(again.page.get_by_role("combobox", name="Metric", exact=True)).to_have_value("MAP")
    expect(again.page.get_by_role("combobox", name="Baseline", exact=True)).to_have_value("Untrained")
    assert again.rows(CHANGES, containing="−") == losses
    again.page.get_by_role("tab", name="Metrics", exact=True).click()
    expect(again.page.locator(FIGURE).first).to_contain_text("MAP on dev")


def test_the_menu_of_a_figure_saves_its_data_and_its_picture_by_keyboard(group, visit):
    visit.open("runs", run=group[0].id)
    page = visit.page
    figure = page.locator(FIGURE).first
    expect(figure.get_by_test_id("stVegaLiteChart").locator("svg")).to_be_visible()
    menu = figure.get_by_role("button", name="Figure menu")
    menu.press("Enter")
    contents = {}
    for name in ("Data (CSV)", "Picture (SVG)", "Picture (PNG)"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).press("Enter")
        contents[name] = download.value.path().read_bytes()
    assert contents["Data (CSV)"].startswith(b"step,")
    picture = ElementTree.fromstring(contents["Picture (SVG)"])
    drawn = " ".join(picture.itertext())
    assert "The loss" in drawn
    assert "@font-face" in drawn
    assert contents["Picture (PNG)"].startswith(b"\x89PNG")
    page.get_by_role("button", name="Full screen").press("Enter")
    expect(page.get_by_role("button", name=re.compile("Close fullscreen"))).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_visible()


def test_a_range_of_a_histogram_filters_the_runs_and_is_restored(group, visit):
    visit.open("runs")
    page, listed = visit.page, "2 of 4 runs are in the selected ranges."
    temperature = page.get_by_role("group", name=re.compile("^Temperature"))
    bars = temperature.locator(".bars")
    bars.click(position={"x": 3, "y": 5})  # the lowest bin
    expect(page.get_by_text(listed)).to_be_visible()
    expect(page).to_have_url(re.compile("ranges=Temperature%3A0.05%3A0.05"))
    page.reload()
    expect(page.get_by_text(listed)).to_be_visible()
    temperature.get_by_role("slider", name="Temperature: to").press("End")  # with the keyboard
    expect(page.get_by_text(listed)).to_have_count(0)
    page.go_back()
    expect(page.get_by_text(listed)).to_be_visible()


def test_a_run_outside_the_selected_group_is_opened_and_back_shows_the_group(group, visit, server):
    outside = Run(shutil.copytree(group[0].folder, server.store.root / "20260102-000000-outside-0001"))
    outside.update_status(group=None)
    try:
        visit.open("runs")
        visit.select_option("Sweep or group", short_id(GROUP))
        heading = visit.page.get_by_role("heading", name=re.compile("4 of 4 runs done$"))
        expect(heading).to_be_visible()
        visit.select_option("Run", "outside-0001")
        expect(heading).to_be_hidden()
        visit.wait(QUESTION)
        expect(visit.page).to_have_url(f"{server.url}/runs?run={outside.id}")
        visit.page.go_back()
        expect(heading).to_be_visible()
    finally:
        shutil.rmtree(outside.folder)

"""Rules for every page: accessibility, one main action without scrolling, and a heading that names the page."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from conftest import Visit
from playwright.sync_api import expect

from bsc_core.runs import Run
from pages.ui.components.browser import mount
from tests.browser.screenshots import PAGES, PARAMETERS, show_theme, train_sample_run

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
FAST = {"resultTypes": ["violations"], "selectors": False, "preload": False}  # only what the report needs
EXCLUDED = "[data-testid=stSidebarNav]"  # Streamlit's menu has group titles inside its list; see docs/architecture.md
PAGES_WITHOUT_ACTION = ("findings",)


def violations(visit: Visit, page: str, **options: object) -> list[str]:
    result = visit.page.evaluate(
        "options => axe.run({exclude: [[options.excluded]]}, options)", {**FAST, **options, "excluded": EXCLUDED}
    )
    return [
        f"{page or 'start'}: {violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]


@pytest.fixture
def run(private_server) -> Run:
    return train_sample_run(private_server.store)


def test_every_page_is_accessible_in_both_themes_and_shows_its_main_action(private_server, visitor, run) -> None:
    visit = visitor(private_server, color_scheme="light", reduced_motion="reduce")
    found = []
    for name in PAGES:
        visit.page.emulate_media(color_scheme="light")
        visit.open(name, run=run.id, **PARAMETERS.get(name, {}))
        primary = visit.page.get_by_test_id("stMain").get_by_test_id("stBaseButton-primary").filter(visible=True)
        if name not in PAGES_WITHOUT_ACTION:
            expect(primary).to_have_count(1)
            expect(primary).to_be_in_viewport(ratio=1)
        visit.page.add_script_tag(path=AXE)
        found += violations(visit, name)
        show_theme(visit.page, "dark")
        found += violations(visit, name, runOnly=["color-contrast"])
    assert found == []


def test_back_shows_the_dataset_and_the_encoder_of_the_link(visitor, server) -> None:
    visit = visitor(server)
    visit.open("batches", dataset="sample-nli", encoder="static")
    visit.page.get_by_test_id("stSidebarNav").get_by_role("link", name="Data", exact=True).click()
    visit.wait("What is in this dataset")
    check_selection(visit, "data", "sample-nli")
    visit.select_option("Dataset", "sample")
    check_selection(visit, "data", "sample")
    visit.page.go_back()
    check_selection(visit, "data", "sample-nli")
    visit.go_back_to("batches")  # entries of the page that was left show the same selection
    visit.wait("Which negatives does a batch contain")
    check_selection(visit, "batches", "sample-nli")


def test_back_and_forward_show_the_choices_that_a_page_had_when_it_was_left(visitor, server) -> None:
    visit = visitor(server)
    visit.open("batches", encoder="static")
    seed = visit.page.get_by_role("spinbutton", name="Seed", exact=True)
    seed.fill("7")
    seed.press("Enter")
    visit.page.wait_for_url("**batches.seed=7*")
    visit.wait()
    visit.by_key("batches.back").get_by_role("button").click()
    visit.page.wait_for_url("**batches.batch=*")
    visit.wait()
    address = visit.page.url
    visit.page.get_by_test_id("stSidebarNav").get_by_role("link", name="Lessons", exact=True).click()
    visit.wait("How does contrastive learning work?")
    slider = visit.page.get_by_test_id("stMain").get_by_role("slider").first
    visit.page.go_back()
    visit.wait("Which negatives does a batch contain")
    expect(visit.page).to_have_url(address)
    expect(seed).to_have_value("7")
    visit.page.go_forward()
    visit.wait("How does contrastive learning work?")
    expect(slider).to_be_visible()


def check_selection(visit: Visit, name: str, dataset: str) -> None:
    query = "encoder=static" if dataset == "sample" else f"dataset={dataset}&encoder=static"
    expect(visit.page).to_have_url(f"{visit.server.url}/{name}?{query}")
    expect(visit.page.get_by_role("combobox", name="Dataset")).to_have_value(dataset)
    expect(visit.page.get_by_role("combobox", name="Encoder")).to_have_value("static")


def test_a_click_and_a_search_are_acknowledged_until_the_page_is_drawn_again(chrome) -> None:
    page = chrome.new_page()
    page.set_content(
        "<div data-testid=stApp data-test-script-state=notRunning><div data-testid=stMain>"
        "<div class=stButton><button>Stop</button></div><input type=search></div></div>"
    )
    script = (mount.HERE / "clicks.js").read_text(encoding="utf-8")
    page.add_script_tag(content=script.replace("export default function", "window.start = function"))
    page.evaluate("window.start(); window.start()")
    app, button, box = page.get_by_test_id("stApp"), page.get_by_role("button"), page.get_by_role("searchbox")
    for act, element in ((button.click, button), (lambda: box.press("Enter"), box)):
        act()
        expect(element).to_have_attribute("aria-busy", "true")
        for state, number in (("running", 1), ("notRunning", 0)):
            app.evaluate("(app, state) => app.setAttribute('data-test-script-state', state)", state)
            expect(page.locator("[aria-busy]")).to_have_count(number)
    box.press("a")
    expect(page.locator("[aria-busy]")).to_have_count(0)
    page.close()

"""Rules for every page: accessibility, one main action without scrolling, and a heading that names the page."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from conftest import Visit
from playwright.sync_api import expect

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
EXCLUDED = "[data-testid=stSidebarNav]"  # Streamlit's menu has group titles inside its list; see docs/architecture.md
PAGES = ("", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")
DARK = "rgb(18, 23, 29)"  # background of the dark theme
PAGES_WITHOUT_ACTION = ("findings",)


def violations(visit: Visit, page: str, **options: object) -> list[str]:
    result = visit.page.evaluate(
        "options => axe.run({exclude: [[options.excluded]]}, options)", {**options, "excluded": EXCLUDED}
    )
    return [
        f"{page or 'start'}: {violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]


def test_every_page_is_accessible_in_both_themes_and_shows_its_main_action(visitor, server, sample_run) -> None:
    visit = visitor(server, color_scheme="light", reduced_motion="reduce")
    found = []
    for name in PAGES:
        visit.page.emulate_media(color_scheme="light")
        visit.open(name, run=sample_run.id)
        primary = visit.page.get_by_test_id("stMain").get_by_test_id("stBaseButton-primary").filter(visible=True)
        if name not in PAGES_WITHOUT_ACTION:
            expect(primary).to_have_count(1)
            expect(primary).to_be_in_viewport(ratio=1)
        visit.page.add_script_tag(path=AXE)
        found += violations(visit, name)
        visit.page.emulate_media(color_scheme="dark")  # the theme follows the system's
        expect(visit.page.get_by_test_id("stApp")).to_have_css("background-color", DARK)
        visit.wait()
        found += violations(visit, name, runOnly=["color-contrast"])
    assert found == []

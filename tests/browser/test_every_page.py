"""Rules for every page: accessibility, one main action without scrolling, and a heading that names the page."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import expect

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
EXCLUDED = "[data-testid=stSidebarNav]"  # Streamlit's menu has group titles inside its list; see docs/architecture.md
PAGES = ("", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")
PAGES_WITHOUT_ACTION = ("findings",)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_shows_its_main_action(visitor, server, sample_run, scheme: str) -> None:
    visit = visitor(server, viewport={"width": 1440, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    violations = []
    for name in PAGES:
        visit.open(name, run=sample_run.id)
        primary = visit.page.get_by_test_id("stMain").get_by_test_id("stBaseButton-primary").filter(visible=True)
        if name not in PAGES_WITHOUT_ACTION:
            expect(primary).to_have_count(1)
            expect(primary).to_be_in_viewport(ratio=1)
        visit.page.add_script_tag(path=AXE)
        result = visit.page.evaluate("excluded => axe.run({exclude: [[excluded]]})", EXCLUDED)
        violations += [
            f"{name or 'start'}: {violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]
    assert violations == []

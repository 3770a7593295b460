"""Rules for every page: its looks, its accessibility, and one main action that is visible without scrolling."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
from conftest import Visit
from PIL import Image
from playwright.sync_api import Page, expect

from pages.ui.components.browser import mount
from pages.ui.findings import table
from tests.browser.screenshots import BASELINE, BASELINE_VIEWS, TOLERANCE, difference, open_every_page, show_view
from tests.helpers.waiting import wait_until

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
FAST = {"resultTypes": ["violations"], "selectors": False, "preload": False}  # only what the report needs
EXCLUDED = "[data-testid=stSidebarNav]"  # Streamlit's menu has group titles inside its list; see docs/architecture.md
PAGES_WITHOUT_ACTION = ("normal/findings",)
DESKTOP = 1440  # pixels


@dataclass
class Check:
    """What an open page must fulfill; axe finds the `violations`."""

    page: Page
    name: str
    violations: list[str] = field(default_factory=list)

    def shows_its_main_action(self) -> None:
        primary = self.page.get_by_test_id("stMain").get_by_test_id("stBaseButton-primary").filter(visible=True)
        if self.name not in PAGES_WITHOUT_ACTION:
            expect(primary).to_have_count(1)
            expect(primary).to_be_in_viewport(ratio=1)

    def fits(self) -> None:
        widths = self.page.evaluate(
            "[document.documentElement, document.querySelector('[data-testid=stMain]')]"
            ".map(part => [part.scrollWidth, part.clientWidth])"
        )
        assert all(needed <= available for needed, available in widths), (self.name, widths)

    def looks_as(self, baseline: Path) -> None:
        last, expected = 1.0, Image.open(baseline)

        def looks_the_same() -> bool:
            nonlocal last
            last = difference(self.page.screenshot(), expected)
            return last <= TOLERANCE

        shown = self.page.get_by_test_id("stMain").inner_text
        wait_until(looks_the_same, lambda: f"{last:.0%} of {baseline} differ; the page shows: {shown()}", factor=0.2)

    def is_accessible(self, **options: object) -> None:
        if not self.page.evaluate("'axe' in window"):
            self.page.add_script_tag(path=AXE)
        result = self.page.evaluate(
            "options => axe.run({exclude: [[options.excluded]]}, options)", {**FAST, **options, "excluded": EXCLUDED}
        )
        self.violations += [
            f"{self.name}: {violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]


def test_every_page_looks_as_in_the_baseline_and_is_accessible_in_both_themes(private_server, chrome) -> None:
    compared, violations, visits = [], [], {}
    for name, page in open_every_page(chrome, private_server):
        if page not in visits:
            visits[page] = Visit(page, private_server)  # records errors
        check = Check(page, name)
        for theme, width in BASELINE_VIEWS:
            show_view(page, theme, width)
            compared.append(f"{name}-{theme}-{width}.png")
            check.looks_as(BASELINE / compared[-1])
            check.fits()
            if name.startswith("normal/"):
                check.is_accessible(**({} if theme == "light" else {"runOnly": ["color-contrast"]}))
            if name.startswith("normal/") and width == DESKTOP:
                check.shows_its_main_action()
        expect(page.get_by_test_id("stException")).to_have_count(0)
        violations += check.violations
    assert violations == []
    assert [fault for visit in visits.values() for fault in visit.faults] == private_server.faults() == []
    assert sorted(compared) == sorted(str(path.relative_to(BASELINE)) for path in BASELINE.glob("*/*.png"))


def test_a_claim_far_down_in_the_table_is_visible_and_checked_once_it_is_selected(visitor, server) -> None:
    visit, alt = visitor(server), "Claims of the papers with their verdicts and the reasons"
    visit.open("findings")
    claim = visit.rows(alt)[table.ROWS_WITH_DETAILS + 3]
    visit.page.get_by_role("region", name=alt, exact=True).locator(".dvn-scroller").click(
        position={"x": 16, "y": 38 + (table.ROWS_WITH_DETAILS + 3.5) * table.ROW_HEIGHT}
    )
    visit.page.wait_for_url("**findings.claim=*")
    visit.wait()
    first = visit.table(alt).locator("tbody tr").first
    expect(first).to_have_attribute("aria-selected", "true")
    assert visit.rows(alt)[0] == claim


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
    visit.open("batches", encoder="static", **{"batches.section": "One batch"})
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
    question = visit.page.get_by_text("Choose an answer to see")
    visit.page.go_back()
    visit.wait("Which negatives does a batch contain")
    expect(visit.page).to_have_url(address)
    expect(seed).to_have_value("7")
    visit.page.go_forward()
    visit.wait("How does contrastive learning work?")
    expect(question).to_be_visible()


def check_selection(visit: Visit, name: str, dataset: str) -> None:
    query = "encoder=static" if dataset == "sample" else f"dataset={dataset}&encoder=static"
    expect(visit.page).to_have_url(f"{visit.server.url}/{name}?{query}")
    expect(visit.page.get_by_role("combobox", name="Dataset")).to_have_value(dataset)
    expect(visit.page.get_by_role("combobox", name="Encoder")).to_have_value("Static (fast)")


def test_a_click_and_a_search_are_acknowledged_until_the_page_is_drawn_again(chrome) -> None:
    page = chrome.new_page()
    page.set_content(
        "<div data-testid=stApp data-test-script-state=notRunning><div data-testid=stMain>"
        "<div class=stButton><button>Stop</button></div><input type=search></div></div>"
    )
    page.add_script_tag(path=mount.HERE / "history.js")
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


def test_an_action_adds_at_most_one_entry_to_the_history(chrome) -> None:
    page = chrome.new_page()
    page.add_script_tag(path=mount.HERE / "history.js")
    start = page.evaluate("addOneEntryPerAction(); history.length")

    def added_by(pages: int) -> int:
        return page.evaluate("n => { for (; n--;) history.pushState({n}, ''); return history.length }", pages)

    assert added_by(2) == start
    page.mouse.click(10, 10)
    assert added_by(3) == start + 1
    page.keyboard.press("Enter")
    assert added_by(1) == start + 2
    page.keyboard.press("Enter")
    page.go_back()
    assert page.evaluate("history.state") == {"n": 0}
    assert added_by(1) == start + 2
    page.go_forward()
    assert page.evaluate("history.state") == {"n": 0}
    page.close()


def test_a_theme_that_is_chosen_on_one_page_is_that_of_all(visitor, server) -> None:
    visit = visitor(server)
    visit.open("findings")
    visit.page.get_by_test_id("stMainMenu").click()
    visit.page.get_by_test_id("stMainMenuPopover").get_by_text("Dark").last.click()
    background = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    wait_until(lambda: visit.page.evaluate(background) != "rgb(255, 255, 255)", "the theme is not dark")
    dark = visit.page.evaluate(background)
    stored = "Object.keys(localStorage).some(key => key.startsWith('stActiveTheme-/learn-v'))"
    wait_until(lambda: visit.page.evaluate(stored), "the theme is not stored for the other pages")
    visit.open("learn")
    assert visit.page.evaluate(background) == dark

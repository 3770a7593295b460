"""A real server and a real browser. A test fails on an exception box, on an error in the browser's console or the
server's log, and on a request to any other machine, whatever else it looks at."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlparse

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect, sync_playwright

sys.path.append(str(Path(__file__).parent))  # the modules beside this file

from chromium import executable
from serving import AppServer

PATIENCE_MS = 30_000
SOMETHING = re.compile(r"\w")
WIDE = {"width": 1440, "height": 900}
LOOKED_FOR = re.compile(r"/\w+/_stcore/(health|host-config)$")  # a deep link: Streamlit first looks for itself there


@pytest.fixture(scope="session")
def static_encoder(_own_cache: None) -> None:
    """The static encoder, distilled once into the cache that server and workers share."""
    from bsc_core.encoders import encoder_folder

    encoder_folder("static")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Not kept for the session: while it runs, no other event loop can run in this process."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, static_encoder: None) -> Iterator[AppServer]:
    yield from _serve(tmp_path_factory.mktemp("app"))


@pytest.fixture
def own_server(tmp_path: Path, static_encoder: None) -> Iterator[AppServer]:
    """A server that a test may end."""
    yield from _serve(tmp_path)


def _serve(folder: Path) -> Iterator[AppServer]:
    server = AppServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.end()
        server.end_jobs()


@dataclass
class Visit:
    """One visitor's page on a server. `faults` are found on the way and fail the test at its end."""

    page: Page
    server: AppServer
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not LOOKED_FOR.search(message.location["url"]):
            self.faults.append(f"console: {message.text} {message.location['url']}")

    def _asked(self, request: Request) -> None:
        if urlparse(request.url).hostname not in ("localhost", None):
            self.faults.append(f"request to another machine: {request.url}")

    def open(self, name: str = "", **query: str) -> None:
        """Open a page by its address, and wait until it is whole."""
        self.page.goto(f"{self.server.url}/{name}?{urlencode(query)}")
        self.whole()

    def whole(self, question: str | None = None) -> None:
        """Wait until the page stands: its title, its script at rest, and no exception box. question: of its title."""
        title = self.page.get_by_role("heading", level=1)
        expect(title).to_contain_text(question or SOMETHING)
        expect(self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
        self.calm()

    def calm(self) -> None:
        """Fail at once where an exception box stands."""
        assert self.page.get_by_test_id("stException").count() == 0, self.server.log()[-3000:]

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a select box; once more where the page was drawn anew under the open list.

        While the page is drawn anew, a box may stand there twice for a moment.
        """
        box = self.page.get_by_role("combobox", name=label, exact=True).first
        for _ in range(2):
            box.click()
            self.page.get_by_role("option", name=option, exact=True).click()
            with suppress(AssertionError):
                return expect(box).to_have_value(option, timeout=PATIENCE_MS // 2)
            self.page.keyboard.press("Escape")
        expect(box).to_have_value(option)

    def press(self, name: str) -> None:
        """Press a button of the page."""
        self.page.get_by_test_id("stMain").get_by_role("button", name=name, exact=True).click()

    def keyed(self, key: str) -> Locator:
        """The element of a widget key."""
        return self.page.locator(f".st-key-{key.replace('.', '-')}")

    def table(self, name: str) -> Locator:
        """The table of this name as screen readers have it; of a long one the cells in view, one after another."""
        return self.page.get_by_role("region", name=name, exact=True).get_by_role("grid", include_hidden=True)

    def rows(self, name: str, *, holding: str | re.Pattern[str] = SOMETHING) -> list[list[str]]:
        """The cells of a table row by row, once it holds this text."""
        expect(self.table(name).locator("tbody tr").first).to_be_attached()
        expect(self.table(name)).to_contain_text(holding)
        cells: list[list[str]] = self.table(name).evaluate(
            "grid => [...grid.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return cells

    def choose_row(self, name: str, row: int) -> None:
        """Choose a row of a table by the box before it; once more where the table was drawn anew under the click."""
        line = self.table(name).locator("tbody tr").nth(row)
        for _ in range(2):
            self.page.get_by_role("region", name=name, exact=True).locator(".dvn-scroller").click(
                position={"x": 16, "y": 36 * row + 54}
            )
            with suppress(AssertionError):
                return expect(line).to_have_attribute("aria-selected", "true", timeout=PATIENCE_MS // 2)
        expect(line).to_have_attribute("aria-selected", "true")

    def plot(self, read: str) -> Any:
        """What a JavaScript expression finds in the page's Plotly figure `plot`."""
        figure = self.page.locator(".js-plotly-plot").first
        expect(figure).to_be_visible()
        return figure.evaluate(f"plot => {read}")

    def done(self) -> None:
        """Fail the test for what went wrong on the way."""
        self.calm()
        assert self.faults == []


@pytest.fixture
def visitor(chrome: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens a browser window on a server; more settings as Playwright's `new_context` takes them."""
    opened: list[Visit] = []

    def new(server: AppServer, **settings: Any) -> Visit:
        page = chrome.new_context(**{"viewport": WIDE, **settings}).new_page()
        opened.append(Visit(page, server))
        return opened[-1]

    yield new
    for visit in opened:
        if not visit.page.is_closed():
            visit.done()
            visit.page.context.close()
        assert visit.faults == []
    for server in {id(visit.server): visit.server for visit in opened}.values():
        assert server.faults() == []


@pytest.fixture
def visit(visitor: Callable[..., Visit], server: AppServer) -> Visit:
    """A window on the shared server."""
    return visitor(server)

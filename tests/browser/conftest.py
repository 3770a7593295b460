"""Fixtures of the browser tests: a running app and a Chromium page.

A test fails on an exception box, on an error in the browser's console or the server's log, and on a request to another
machine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlparse

import pytest
from playwright.sync_api import Browser, ConsoleMessage, FilePayload, Locator, Page, expect, sync_playwright

sys.path.append(str(Path(__file__).parent))  # modules of this folder

from chromium import executable
from serving import AppServer

from bsc_core.runs import Run
from pages.ui.components.browser import mount
from pages.ui.components.display import TEXT_ROW
from pages.ui.loss_lab import browser as loss_lab
from tests.browser.screenshots import train_sample_run
from tests.helpers.waiting import PATIENCE_MS, wait_until

RETRY_MS = 15_000  # until a click that had no effect, since the page was redrawn, is repeated
ANY_TEXT = re.compile(r"\w")
WIDE = {"width": 1440, "height": 900}
EXPECTED_ERROR = re.compile(r"/\w+/_stcore/(health|host-config)$")  # Streamlit tries these for a deep link


@pytest.fixture(scope="session")
def static_encoder(_session_cache: None) -> None:
    """Build the static encoder once, in the cache that server and workers share.

    With all cores, since every other process of a parallel session waits for it.
    """
    import torch

    from bsc_core.encoders import encoder_folder

    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    encoder_folder("static")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """A browser for one module; while it is open, no other event loop can run in this process."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def scripts(chrome: Browser) -> Iterator[Page]:
    """A page with the functions of the lab and its trainer, and no app."""
    page = chrome.new_page()
    for path in (mount.HERE / "dom.js", loss_lab.HERE / "softmax.js", loss_lab.HERE / "trainer.js"):
        page.add_script_tag(path=path)
    yield page
    page.close()


@pytest.fixture(scope="session")
def _session_server(tmp_path_factory: pytest.TempPathFactory, static_encoder: None) -> Iterator[AppServer]:
    yield from _serve(tmp_path_factory.mktemp("session-app"))


@pytest.fixture(scope="module")
def server(_session_server: AppServer) -> Iterator[AppServer]:
    """The server that all modules share; the jobs of a module are stopped at its end."""
    yield _session_server
    _session_server.stop_jobs()


@pytest.fixture
def private_server(tmp_path: Path, static_encoder: None) -> Iterator[AppServer]:
    """A server for one test, which may stop it."""
    yield from _serve(tmp_path)


@pytest.fixture(scope="session")
def sample_run(_session_server: AppServer) -> Run:
    """A run of the static encoder on the sample data, trained a little."""
    return train_sample_run(_session_server.store)


def _serve(folder: Path) -> Iterator[AppServer]:
    server = AppServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        server.stop_jobs()


@dataclass
class Visit:
    """A browser page on a server, with helpers for clicks and for reading tables. Recorded `faults` fail the test."""

    page: Page
    server: AppServer
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        self.page.on("request", lambda request: self._check_host(request.url))
        self.page.on("websocket", lambda socket: self._check_host(socket.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not EXPECTED_ERROR.search(message.location["url"]):
            self.faults.append(f"console: {message.text} {message.location['url']}")

    def _check_host(self, url: str) -> None:
        if urlparse(url).hostname not in ("localhost", None):
            self.faults.append(f"request to another machine: {url}")

    def open(self, name: str = "", **query: str) -> None:
        """Open a page and wait until it is complete."""
        self.page.goto(f"{self.server.url}/{name}?{urlencode(query)}")
        self.wait()

    def wait(self, heading: str | None = None) -> None:
        """Wait until the script has finished, with this text in the heading and no exception box."""
        expect(self.page.get_by_role("heading", level=1)).to_contain_text(heading or ANY_TEXT)
        expect(self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
        self.check_no_exception()

    def check_no_exception(self) -> None:
        """Fail when the page shows an exception box."""
        assert self.page.get_by_test_id("stException").count() == 0, self.server.log()[-3000:]

    def go_back_to(self, name: str) -> None:
        """Go back in the browser's history to the last entry of a page."""
        while f"/{name}" not in (url := self.page.url):
            self.page.go_back()
            wait_until(lambda url=url: self.page.url != url, f"going back from {url} had no effect")

    def select_option(self, label: str, option: str) -> None:
        """Select an option of a select box; try again if the page was redrawn while the list was open."""
        box = self.page.get_by_role("combobox", name=label, exact=True).first
        entry = self.page.get_by_role("option", name=option, exact=True)
        for patience in (RETRY_MS, PATIENCE_MS):
            box.click()
            with suppress(AssertionError):
                expect(entry).to_be_visible(timeout=patience)
                entry.click()
                return expect(box).to_have_value(option, timeout=patience)
            self.page.keyboard.press("Escape")
        expect(box).to_have_value(option)

    def upload(self, file: Path | FilePayload) -> None:
        """Upload a file on the Data page; try again on a reloaded page if the server has not received it."""
        hint = self.page.get_by_text("Each row is a pair")  # is hidden once the server has a file
        for patience in (RETRY_MS * 4, None):
            if not hint.is_visible():  # a reloaded page shows the open form, which a click would close
                self.page.get_by_text("Import a dataset").click()
                expect(hint).to_be_visible()
            self.wait()
            self.page.get_by_test_id("stFileUploader").first.locator("input[type=file]").set_input_files(file)
            with suppress(AssertionError):
                expect(hint).to_have_count(0, timeout=patience)
                return
            self.page.reload()
            self.wait()
        raise AssertionError(f"{file} was not uploaded twice")

    def click_button(self, name: str) -> None:
        """Click a button of the page."""
        button = self.page.get_by_test_id("stMain").get_by_role("button", name=name, exact=True)
        expect(button).to_be_visible()
        button.click()

    def click_until(self, button: Locator, result: Locator) -> None:
        """Click a button until its result is visible; a click is lost when the page is redrawn."""
        button.click()
        with suppress(AssertionError):
            return expect(result).to_be_visible(timeout=RETRY_MS)
        button.click()
        return expect(result).to_be_visible()

    def by_key(self, key: str) -> Locator:
        """Return the element of a widget key."""
        return self.page.locator(f".st-key-{key.replace('.', '-')}")

    def table(self, name: str) -> Locator:
        """Return the accessible table with this name; of a long table, it has only the visible cells."""
        return self.page.get_by_role("region", name=name, exact=True).get_by_role("grid", include_hidden=True)

    def rows(self, name: str, *, containing: str | re.Pattern[str] = ANY_TEXT) -> list[list[str]]:
        """Return the cells of a table by row, once it contains a text."""
        expect(self.table(name)).to_have_count(1)  # while a table is replaced, there are two
        expect(self.table(name).locator("tbody tr").first).to_be_attached()
        expect(self.table(name)).to_contain_text(containing)
        cells: list[list[str]] = self.table(name).evaluate(
            "grid => [...grid.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return cells

    def select_row(self, name: str, row: int) -> None:
        """Select a row of a table of texts by its checkbox; try again if the table was redrawn during the click.

        The selection can also lead to another part of the page, without the table.
        """
        region = self.page.get_by_role("region", name=name, exact=True)
        line = self.table(name).locator("tbody tr").nth(row)
        for _ in range(2):
            region.locator(".dvn-scroller").click(position={"x": 16, "y": 36 + (row + 0.5) * TEXT_ROW})
            with suppress(AssertionError):
                return expect(line).to_have_attribute("aria-selected", "true", timeout=RETRY_MS)
            if not region.count():
                return None
        return expect(line).to_have_attribute("aria-selected", "true")

    def plot(self, read: str) -> Any:
        """Evaluate a JavaScript expression on the page's Plotly figure `plot`, once it is drawn."""
        figure = self.page.locator(".js-plotly-plot").first
        wait_until(lambda: figure.evaluate("plot => Boolean(plot._fullData)"), "the figure is not drawn")
        return figure.evaluate(f"plot => {read}")

    def check_no_faults(self) -> None:
        """Fail the test if the page shows an exception box or faults were recorded."""
        self.check_no_exception()
        assert self.faults == []


@pytest.fixture
def visitor(chrome: Browser) -> Iterator[Callable[..., Visit]]:
    """Return a function that opens a page on a server. Further arguments are those of Playwright's `new_context`."""
    opened: list[Visit] = []

    def new(server: AppServer, **settings: Any) -> Visit:
        page = chrome.new_context(**{"viewport": WIDE, **settings}).new_page()
        opened.append(Visit(page, server))
        return opened[-1]

    yield new
    for visit in opened:
        if not visit.page.is_closed():
            visit.check_no_faults()
            visit.page.context.close()
        assert visit.faults == []
    for server in {id(visit.server): visit.server for visit in opened}.values():
        assert server.faults() == []


@pytest.fixture
def visit(visitor: Callable[..., Visit], server: AppServer) -> Visit:
    """A page on the shared server."""
    return visitor(server)

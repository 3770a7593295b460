"""Pages that a timer updates while a run is active."""

from __future__ import annotations

import re

from playwright.sync_api import Page, WebSocketRoute, expect

from bsc_core import jobs
from tests.browser.screenshots import sample_run_config
from tests.helpers.waiting import held, wait_until

UPDATES = 3  # messages of the timers of the page


def test_an_update_of_the_page_before_does_not_undo_a_click(private_server, visitor):
    """A timer sends the values of controls that the server has changed and the browser has not received."""
    run = jobs.launch(private_server.store, sample_run_config(epochs=1000))
    wait_until(lambda: run.status().step > 0, lambda: "\n".join(run.log_tail()))
    with held(run):
        visit = visitor(private_server)
        connection = SlowConnection(visit.page)
        visit.open("runs")
        connection.is_delayed = True
        visit.click_button("Open the newest run")
        connection.wait_for_updates()
        connection.deliver()
        expect(visit.page.get_by_role("heading", level=2)).to_have_text(shown_name(run.id))
        connection.wait_for_updates()
        expect(visit.page.get_by_role("combobox", name="Run", exact=True)).to_have_value(shown_name(run.id))


def test_a_field_keeps_the_focus_when_its_section_gets_another_title(visit):
    """The section with the title of its settings is then drawn again."""
    visit.open("train", encoder="static", **{"train.open.training": "true"})
    seeds = visit.page.get_by_role("combobox", name="Seeds", exact=True)
    seeds.click()
    for number in range(3):
        expect(seeds).to_be_focused()
        visit.page.keyboard.type(str(number))
        visit.page.keyboard.press("Enter")
        title = f"{number + 1} seed{'s' if number else ''}"
        expect(visit.page.get_by_text(re.compile(f"^Training: .*, {title}$"))).to_be_visible()
        visit.wait()
    expect(seeds).to_be_focused()


def shown_name(run_id: str) -> str:
    return run_id.split("-", 2)[2]


class SlowConnection:
    """The connection of a page to the server, whose answers can be delayed."""

    def __init__(self, page: Page) -> None:
        self.is_delayed = False
        self._sent = 0
        self._delayed: list[tuple[WebSocketRoute, bytes | str]] = []
        self._page = page
        page.route_web_socket(re.compile("_stcore/stream"), self._connect)

    def _connect(self, page: WebSocketRoute) -> None:
        server = page.connect_to_server()

        def send(message: bytes | str) -> None:
            self._sent += 1
            server.send(message)

        def receive(message: bytes | str) -> None:
            if self.is_delayed:
                self._delayed.append((page, message))
            else:
                page.send(message)

        page.on_message(send)
        server.on_message(receive)

    def wait_for_updates(self) -> None:
        """Wait until the page has sent some messages."""
        enough = self._sent + UPDATES

        def is_sent() -> bool:
            self._page.wait_for_timeout(100)  # handles messages
            return self._sent >= enough

        wait_until(is_sent, "the page sends no updates")

    def deliver(self) -> None:
        """Deliver the delayed answers, and delay no others."""
        self.is_delayed = False
        for page, message in self._delayed:
            page.send(message)

"""Time from a click to its first visible reaction in a browser: launch, stop, mark and search.

    python benchmarks/clicks.py [--clicks 7]

Each is measured without a run and while a run trains. The reaction is the frame around the clicked element, which
the browser draws without the server. The answer of the server is its message that the click was received, or a button
that is disabled or replaced. Needs the test extras and Chromium (`python tests/browser/chromium.py`).
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from measure import ROOT, parser, print_header, print_row

from bsc_core.jobs import Queue, launch, unpause
from bsc_core.jobs.actions.stopping import request_stop

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
WAIT = 300_000  # milliseconds
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
QUERY = "how do I bake bread"
OBSERVE = """element => {
    const times = window.reactionTimes = {};
    const visible = toast => toast.getClientRects().length > 0;
    const answered = () => [...document.querySelectorAll('[data-testid=stToast]')].some(visible)
        || !element.isConnected || element.disabled;
    const note = (name, seen) => {
        if (times.click === undefined || times[name] !== undefined || !seen) return;
        times[name] = 0;
        requestAnimationFrame(() => { times[name] = performance.now(); });
    };
    for (const event of ['click', 'keydown'])
        window.addEventListener(event, () => { times.click ??= performance.now(); }, {capture: true});
    new MutationObserver(() => {
        const isAnswered = answered();
        note('reaction', isAnswered || element.ariaBusy === 'true');
        note('answer', isAnswered);
    }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""
Times = tuple[float, float]  # seconds until the reaction, and until the answer of the server


class Clicks:
    """The four actions on the pages of one server."""

    def __init__(self, page, url: str, run: str) -> None:
        self.page, self.url, self.run = page, url, run

    def launch_and_stop(self) -> dict[str, Times]:
        """Launch a run on the New run page, and stop it on the Runs page."""
        self._open("train", encoder="static")
        button = self._button("Launch run")
        seconds = {"launch": self._seconds(button, button.click)}
        self._heading("How is training going")
        button = self._button("Stop")
        return seconds | {"stop": self._seconds(button, button.click)}

    def mark(self) -> dict[str, Times]:
        """Mark the pinned pair on the Batches page; the mark is undone."""
        self._open("batches", encoder="static")
        button = self._button("Mark as false negative")
        seconds = {"mark": self._seconds(button, button.click)}
        self._button("Undo").click()
        self._button("Mark as false negative").wait_for()
        return seconds

    def search(self) -> dict[str, Times]:
        """Search for a query on the Retrieval page."""
        self._open("retrieval", run=self.run)
        box = self.page.get_by_role("searchbox").or_(self.page.get_by_role("textbox", name="Search", exact=True)).first
        box.fill(QUERY)
        return {"search": self._seconds(box, lambda: box.press("Enter"))}

    def _open(self, name: str, **query: str) -> None:
        self.page.goto(f"{self.url}/{name}?{urlencode(query)}")
        self.page.get_by_role("heading", level=1).wait_for()
        self._idle()

    def _heading(self, text: str) -> None:
        self.page.get_by_role("heading", level=1).filter(has_text=text).wait_for()
        self._idle()

    def _idle(self) -> None:
        self.page.locator(IDLE).wait_for()

    def _button(self, name: str):
        return self.page.get_by_test_id("stMain").get_by_role("button", name=name, exact=True)

    def _seconds(self, element, act: Callable[[], None]) -> Times:
        """Act on an element; return the seconds until the first visible reaction, and until the server's answer."""
        element.wait_for()
        self.page.locator("[data-testid=stToast]").first.wait_for(state="hidden")
        element.evaluate(OBSERVE)
        act()
        times = self.page.wait_for_function("window.reactionTimes.answer && window.reactionTimes").json_value()
        self._idle()
        return tuple((times[name] - times["click"]) / 1000 for name in ("reaction", "answer"))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--clicks", type=int, default=7)
    number = options.parse_args().clicks
    from chromium import executable
    from playwright.sync_api import sync_playwright
    from serving import AppServer

    from tests.browser.screenshots import sample_run_config, train_sample_run
    from tests.helpers.waiting import final_status, wait_until

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        server, browser = AppServer(Path(folder)), None
        try:
            run = train_sample_run(server.store)
            server.start()
            Queue(server.store.root).pause()  # launched runs wait, so that none trains
            browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(WAIT)
            clicks = Clicks(page, server.url, run.id)
            print_header(
                "click", "machine", "first reaction, s (median / max)", "answer of the server, s (median / max)"
            )
            _measure(clicks, "no run trains", number)
            unpause(server.store)
            active = launch(server.store, sample_run_config(epochs=100_000))
            wait_until(lambda: active.status().step > 0, lambda: "\n".join(active.log_tail()))
            _measure(clicks, "a run trains", number)
            request_stop(active)
            final_status(active)
        finally:
            if browser is not None:
                browser.close()
            server.stop()
            server.stop_jobs()


def _measure(clicks: Clicks, machine: str, number: int) -> None:
    """Print the times of each action; the first round, which fills the caches of the pages, does not count."""
    times: dict[str, list[Times]] = {}
    for measured in range(number + 1):
        for act in (clicks.launch_and_stop, clicks.mark, clicks.search):
            for name, seconds in act().items():
                times.setdefault(name, []).extend([seconds] if measured else [])
    for name, values in times.items():
        shown = [f"{statistics.median(one):.2f} / {max(one):.2f}" for one in zip(*values, strict=True)]
        print_row(name, machine, *shown)


if __name__ == "__main__":
    main()

"""Screenshots of every page in every state, in both themes and two widths, to look at.

python tests/browser/screenshots.py FOLDER
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, expect, sync_playwright

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from bsc_core.config import RunConfig, make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs import launch
from bsc_core.jobs.actions.stopping import request_stop
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStore
from tests.browser.chromium import executable
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_MS, final_status, wait_until

PAGES = ("", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")
PARAMETERS = {"embeddings": {"embeddings.method": "PCA"}}  # a map that needs no task
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 23, 29)"}
VIEWS = (("light", 1440), ("dark", 1440), ("light", 800), ("dark", 800))
HEIGHT = 900
RUN = "20260101-000000-search-0001"
LARGE = 200  # runs


def train_sample_run(store: RunStore) -> Run:
    """Train the static encoder for one epoch on the sample data, in this process."""
    from bsc_core.pipeline import run_experiment

    run = store.create(sample_run_config(epochs=1), RUN)
    advance(run, "running")
    run_experiment(run.config(), run)
    advance(run, "done", exit_code=0)
    return run


def sample_run_config(epochs: int) -> RunConfig:
    return make_config(
        {
            "data": sample_config().model_dump(mode="json"),
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "training": {
                "epochs": epochs,
                "batch_size": 30,
                "learning_rate": 0.01,
                "threads": 1,
                "precision": "fp32",
            },
        }
    )


def show_theme(page: Page, theme: str) -> None:
    """Select a theme as the system does, and wait until the page has its colors."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    expect(page.get_by_test_id("stApp")).to_have_css("background-color", BACKGROUNDS[theme])
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()


def screenshot(page: Page) -> bytes:
    """Return a screenshot of a page that no longer changes: two in a row are the same."""
    last = page.screenshot()

    def is_still() -> bool:
        nonlocal last
        last, before = page.screenshot(), last
        return last == before

    wait_until(is_still, "the page keeps changing")
    return last


def screenshots(page: Page, views: Iterable[tuple[str, int]]) -> Iterator[tuple[str, bytes]]:
    """Yield name and screenshot of an open page in each view, a theme and a width in pixels."""
    for theme, width in views:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        show_theme(page, theme)
        yield f"{theme}-{width}", screenshot(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        server = AppServer(Path(temporary))
        try:
            with server.running():
                _write_all_states(browser, server, arguments.folder)
        finally:
            server.stop_jobs()
            browser.close()
    return 0


def _write_all_states(browser: Browser, server: AppServer, folder: Path) -> None:
    _write(browser, server, folder / "empty", {})
    run = train_sample_run(server.store)
    _write(browser, server, folder / "normal", {"run": run.id})
    _write(browser, server, folder / "error", {"run": "nosuchrun", "dataset": "nosuchdataset", "encoder": "nosuch"})
    active = launch(server.store, sample_run_config(epochs=100_000), "20260101-000001-active-0001")
    wait_until(lambda: active.status().step > 0, lambda: "\n".join(active.log_tail()))
    _write(browser, server, folder / "training", {"run": active.id})
    request_stop(active)
    final_status(active)
    for number in range(LARGE):
        copied = run.folder.with_name(f"20260102-{number:06d}-search-{number:04d}")
        shutil.copytree(run.folder, copied, ignore=shutil.ignore_patterns("model", "checkpoints", "maps"))
    _write(browser, server, folder / "large", {"run": run.id})


def _write(browser: Browser, server: AppServer, folder: Path, query: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": 1440, "height": HEIGHT}, reduced_motion="reduce")
    page = context.new_page()
    for name in PAGES:
        page.set_viewport_size({"width": 1440, "height": HEIGHT})
        page.goto(f"{server.url}/{name}?{urlencode({**query, **PARAMETERS.get(name, {})})}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for view, picture in screenshots(page, VIEWS):
            (folder / f"{name or 'start'}-{view}.png").write_bytes(picture)
    context.close()


if __name__ == "__main__":
    raise SystemExit(main())

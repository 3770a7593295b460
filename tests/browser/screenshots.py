"""Screenshots of every page in every state, in both themes and two widths, and their comparison with a baseline.

    python tests/browser/screenshots.py FOLDER    write all of them, to look at
    python tests/browser/screenshots.py --update  replace the baseline, after a change of the design

The baseline has a small gray picture of every page in every state, in two of the four views. The test compares the mean
brightness of tiles, so it notices a missing element or another layout, but not other digits or another rendering of a
font.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from PIL import Image
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
from tests.helpers.waiting import PATIENCE_MS, final_status, held, wait_until

PAGES = ("", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")
PARAMETERS = {"embeddings": {"embeddings.method": "PCA"}}  # a map that needs no task
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 23, 29)"}
BASELINE_VIEWS = (("light", 1440), ("dark", 800))
VIEWS = (*BASELINE_VIEWS, ("dark", 1440), ("light", 800))
HEIGHT = 900
RUN = "20260101-000000-search-0001"
LARGE = 200  # runs
BASELINE = Path(__file__).with_name("baseline")
SMALLER = 4  # pixels of a screenshot for one pixel of the baseline
TILE = 5  # pixels of the baseline
DIFFERENT = 16  # of 255, in the mean brightness of a tile
TOLERANCE = 0.2
"""Share of the tiles with content that may differ from the baseline, in [0, 1]."""
HELD_STEP = 150
"""The run that is training while the pages are checked is suspended soon after this step."""
HELD_MESSAGE = "Training: epoch 7 of 100000"
HELD_ETA_SECONDS = 60_000.0
STILL = TOLERANCE / 10  # share of the tiles that a live run may change meanwhile
STILL_MS = 2_000  # between two screenshots that must be alike, since figures change their theme late


def train_sample_run(store: RunStore) -> Run:
    """Train the static encoder for one epoch on the sample data, in this process."""
    from bsc_core.pipeline import run_experiment

    run = store.create(sample_run_config(epochs=1), RUN)
    advance(run, "running")
    run_experiment(run.config(), run)
    advance(run, "done", exit_code=0)
    return run


def sample_run_config(epochs: int, learning_rate: float = 0.01) -> RunConfig:
    return make_config(
        {
            "data": sample_config().model_dump(mode="json"),
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "training": {
                "epochs": epochs,
                "batch_size": 30,
                "learning_rate": learning_rate,
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
    """Return a screenshot of a page that has stopped changing, except for the digits of a live run."""
    last = page.screenshot()

    def is_still() -> bool:
        nonlocal last
        page.wait_for_timeout(STILL_MS)
        last, before = page.screenshot(), last
        return difference(last, reduced(before)) < STILL

    wait_until(is_still, "the page keeps changing")
    return last


def show_view(page: Page, theme: str, width: int) -> None:
    """Show an open page in a theme and with a width in pixels, and wait until it has no empty elements."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    show_theme(page, theme)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


def reduced(picture: bytes) -> Image.Image:
    """Return a screenshot in gray, in the size of the baseline."""
    image = Image.open(io.BytesIO(picture)).convert("L")
    return image.resize((image.width // SMALLER, image.height // SMALLER), Image.Resampling.BOX)


def difference(picture: bytes, before: Image.Image) -> float:
    """Return the share of tiles that differ from a `reduced` picture, of those with content in one of both."""
    now = reduced(picture)
    assert now.size == before.size
    tiles = (now.width // TILE, now.height // TILE)
    values = [np.asarray(image.resize(tiles, Image.Resampling.BOX), dtype=np.int64) for image in (now, before)]
    background = np.median(values[1])
    has_content = [np.abs(value - background) > DIFFERENT for value in values]
    differs = np.abs(values[0] - values[1]) > DIFFERENT
    return float(differs.sum() / max(1, (has_content[0] | has_content[1]).sum()))


def open_every_page(browser: Browser, server: AppServer) -> Iterator[tuple[str, Page]]:
    """Open every page in every state, and yield its name with the open page.

    Args:
        browser: Opens the pages.
        server: A running server without runs.

    Yields:
        `state/page` and the page, which is open until the next one is requested.
    """
    yield from _open_pages(browser, server, "empty", {})
    run = train_sample_run(server.store)
    yield from _open_pages(browser, server, "normal", {"run": run.id})
    dead_link = {"run": "nosuchrun", "dataset": "nosuchdataset", "encoder": "nosuch"}
    yield from _open_pages(browser, server, "error", dead_link)
    unchanged = sample_run_config(epochs=100_000, learning_rate=1e-12)  # the pages show the same ranks at each epoch
    active = launch(server.store, unchanged, "20260101-000001-active-0001")
    wait_until(lambda: active.status().step > HELD_STEP, lambda: "\n".join(active.log_tail()))
    with held(active):
        # The lines of text depend on the speed of the machine and on what the run was doing.
        active.change_status(lambda status: replace(status, message=HELD_MESSAGE, eta_seconds=HELD_ETA_SECONDS))
        yield from _open_pages(browser, server, "training", {"run": active.id})
    request_stop(active)
    final_status(active)
    for number in range(LARGE):
        copied = run.folder.with_name(f"20260102-{number:06d}-search-{number:04d}")
        shutil.copytree(run.folder, copied, ignore=shutil.ignore_patterns("model", "checkpoints", "maps"))
    yield from _open_pages(browser, server, "large", {"run": run.id})


def _open_pages(
    browser: Browser, server: AppServer, state: str, query: Mapping[str, str]
) -> Iterator[tuple[str, Page]]:
    context = browser.new_context(viewport={"width": 1440, "height": HEIGHT}, reduced_motion="reduce")
    page = context.new_page()
    theme, width = BASELINE_VIEWS[0]
    for name in PAGES:
        page.goto("about:blank")  # so that the page before is not drawn in another view again
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": HEIGHT})  # a page that opens narrow collapses the sidebar
        page.goto(f"{server.url}/{name}?{urlencode({**query, **PARAMETERS.get(name, {})})}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if (state, name) == ("training", "runs"):  # the number of steps depends on the speed of the machine
            page.add_style_tag(content="[role=tabpanel] { visibility: hidden }")
        yield f"{state}/{name or 'start'}", page
    context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--update", action="store_true", help="replace the baseline of the tests")
    arguments = parser.parse_args()
    if arguments.update == (arguments.folder is not None):
        parser.error("a folder or --update is needed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        server, folder = AppServer(Path(temporary)), arguments.folder or Path(temporary) / "pictures"
        try:
            with server.running():
                for name, page in open_every_page(browser, server):
                    for theme, width in BASELINE_VIEWS if arguments.update else VIEWS:
                        show_view(page, theme, width)
                        picture = screenshot(page)
                        path = folder / f"{name}-{theme}-{width}.png"
                        path.parent.mkdir(parents=True, exist_ok=True)
                        if arguments.update:
                            reduced(picture).save(path, optimize=True)
                        else:
                            path.write_bytes(picture)
            if arguments.update:
                shutil.rmtree(BASELINE, ignore_errors=True)
                shutil.copytree(folder, BASELINE)
        finally:
            server.stop_jobs()
            browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Redrawn frames per second of the loss lab while its temperature slider is dragged, for one or more checkouts.

    python benchmarks/lab_frames.py [CHECKOUT ...] [--rounds 3] [--seconds 3]

A frame counts if the loss of the panels changed in it. The rounds of the checkouts alternate; medians are printed.
Needs the test extras and Chromium (`python tests/browser/chromium.py`).
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, parser, print_header, print_row

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
CASES = {
    "6 pairs": "source=circle&pairs=6",
    "16 pairs": "source=circle&pairs=16",
    "16 pairs, two settings compared": "source=circle&pairs=16&compare=1",
}
COUNT_FRAMES = """
(sum, seconds) => new Promise(resolve => {
  const start = performance.now();
  let frames = 0, last = sum.dataset.total;
  const count = now => {
    if (sum.dataset.total !== last) { frames++; last = sum.dataset.total; }
    if (now - start < 1000 * seconds) requestAnimationFrame(count);
    else { window.framesPerSecond = 1000 * frames / (now - start); }
  };
  requestAnimationFrame(count);
  resolve();
})
"""


def frames_per_second(page: object, address: str, seconds: float) -> float:
    """Drag the slider back and forth for some seconds."""
    page.goto(address)
    page.locator(".board .sum", has_text="Loss").first.wait_for()
    page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for()
    box = page.get_by_role("slider", name="Temperature τ").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.locator(".board .sum").first.evaluate(COUNT_FRAMES, seconds)
    end, position, step = time.monotonic() + seconds + 0.5, 0.5, 0.004
    while time.monotonic() < end:
        position += step
        step = -step if not 0.15 < position < 0.85 else step
        page.mouse.move(box["x"] + box["width"] * position, middle)
    page.mouse.up()
    return float(page.evaluate("window.framesPerSecond"))


def main() -> None:
    """Print the frames per second of each checkout and case."""
    arguments = parser(__doc__)
    arguments.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=3.0)
    options = arguments.parse_args()
    from chromium import executable
    from playwright.sync_api import sync_playwright
    from serving import AppServer

    servers: dict[Path, AppServer] = {}
    results: dict[tuple[Path, str], list[float]] = {}
    try:
        for checkout in options.checkouts:
            os.environ["PYTHONPATH"] = str(checkout.resolve())  # comes before the installed package
            servers[checkout] = AppServer(Path(tempfile.mkdtemp()))
            servers[checkout].start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(120_000)
            for _ in range(options.rounds):
                for name, query in CASES.items():
                    for checkout, server in servers.items():
                        result = frames_per_second(page, f"{server.url}/learn?{query}", options.seconds)
                        results.setdefault((checkout, name), []).append(result)
            browser.close()
    finally:
        for server in servers.values():
            server.stop()
    print_header("case", *(checkout.resolve().name for checkout in servers))
    for name in CASES:
        print_row(name, *(f"{statistics.median(results[checkout, name]):.0f}" for checkout in servers))


if __name__ == "__main__":
    main()

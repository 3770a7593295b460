"""Redrawn frames per second of the loss lab while its temperature slider is dragged, for one or more checkouts.

    python benchmarks/lab_frames.py [CHECKOUT ...] [--rounds 3] [--seconds 3]

A frame counts if the loss of the panels changed in it. The rounds of the checkouts alternate; medians are printed.
Needs the test extras and Chromium (`python tests/browser/chromium.py`).
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from measure import ROOT, parser, print_header, print_row

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
CASES = {
    "6 pairs": "source=circle&pairs=6",
    "16 pairs": "source=circle&pairs=16",
    "16 pairs, two settings compared": "source=circle&pairs=16&compare=1",
}
DRAG = """
([slider, sum, seconds]) => new Promise(resolve => {
  const start = performance.now(), low = Number(slider.min), high = Number(slider.max);
  let frames = 0, last = sum.dataset.total;
  const frame = now => {
    if (sum.dataset.total !== last) { frames++; last = sum.dataset.total; }
    const elapsed = (now - start) / 1000;
    if (elapsed >= seconds) return resolve(frames / elapsed);
    slider.value = low + (high - low) * (0.15 + 0.7 * Math.abs(elapsed % 4 / 2 - 1)); // each frame has another value
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""


def frames_per_second(page: object, address: str, seconds: float) -> float:
    """Drag the slider for some seconds; the page moves it, since a remote mouse moves less often than it is drawn."""
    page.goto(address)
    total = page.locator(".board .sum", has_text="Loss").first
    total.wait_for()
    page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for()
    slider = page.get_by_role("slider", name="Temperature τ").first
    arguments = [slider.element_handle(), total.element_handle(), seconds]
    return float(page.evaluate(DRAG, arguments))


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

"""Time from `bsc app` to the first usable page in a browser, and the heavy packages that each page imports.

    python benchmarks/app_start.py [--rounds 5]

Needs the test extras and Chromium (`python tests/browser/chromium.py`). A page is usable when its buttons are visible
and its script has ended.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, parser, print_header, print_row, run_python

HEAVY = ("torch", "transformers", "sentence_transformers", "umap", "faiss")
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]


def first_page(page: object, folder: Path) -> float:
    """Return the seconds from starting the command to a usable Start page."""
    from serving import AppServer

    server = AppServer(folder)
    started = time.perf_counter()
    try:
        server.start()
        page.goto(server.url, wait_until="commit")
        page.get_by_role("button", name="Launch").first.wait_for(state="visible", timeout=60_000)
        page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for(timeout=60_000)
        return time.perf_counter() - started
    finally:
        server.stop()


def imported(statement: str, none: str = "none of them") -> str:
    """Return the names of the heavy packages that a new process has imported after a statement."""
    code = f"import json, sys; {statement}; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    output = run_python("-c", code, stderr=subprocess.DEVNULL).output
    return ", ".join(json.loads(output.splitlines()[-1])) or none


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    from chromium import executable
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        seconds = [first_page(browser.new_page(), Path(folder)) for _ in range(rounds)]
        browser.close()
    print_header("measurement", "result")
    times = ", ".join(f"{value:.2f}" for value in seconds)
    print_row("`bsc app` to a usable Start page", f"median {statistics.median(seconds):.2f} s of {times}")
    print_row("`import bsc_core` loads", imported("import bsc_core", f"none of {', '.join(HEAVY)}"))
    for path in sorted((ROOT / "pages").glob("*.py")):
        run = f"from streamlit.testing.v1 import AppTest; AppTest.from_file({str(path)!r}, default_timeout=60).run()"
        print_row(f"{path.stem} page, opened on the sample data, loads", imported(run))


if __name__ == "__main__":
    main()

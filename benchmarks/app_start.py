"""Time from `bsc app` to the first usable page, in a browser, and what the imports bring in.

    python benchmarks/app_start.py [--rounds 5]

Needs the test extras and a Chromium (`python tests/browser/chromium.py`). Usable: the page's own buttons stand and its
script has ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "sentence_transformers", "umap", "faiss")
sys.path.insert(0, str(ROOT / "tests" / "browser"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def listening(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), timeout=0.05).close()
    except OSError:
        time.sleep(0.01)
        return False
    return True


def first_page(page: object, runs: str) -> float:
    """Seconds from starting the command to a usable Start page."""
    port = free_port()
    environment = {**os.environ, "BSC_RUNS": runs}
    started = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "bsc_core.cli", "app", "--port", str(port), "--no-browser"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not listening(port):
            if server.poll() is not None:
                raise SystemExit(f"bsc app ended with exit status {server.returncode}")
        page.goto(f"http://localhost:{port}", wait_until="commit")
        page.get_by_role("button", name="Launch").first.wait_for(state="visible", timeout=60_000)
        page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for(timeout=60_000)
        return time.perf_counter() - started
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def imported(statement: str) -> list[str]:
    """The heavy packages that a fresh process has loaded after a statement."""
    code = f"import sys; {statement}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return eval(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    from chromium import executable
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as runs:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        seconds = [first_page(browser.new_page(), runs) for _ in range(rounds)]
        browser.close()
    print("| what | result |\n| --- | --- |")
    shown = ", ".join(f"{value:.2f}" for value in seconds)
    print(f"| `bsc app` to a usable Start page | median {statistics.median(seconds):.2f} s of {shown} |")
    print(f"| `import bsc_core` loads | {', '.join(imported('import bsc_core')) or 'none of ' + ', '.join(HEAVY)} |")
    for path in sorted((ROOT / "pages").glob("*.py")):
        run = f"from streamlit.testing.v1 import AppTest; AppTest.from_file({str(path)!r}, default_timeout=60).run()"
        loaded = ", ".join(imported(run)) or "none of them"
        print(f"| {path.stem} page, opened on the sample data, loads | {loaded} |")


if __name__ == "__main__":
    main()

"""Find a Chromium for the browser tests, and fetch one where there is none.

Run as a script it makes sure there is one: the system's, else Playwright's own, else Debian's package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


def system_chromium() -> str | None:
    """The system's Chromium or Chrome, or None."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (str(MAC) if MAC.exists() else None)


def playwright_chromium() -> str | None:
    """The Chromium that Playwright downloaded, or None."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def executable() -> str:
    """A Chromium to drive. Raises FileNotFoundError where there is none."""
    found = system_chromium() or playwright_chromium()
    if found is None:
        raise FileNotFoundError("no Chromium: run `python tests/browser/chromium.py`, or install Chrome")
    return found


def _attempt(*command: str) -> bool:
    print("$", *command, file=sys.stderr, flush=True)  # noqa: T201
    try:
        return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _install() -> bool:
    """Debian's package where this user may install it, else Playwright's own download."""
    if shutil.which("apt-get") and hasattr(os, "geteuid"):
        root: tuple[str, ...] = () if os.geteuid() == 0 else ("sudo", "--non-interactive")
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        _attempt(*root, "apt-get", "update", "--quiet")
        if _attempt(*root, "apt-get", "install", "--yes", "--no-install-recommends", "chromium") and system_chromium():
            return True
    return _attempt(sys.executable, "-m", "playwright", "install", "chromium")


if __name__ == "__main__":
    if not (system_chromium() or playwright_chromium() or _install()):
        sys.exit("no Chromium could be installed; install Chrome or Chromium by hand, then run the tests again")

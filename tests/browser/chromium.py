"""Path of a Chromium for the browser tests. Run as a script, it installs one if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


def system_chromium() -> str | None:
    """Return the path of the installed Chromium or Chrome, or None."""
    result = next((path for name in NAMES if (path := shutil.which(name))), None)
    return result or (str(MAC) if MAC.exists() else None)


def playwright_chromium() -> str | None:
    """Return the path of the Chromium that Playwright downloaded, or None."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def executable() -> str:
    """Return the path of a Chromium. Raises FileNotFoundError when there is none."""
    result = system_chromium() or playwright_chromium()
    if result is None:
        raise FileNotFoundError("no Chromium: run `python tests/browser/chromium.py`, or install Chrome")
    return result


def _attempt(*command: str) -> bool:
    print("$", *command, file=sys.stderr, flush=True)  # noqa: T201
    try:
        return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _install() -> bool:
    """Install a Debian package if this user is allowed to, else Playwright's Chromium.

    The headless shell needs about 15% less processor time than Chromium; older releases do not have its package.
    """
    if shutil.which("apt-get") and hasattr(os, "geteuid"):
        root: tuple[str, ...] = () if os.geteuid() == 0 else ("sudo", "--non-interactive")
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        _attempt(*root, "apt-get", "update", "--quiet")
        install = (*root, "apt-get", "install", "--yes", "--no-install-recommends")
        if any(_attempt(*install, package) and system_chromium() for package in NAMES[:2]):
            return True
    return _attempt(sys.executable, "-m", "playwright", "install", "chromium")


if __name__ == "__main__":
    if not (system_chromium() or playwright_chromium() or _install()):
        sys.exit("no Chromium could be installed; install Chrome or Chromium by hand, then run the tests again")

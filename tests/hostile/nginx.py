"""Path of nginx for the test of the documented proxy. Run as a script, it unpacks Debian's package if there is none.

The package is not installed, which would start a server.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

UNPACKED = Path(sys.prefix) / "nginx"


def executable() -> str | None:
    """Return the path of nginx, or None."""
    unpacked = UNPACKED / "usr" / "sbin" / "nginx"
    return shutil.which("nginx") or (str(unpacked) if unpacked.exists() else None)


def _unpack() -> bool:
    """Download Debian's package and unpack it into the virtual environment."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["apt-get", "download", "--quiet", "nginx"], check=True, cwd=folder)
            package = next(Path(folder).glob("nginx_*.deb"))
            subprocess.run(["dpkg-deb", "--extract", str(package), str(UNPACKED)], check=True)
        except (OSError, subprocess.SubprocessError, StopIteration):
            return False
    return executable() is not None


if __name__ == "__main__" and not (executable() or _unpack()):
    print("nginx was not found and could not be unpacked; its test is skipped", file=sys.stderr)  # noqa: T201

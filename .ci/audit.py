"""Compare constraints.txt with a database of advisories, if one can be reached: python .ci/audit.py.

Installs pip-audit into .venv/audit. The exit status is 1 if a package has a known vulnerability that a later version
fixes, else 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv" / "audit"
TOOL = "pip-audit==2.10.1"
SECONDS = 300
UNREACHABLE = "No database of advisories can be reached from here; nothing was checked."


def audit() -> dict[str, Any]:
    """Return the report of pip-audit; empty if the tool or the database cannot be reached."""
    python = FOLDER / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    try:
        if not python.exists():
            venv.create(FOLDER, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOOL]
        subprocess.run(install, check=True, timeout=SECONDS)
        command = [python, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        command += ["--format", "json", "--requirement", str(ROOT / "constraints.txt")]
        done = subprocess.run(command, check=False, timeout=SECONDS, capture_output=True, text=True)
        report: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # an error is reported as text, not as JSON
        return {}
    return report


def summarize(report: dict[str, Any]) -> tuple[list[str], int]:
    """Return the lines to print about a report of pip-audit, and the exit status."""
    checked = [package for package in report.get("dependencies", []) if "vulns" in package]
    if not checked:
        return [UNREACHABLE], 0
    lines, status = [f"{len(checked)} package{'s' * (len(checked) != 1)} checked for known vulnerabilities."], 0
    for package in checked:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"])
            fix = f"fixed in {fixed}" if fixed else "no fix yet"
            lines.append(f"{package['name']} {package['version']}: {found['id']}, {fix}")
            status = 1 if fixed else status
    return lines, status


def main() -> int:
    """Print the summary and return the exit status."""
    lines, status = summarize(audit())
    sys.stdout.write("\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

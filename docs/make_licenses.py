"""Write docs/licenses.md: the packages of the default install with their licenses, from their installed metadata."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "bsc-lab"
PAGE = Path(__file__).with_name("licenses.md")
TEXT = """# Licenses

BSC Lab is licensed under Apache-2.0. This is the license of each package of its default install, as the package's
metadata name it, at the versions of `constraints.txt`; `python docs/make_licenses.py` wrote the table. A GPU build of
torch adds packages of NVIDIA under their own terms. BSC Lab contains none of these packages.

| package | license |
| --- | --- |
"""
LONGEST = 80  # characters of a license; some metadata contain the whole text
CLASSIFIER = "License :: OSI Approved :: "


def packages(project: str = PROJECT) -> dict[str, Distribution]:
    """Return the installed distributions that the project needs without extras, by name."""
    found: dict[str, Distribution] = {}
    pending = [(project, frozenset[str]())]
    while pending:
        name, extras = pending.pop()
        try:
            one = distribution(name)
        except PackageNotFoundError:  # for another system
            continue
        key = canonicalize_name(name)
        if key in found and not extras:
            continue
        found[key] = one
        for text in one.requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                pending.append((requirement.name, frozenset(requirement.extras)))
    found.pop(canonicalize_name(project), None)
    return dict(sorted(found.items()))


def license_of(package: Distribution) -> str:
    """Return the license of a package: its expression, else its classifiers, else the first line of its text."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [text.removeprefix(CLASSIFIER) for text in about.get_all("Classifier") or [] if CLASSIFIER in text]
    if classifiers:
        return ", ".join(classifiers)
    lines = [line.strip() for line in str(about.get("License") or "").splitlines() if line.strip()]
    return lines[0][:LONGEST] if lines else "not stated"


def listed() -> set[str]:
    """Return the names in the page."""
    return set(re.findall(r"^\| ([a-z0-9-]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)) - {"package"}


def main() -> None:
    rows = "".join(f"| {name} | {license_of(package)} |\n" for name, package in packages().items())
    PAGE.write_text(TEXT + rows, encoding="utf-8")


if __name__ == "__main__":
    main()

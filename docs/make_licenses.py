"""Write docs/licenses.md: the packages of the project with their licenses, from their installed metadata."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "bsc-lab"
PAGE = Path(__file__).with_name("licenses.md")
TEXT = """# Licenses

BSC Lab is licensed under Apache-2.0. This is the license of each package that it installs, as the package's metadata
name it, at the versions of `constraints.txt`; `python docs/make_licenses.py` wrote the tables. A GPU build of torch
adds packages of NVIDIA under their own terms. BSC Lab contains none of these packages.

## Default install
"""
OPTIONAL = """
## Optional dependencies and tests

The optional dependencies `trainer`, `ray`, `mteb`, `sign-in`, `lora` and `tensorboard`, and the packages of the tests:
"""
TABLE = """
| package | license |
| --- | --- |
"""
EXTRAS = frozenset({"trainer", "ray", "mteb", "sign-in", "lora", "tensorboard", "test"})
LONGEST = 80  # characters of a license; some metadata contain the whole text
CLASSIFIER = "License :: OSI Approved :: "


def packages(project: str = PROJECT, extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """Return the installed distributions that the project needs with these extras, by name."""
    found: dict[str, Distribution] = {}
    pending = [(project, extras)]
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
    """Return the license of a package: its expression, classifiers, or the first line of its text or license file."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [text.removeprefix(CLASSIFIER) for text in about.get_all("Classifier") or [] if CLASSIFIER in text]
    if classifiers:
        return ", ".join(classifiers)
    files = [file for file in package.files or [] if file.name.upper().startswith("LICENSE")]
    text = str(about.get("License") or "") or "".join(str(package.locate_file(file).read_text()) for file in files[:1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:LONGEST] if lines else "not stated"


def table(found: dict[str, Distribution]) -> str:
    """Return the table of distributions with their licenses."""
    return TABLE + "".join(f"| {name} | {license_of(package)} |\n" for name, package in found.items())


def listed() -> set[str]:
    """Return the names in the page."""
    return set(re.findall(r"^\| ([a-z0-9-]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)) - {"package"}


def main() -> None:
    default, every = packages(), packages(extras=EXTRAS)
    optional = {name: package for name, package in every.items() if name not in default}
    PAGE.write_text(TEXT + table(default) + OPTIONAL + table(optional), encoding="utf-8")


if __name__ == "__main__":
    main()

"""How far a reproduction is, in a file of the runs folder, and the lock that one process at a time holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bsc_core.files import write_whole
from bsc_core.recipes.claims import FormName
from bsc_core.recipes.reproducing import Say

KEPT = "findings"
"""The folder of a runs folder in which a reproduction leaves its findings."""
PROGRESS = ".progress.json"


class Progress:
    """Says how far a reproduction is, and keeps it in a file."""

    def __init__(self, name: str, runs: Path, form: FormName, say: Say) -> None:
        self._name, self._runs, self._form, self._say = name, runs, form, say
        self.done = self.of = 0

    def tell(self, doing: str, error: str | None = None) -> None:
        state = {"done": self.done, "of": self.of, "doing": doing, "error": error}
        write_progress(self._name, self._runs, self._form, state)
        if doing:
            self._say(f"{file_name(self._name, self._form)}: {self.done} of {self.of} runs done; {doing}")


def file_name(recipe: str, form: FormName) -> str:
    """The name of the files of a finding, without what follows the point."""
    return recipe if form == "full" else f"{recipe}-{form}"


def lock_file(name: str, runs: Path, form: FormName = "full") -> Path:
    """The file that is locked in a runs folder as long as a process reproduces the recipe."""
    return runs / KEPT / f".{file_name(name, form)}.lock"


def progress_file(name: str, runs: Path, form: FormName = "full") -> Path:
    """The file of a runs folder that says how far the reproduction of a recipe is."""
    return runs / KEPT / f"{file_name(name, form)}{PROGRESS}"


def write_progress(name: str, runs: Path, form: FormName, state: Mapping[str, Any]) -> None:
    """Say how far it is: `done`, `of`, `doing`, `error`, as `read_progress` gives them."""
    path = progress_file(name, runs, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(state).encode())


def read_progress(name: str, runs: Path, form: FormName = "full") -> dict[str, Any] | None:
    """How far the reproduction of a recipe in a runs folder is: `done`, `of`, `doing`, `error`.

    None before any, and where the file that says so is damaged.
    """
    try:
        told = json.loads(progress_file(name, runs, form).read_bytes())
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) and {"done", "of", "doing", "error"} <= told.keys() else None

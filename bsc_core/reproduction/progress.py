"""Progress of a reproduction, in a file of the runs folder, and the lock against concurrent reproductions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsc_core.files import atomic_write, read_regular
from bsc_core.reproduction.claims import FormName

FINDINGS_FOLDER = "findings"
"""Folder of findings inside a runs folder."""
PROGRESS_SUFFIX = ".progress.json"
Log = Callable[[str], object]
"""Called with one line about the progress."""


@dataclass
class ProgressLog:
    """Reports the progress of a reproduction to a log and stores it in a file.

    done, of: numbers of finished and of all runs.
    """

    name: str
    runs: Path
    form: FormName
    log: Log
    done: int = 0
    of: int = 0

    def update(self, doing: str, error: str | None = None) -> None:
        """Store and report the current activity; an empty one marks the end."""
        state = {"done": self.done, "of": self.of, "doing": doing, "error": error}
        write_progress(self.name, self.runs, self.form, state)
        if doing:
            self.log(f"{file_stem(self.name, self.form)}: {self.done} of {self.of} runs done; {doing}")


def file_stem(claim: str, form: FormName) -> str:
    """Return the name of the files of a finding, without their suffix."""
    return claim if form == "full" else f"{claim}-{form}"


def lock_file(name: str, runs: Path, form: FormName = "full") -> Path:
    """Return the file that is locked while a process reproduces the claim."""
    return runs / FINDINGS_FOLDER / f".{file_stem(name, form)}.lock"


def progress_file(name: str, runs: Path, form: FormName = "full") -> Path:
    """Return the file with the progress of a claim's reproduction."""
    return runs / FINDINGS_FOLDER / f"{file_stem(name, form)}{PROGRESS_SUFFIX}"


def write_progress(name: str, runs: Path, form: FormName, state: Mapping[str, Any]) -> None:
    """Store the progress: `done`, `of`, `doing`, `error`, as `read_progress` returns them."""
    atomic_write(progress_file(name, runs, form), json.dumps(state))


def read_progress(name: str, runs: Path, form: FormName = "full") -> dict[str, Any] | None:
    """Return the progress of a claim's reproduction: `done`, `of`, `doing`, `error`; None without a readable file."""
    try:
        state = json.loads(read_regular(progress_file(name, runs, form)))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(state, dict):
        return None
    numbers, texts = (state.get("done"), state.get("of")), (state.get("doing"), state.get("error"))
    has_types = all(isinstance(one, int) for one in numbers) and all(isinstance(one, str | None) for one in texts)
    return state if has_types else None

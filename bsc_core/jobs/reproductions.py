"""A recipe put to the test in a process of its own: `bsc reproduce`, which outlives the page that starts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bsc_core.jobs.local import CALM_PROCESS, start_detached
from bsc_core.recipes.claims import FormName
from bsc_core.recipes.progress import lock_file, progress_file, read_progress, write_progress
from bsc_core.runs import RunStore

STARTING_SECONDS = 30.0
"""How long a process may take from its start until it holds its lock."""


@dataclass(frozen=True)
class Reproduction:
    """How far one is. done, of: its runs; doing: in words; going: whether a process is at it; error: why it ended."""

    done: int
    of: int
    doing: str
    going: bool
    error: str | None


def start_reproduction(
    store: RunStore, name: str, form: FormName, data: Path | None, *, start: Callable[..., object] = start_detached
) -> None:
    """Start `bsc reproduce NAME` detached, unless one is at it. data: folder of the data sets, for the full form."""
    if (state := reproduction(store, name, form)) is not None and state.going:
        return
    write_progress(name, store.root, form, {"done": 0, "of": 0, "doing": "starting", "error": None})
    log = _log_file(store, name, form)
    log.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "reproduce", name, "--form", form]
    command += ["--runs", str(store.root), *(["--data", str(data)] if data is not None else [])]
    start(command, log, CALM_PROCESS)


def reproduction(store: RunStore, name: str, form: FormName) -> Reproduction | None:
    """How far the last one is, or None where none was started from this runs folder."""
    told = read_progress(name, store.root, form)
    if told is None:
        return None
    done, of, doing, error = (told[key] for key in ("done", "of", "doing", "error"))
    begun, log = progress_file(name, store.root, form).stat().st_mtime, _log_file(store, name, form)
    ended = bool(of) and done >= of and not doing  # the runs being done, they are still to be compared
    held = _is_held(lock_file(name, store.root, form))
    starting = doing == "starting" and time.time() - begun < STARTING_SECONDS and not _wrote(log)
    if not (ended or held or starting or error):
        error = f"the process ended early; its log is {log}"
    going = held or (starting and not error)
    return Reproduction(int(done), int(of), str(doing), going and not ended, error)


def _log_file(store: RunStore, name: str, form: FormName) -> Path:
    """What the process prints."""
    return progress_file(name, store.root, form).with_suffix("").with_suffix(".log")


def _is_held(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def _wrote(log: Path) -> bool:
    return log.is_file() and log.stat().st_size > 0

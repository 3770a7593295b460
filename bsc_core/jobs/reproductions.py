"""Reproduction of a claim in a separate process, `bsc reproduce`, that outlives the page that starts it."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bsc_core.files import is_locked
from bsc_core.jobs.local.processes import PROCESS_ENVIRONMENT, start_detached
from bsc_core.reproduction.claims import FormName
from bsc_core.reproduction.progress import lock_file, progress_file, read_progress, write_progress
from bsc_core.runs import RunStore

STARTING_SECONDS = 30.0
"""Seconds that a process may take from its start until it holds its lock."""


@dataclass(frozen=True)
class Reproduction:
    """Progress of a reproduction: finished runs, all runs, current activity, whether it is active, and its error."""

    done: int
    total: int
    activity: str
    is_active: bool
    error: str | None


def start_reproduction(
    store: RunStore, name: str, form: FormName, data: Path | None, *, start: Callable[..., object] = start_detached
) -> None:
    """Start `bsc reproduce NAME`, unless one is active; `data` is the folder of the datasets for the full form."""
    if (state := reproduction(store, name, form)) is not None and state.is_active:
        return
    write_progress(name, store.root, form, {"done": 0, "of": 0, "doing": "starting", "error": None})
    log = _log_file(store, name, form)
    log.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "reproduce", name, "--form", form]
    command += ["--runs", str(store.root), *(["--data", str(data)] if data is not None else [])]
    start(command, log, PROCESS_ENVIRONMENT)


def reproduction(store: RunStore, name: str, form: FormName) -> Reproduction | None:
    """Return the progress of the last reproduction in this runs folder, or None."""
    stored = read_progress(name, store.root, form)
    if stored is None:
        return None
    done, of, doing, error = (stored[key] for key in ("done", "of", "doing", "error"))
    started_at, log = progress_file(name, store.root, form).stat().st_mtime, _log_file(store, name, form)
    ended = bool(of) and done >= of and not doing  # after the runs, they are still to be compared
    held = is_locked(lock_file(name, store.root, form))
    starting = (
        doing == "starting"
        and time.time() - started_at < STARTING_SECONDS
        and not (log.is_file() and log.stat().st_size)
    )
    if not (ended or held or starting or error):
        error = f"the process ended early; its log is {log}"
    is_active = held or (starting and not error)
    return Reproduction(int(done), int(of), str(doing), is_active and not ended, error)


def _log_file(store: RunStore, name: str, form: FormName) -> Path:
    """Return the file with the output of the process."""
    return progress_file(name, store.root, form).with_suffix("").with_suffix(".log")

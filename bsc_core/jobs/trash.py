"""Deleting with undo: a run's folder is moved aside, and removed for good a week later or on demand."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from bsc_core.errors import InputError, RunError, RunNotFoundError
from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStore

KEPT_SECONDS = 7 * 24 * 3600.0
_FOLDER = ".trash"
_WHEN = "trashed"


@dataclass(frozen=True)
class Trashed:
    """A run that was deleted and can be restored. when: seconds since the epoch."""

    id: str
    when: float
    run: Run


def trash(store: RunStore, run: Run) -> None:
    """Move a run out of the runs folder. One that still waits in the queue leaves it.

    Raises InputError for a run that goes on, RunError when its folder cannot be moved.
    """
    state = advance(run, "stopped", message="deleted before it began").state if _waits(run) else run.status().state
    if not run.status().is_finished:
        raise InputError(f"run {run.id} is {state}; stop it first")
    if state == "lost" and backend_of(run).look(run).state == "alive":
        raise InputError(f"run {run.id} was given up for lost, but its process is still there; stop it first")
    Queue(store.root).finish(run.id)
    run.write_json(_WHEN, {"when": time.time()})
    target = store.root / _FOLDER / run.id
    try:
        target.parent.mkdir(exist_ok=True)
        if target.exists():  # an earlier run of this name, which nobody restored
            shutil.rmtree(target)
        run.folder.rename(target)
    except OSError as error:
        raise RunError(f"run {run.id}: its folder could not be moved ({error}); close what holds its files") from error


def restore(store: RunStore, run_id: str) -> Run:
    """Bring a deleted run back. Raises RunNotFoundError when it is gone for good, InputError when its name is taken."""
    found = next((one for one in trashed(store) if one.id == run_id), None)
    if found is None:
        raise RunNotFoundError(f"run {run_id}: it is not among the deleted runs that are still kept")
    target = store.root / run_id
    if target.exists():
        raise InputError(f"run {run_id}: there is a run of that name; delete or rename it first")
    found.run.folder.rename(target)
    run = store.get(run_id)
    (run.folder / f"{_WHEN}.json").unlink(missing_ok=True)
    return run


def trashed(store: RunStore) -> list[Trashed]:
    """The runs that were deleted and can be restored, newest first."""
    folder = store.root / _FOLDER
    found = [_trashed(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda one: one.when, reverse=True)


def empty_trash(store: RunStore, *, older_than_seconds: float = 0.0) -> int:
    """Remove deleted runs for good, those that were deleted at least so long ago. Returns their number."""
    old = [one for one in trashed(store) if time.time() - one.when >= older_than_seconds]
    for one in old:
        shutil.rmtree(one.run.folder)
    return len(old)


def _waits(run: Run) -> bool:
    return run.status().state == "queued"


def _trashed(folder: Path) -> Trashed:
    run = Run(folder)
    try:
        when = float((run.read_json(_WHEN) or {})["when"])
    except (RunError, KeyError, TypeError, ValueError):  # a damaged note: the run is still to be restored
        when = folder.stat().st_mtime
    return Trashed(run.id, when, run)

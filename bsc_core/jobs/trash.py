"""Deleting with undo: a run's folder is moved aside, and removed for good a week later or on demand."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsc_core.errors import InputError, RunError, RunNotFoundError
from bsc_core.files import as_json, write_whole
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.jobs.stopping import hangs_on
from bsc_core.runs import Run, RunStore

KEPT_SECONDS = 7 * 24 * 3600.0
_FOLDER = ".trash"
_WHEN = "trashed"
_LOOKS = ".looks.json"
_GONE = ".gone-"
_LOOK_SECONDS = 3600.0
_LONGEST_STEP = 24 * 3600.0


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
    if hangs_on(run):
        raise InputError(f"run {run.id} was given up for lost, but its process is still there; stop it first")
    Queue(store.root).finish(run.id)
    run.write_json(_WHEN, {"when": time.time()})
    target = store.root / _FOLDER / run.id
    try:
        target.parent.mkdir(exist_ok=True)
        if target.exists():  # an earlier run of this name, which nobody restored
            _remove(target)
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
    try:
        found.run.folder.rename(target)
    except FileNotFoundError:
        raise RunNotFoundError(f"run {run_id}: the trash was emptied just now") from None
    run = store.get(run_id)
    (run.folder / f"{_WHEN}.json").unlink(missing_ok=True)
    return run


def trashed(store: RunStore) -> list[Trashed]:
    """The runs that were deleted and can be restored, newest first."""
    folder = store.root / _FOLDER
    paths = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."] if folder.is_dir() else []
    return sorted(filter(None, map(_trashed, paths)), key=lambda one: one.when, reverse=True)


def empty_trash(store: RunStore, *, older_than_seconds: float = 0.0, clock: Callable[[], float] = time.time) -> int:
    """Remove deleted runs for good. Returns the number that this call removed.

    older_than_seconds: only those that have lain there so long by the looks at them, of which each adds what has passed
    since the one before, at most a day: a clock that is set forward, by however much, ages them by no more.
    """
    there = trashed(store)
    if older_than_seconds > 0:
        ages = _ages(store.root / _FOLDER, there, clock()) if there else {}
        there = [one for one in there if ages[_key(one)] >= older_than_seconds]
    removed = sum(_remove(one.run.folder) for one in there)
    for left in (store.root / _FOLDER).glob(f"{_GONE}*"):  # also of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    return removed


def _remove(folder: Path) -> bool:
    """Take a deleted run out of sight, whole, so that two who empty the trash at once do not meet in its files."""
    try:
        folder.rename(folder.with_name(f"{_GONE}{folder.name}-{secrets.token_hex(4)}"))
    except OSError:  # another was first, or something holds its files
        return False
    return True


def _ages(folder: Path, there: list[Trashed], now: float) -> dict[str, float]:
    """How long each deleted run has lain there by the looks at them, in seconds; noted beside them once an hour."""
    last, known = _noted(folder / _LOOKS, now)
    if 0 <= now - last < _LOOK_SECONDS and all(_key(one) in known for one in there):
        return known
    passed = min(max(0.0, now - last), _LONGEST_STEP)
    ages = {key: known[key] + passed if key in known else 0.0 for key in map(_key, there)}
    with suppress(OSError):  # the next look notes it
        write_whole(folder / _LOOKS, as_json({"last": now, "ages": ages}))
    return ages


def _noted(path: Path, now: float) -> tuple[float, dict[str, float]]:
    """When the deleted runs were last looked at, and their ages then; a damaged note lets the week begin anew."""
    try:
        note = json.loads(path.read_bytes())
        return float(note["last"]), {str(key): float(age) for key, age in note["ages"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return now, {}


def _key(one: Trashed) -> str:
    return f"{one.id} {one.when}"  # one that came back and is deleted again is another


def _waits(run: Run) -> bool:
    return run.status().state == "queued"


def _trashed(folder: Path) -> Trashed | None:
    run = Run(folder)
    try:
        return Trashed(run.id, _when(run), run)
    except FileNotFoundError:  # removed or restored just now
        return None


def _when(run: Run) -> float:
    try:
        return float((run.read_json(_WHEN) or {})["when"])
    except (RunError, KeyError, TypeError, ValueError):  # a damaged note: the run is still to be restored
        return run.folder.stat().st_mtime

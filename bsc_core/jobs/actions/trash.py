"""Trash: deleted runs are moved to a hidden folder and removed after a week or on demand."""

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from bsc_core.errors import InputError, RunError, RunNotFoundError
from bsc_core.files import as_json, atomic_write, file_lock, read_regular, sync
from bsc_core.jobs.actions.stopping import check_ended
from bsc_core.jobs.queue import Queue, check_locks
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStore
from bsc_core.runs.store import TRASH

TRASH_SECONDS = 7 * 24 * 3600.0
_MAX_TIME = 1e11  # seconds since the epoch, in the year 5138
_DELETED = "trashed"
_LOCK, _LOCK_SECONDS = ".trash.lock", 10.0
_AGES_FILE = ".looks.json"
_REMOVED = ".gone-"
_AGES_SECONDS = 3600.0
_MAX_STEP_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class TrashedRun:
    """A deleted run that can be restored; `deleted_at` is in seconds since the epoch."""

    id: str
    deleted_at: float
    run: Run


def trash(store: RunStore, run: Run) -> None:
    """Move a run to the trash and remove it from the queue.

    Raises:
        InputError: The run is active.
        RunNotFoundError: The run was deleted already.
        RunError: Its folder cannot be moved.
    """
    if (store.root / TRASH).is_symlink():
        raise RunError(f"{store.root / TRASH}: the trash is a link; remove it")
    with _lock(store):
        if not run.exists:  # another user or process was first
            raise RunNotFoundError(f"run {run.id} was deleted already")
        if run.status().state == "queued":
            advance(run, "stopped", message="deleted before it started")
        check_ended(run)
        Queue(store.root).finish(run.id)
        run.write_json(_DELETED, {"when": time.time()})
        target = store.root / TRASH / run.id
        try:
            target.parent.mkdir(exist_ok=True)
            if target.exists():  # an earlier run of this id
                _remove(target)
            _move(run.folder, target)
        except OSError as error:
            raise RunError(
                f"run {run.id}: its folder could not be moved ({error}); close the programs that use its files"
            ) from error


@contextmanager
def _lock(store: RunStore) -> Iterator[None]:
    """Hold the lock for moving runs to and from the trash. Raises RunError if another process holds it for long."""
    check_locks(store.root)
    lock = file_lock(store.root / _LOCK, _LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise RunError("another process is moving runs to or from the trash; try again") from None
    except OSError as error:
        raise RunError(f"{store.root}: the folder cannot be written to ({error}); make it writable") from error
    try:
        yield
    finally:
        lock.release()


def restore(store: RunStore, run_id: str) -> Run:
    """Restore a deleted run.

    Raises:
        RunNotFoundError: The run was removed for good.
        InputError: The id is in use.
    """
    with _lock(store):
        deleted = next((deleted for deleted in list_trash(store) if deleted.id == run_id), None)
        if deleted is None:
            raise RunNotFoundError(f"run {run_id} is not in the trash; it was removed for good or never deleted")
        target = store.root / run_id
        if not Run(target).exists:  # a task that ended after the deletion may have written a merged model
            shutil.rmtree(Run(target).merged_folder, ignore_errors=True)
            with suppress(OSError):
                target.rmdir()
        if target.exists():
            raise InputError(f"run {run_id} exists already; delete or rename it first")
        try:
            _move(deleted.run.folder, target)
        except FileNotFoundError:
            raise RunNotFoundError(f"run {run_id}: the trash was emptied just now") from None
        run = store.get(run_id)
        (run.folder / f"{_DELETED}.json").unlink(missing_ok=True)
        return run


def list_trash(store: RunStore) -> list[TrashedRun]:
    """Return the deleted runs that can be restored, newest first."""
    folder = store.root / TRASH
    if not folder.is_dir() or folder.is_symlink():
        return []
    paths = [path for path in folder.iterdir() if path.name[0] != "." and not path.is_symlink() and Run(path).exists]
    return sorted(filter(None, map(_read, paths)), key=lambda deleted: deleted.deleted_at, reverse=True)


def empty_trash(store: RunStore, *, older_than_seconds: float = 0.0, clock: Callable[[], float] = time.time) -> int:
    """Remove deleted runs for good.

    Args:
        store: The runs.
        older_than_seconds: Minimum age in the trash. Each call adds the time since the previous one, at most a day, so
            setting the clock forward removes nothing.
        clock: Returns seconds since the epoch.

    Returns:
        The number of runs that this call removed.
    """
    runs = list_trash(store)
    if runs and older_than_seconds > 0:
        ages = _ages(store.root / TRASH, runs, clock())
        runs = [deleted for deleted in runs if ages[_key(deleted)] >= older_than_seconds]
    removed = sum(_remove(deleted.run.folder) for deleted in runs)
    if not (store.root / TRASH).is_symlink():
        for leftover in (store.root / TRASH).glob(f"{_REMOVED}*"):  # including those of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
    return removed


def _move(folder: Path, target: Path) -> None:
    """Move a folder; a power cut afterwards does not undo it."""
    folder.rename(target)
    sync(target.parent)
    sync(folder.parent)


def _remove(folder: Path) -> bool:
    """Rename a deleted run, so that two processes that empty the trash do not remove the same files."""
    try:
        folder.rename(folder.with_name(f"{_REMOVED}{folder.name}-{secrets.token_hex(4)}"))
    except OSError:  # another process was first, or a file is in use
        return False
    return True


def _ages(folder: Path, runs: list[TrashedRun], now: float) -> dict[str, float]:
    """Return the age of each deleted run in seconds; stored at most once an hour."""
    last, known = _read_ages(folder / _AGES_FILE, now)
    if 0 <= now - last < _AGES_SECONDS and all(_key(deleted) in known for deleted in runs):
        return known
    passed = min(max(0.0, now - last), _MAX_STEP_SECONDS)
    ages = {key: known[key] + passed if key in known else 0.0 for key in map(_key, runs)}
    with suppress(OSError):  # the next call stores it
        atomic_write(folder / _AGES_FILE, as_json({"last": now, "ages": ages}))
    return ages


def _read_ages(path: Path, now: float) -> tuple[float, dict[str, float]]:
    """Return when the ages were stored, and the ages; all start at zero again if the file is damaged."""
    try:
        stored = json.loads(read_regular(path))
        return float(stored["last"]), {str(key): float(age) for key, age in stored["ages"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return now, {}


def _key(deleted: TrashedRun) -> str:
    return f"{deleted.id} {deleted.deleted_at}"  # a restored run that is deleted again starts at zero


def _read(folder: Path) -> TrashedRun | None:
    run = Run(folder)
    try:
        try:
            deleted_at = float((run.read_json(_DELETED) or {})["when"])
            if not 0 <= deleted_at <= _MAX_TIME:
                raise ValueError("a time that cannot be shown")
        except (RunError, KeyError, TypeError, ValueError, OverflowError):  # damaged; the run can still be restored
            deleted_at = folder.stat().st_mtime
    except FileNotFoundError:  # removed or restored in the meantime
        return None
    return TrashedRun(run.id, deleted_at, run)

"""Going on with a run that was stopped, lost or failed: a new run that starts from its last good checkpoint.

The old run stays as it ended. What the new one needs of it is copied, so either may be deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from filelock import FileLock, Timeout

from bsc_core.errors import InputError, JobError
from bsc_core.jobs.backends import backend_named
from bsc_core.jobs.launching import backend_here, launch, write_launched
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import LAUNCHED
from bsc_core.jobs.states import RESUMED
from bsc_core.jobs.stopping import hangs_on
from bsc_core.runs import DRAFT, Run, RunStore, new_run_id

COPIED = (
    "model",
    "loss",
    "evaluation",
    "plans",
    "vectors",
    "marks",
    "embeddings_before.npy",
    "embeddings_after.npy",
    "texts.json",
    "group.json",
    "first_batch.json",
    "metrics.jsonl",
)
_BUSY_SECONDS = 5.0


def can_resume(run: Run) -> bool:
    """Whether a run ended early and left a checkpoint to go on from."""
    return run.status().state in ("stopped", "lost", "failed") and _checkpoint_names(run) != []


def continue_run(store: RunStore, run: Run) -> Run:
    """Make the run that goes on where `run` ended; it is queued, and nothing is started. Its config is the same.

    Curves up to the checkpoint are copied too. It is seen once all of it is there. Raises InputError where the run did
    not end early or has no checkpoint, or where one that goes on with it has not ended.
    """
    _check(run)
    with _alone(run):
        other = _open_continuation(store, run)
        if other is not None:
            state = other.status().state
            raise InputError(f"run {run.id}: run {other.id}, which is {state}, goes on with it; stop that one first")
        return _make(store, run)


def resume(store: RunStore, run: Run, *, start: Callable[[RunStore], None] = start_supervisor) -> Run:
    """Queue the run that goes on where `run` ended, and return it at once. Raises InputError as `continue_run` does.

    Resuming again, as from two tabs, makes no second one while the first has not ended: that one is returned.
    """
    _check(run)
    with _alone(run):
        following = _open_continuation(store, run) or _make(store, run, is_queued=True)
    if not (following.folder / f"{LAUNCHED}.json").is_file():  # performed by the process that made it
        return following
    return launch(store, following.config(), following.id, start=start)


def _check(run: Run) -> None:
    """Raise InputError for a run that cannot be gone on with."""
    status = run.status()
    if not status.is_finished:
        raise InputError(f"run {run.id} is {status.state}; stop it first")
    if hangs_on(run):
        raise InputError(f"run {run.id} was given up for lost, but its process is still there; stop it first")
    if status.state == "done":
        raise InputError(f"run {run.id} is done; there is nothing to go on with")
    if not _checkpoint_names(run):
        raise InputError(f"run {run.id} left no checkpoint, so there is nothing to go on from; launch it anew")
    _reached(run)


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """While no other process makes a run that goes on with this one. Raises JobError when one does for long."""
    lock = FileLock(run.folder / ".resume.lock", timeout=_BUSY_SECONDS, poll_interval=0.005)
    try:
        lock.acquire()
    except Timeout:
        raise JobError(
            f"run {run.id}: another process copies it to go on with it; look at the runs again in a minute"
        ) from None
    except OSError as error:
        raise JobError(
            f"run {run.id}: its folder cannot be written to ({error}); make it writable or free disk space"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _open_continuation(store: RunStore, run: Run) -> Run | None:
    """The run that goes on with this one and has not ended, if there is one."""
    following = (other for other in store.list() if other.status().resumed_from == run.id)
    return next((other for other in following if not other.status().is_finished or hangs_on(other)), None)


def _make(store: RunStore, run: Run, *, is_queued: bool = False) -> Run:
    """Copy what the next run needs. is_queued: it belongs in the queue from the moment it is seen."""
    _sweep(store, run)
    config, status = run.config(), run.status()
    names = [*COPIED, *(f"checkpoints/{name}" for name in _checkpoint_names(run))]

    def fill(draft: Run) -> None:
        draft.update_status(resumed_from=run.id)  # whose it is, should this process be killed
        draft.write_json(RESUMED, {"from": run.id})
        for name in names:
            _copy(run, draft, name)
        draft.rewind_metrics(**_reached(run))
        if is_queued:
            _write_launched(run, draft)
        draft.update_status(group=status.group, message=f"goes on from run {run.id}")

    try:
        return store.create(config, new_run_id(config), fill)
    except OSError as error:
        raise JobError(f"run {run.id}: it could not be copied ({error}); free disk space, then retry") from error


def _write_launched(run: Run, draft: Run) -> None:
    """The next run may read what the old one might, and is performed where that was."""
    launched = run.read_json(LAUNCHED)
    where = backend_here() if launched is None else run.status().backend
    backend_named(where)
    draft.update_status(backend=where)
    if launched is None:
        write_launched(draft, where)
    else:
        draft.write_json(LAUNCHED, launched)


def _sweep(store: RunStore, run: Run) -> None:
    """Remove what a process that was killed had half written: a checkpoint, the best model, or a copy of the run."""
    for scratch in (*run.checkpoints_folder.glob(".step-*"), *run.folder.glob(".model-*")):
        shutil.rmtree(scratch, ignore_errors=True)
    for draft in store.root.glob(f"{DRAFT}*"):
        if Run(draft).status().resumed_from == run.id:  # nobody else makes one now
            shutil.rmtree(draft, ignore_errors=True)


def _checkpoint_names(run: Run) -> list[str]:
    found = run.checkpoints_folder.glob("step-*")
    whole = (path.name for path in found if (path / "progress.json").is_file())
    return sorted(whole, key=lambda name: (len(name), name))  # beyond 999,999 steps a name is longer


def _copy(run: Run, following: Run, name: str) -> None:
    source, target = run.folder / name, following.folder / name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _reached(run: Run) -> dict[str, Any]:
    """Where the newest checkpoint that says so stands: step, epoch, and whether it ends the epoch."""
    for name in reversed(_checkpoint_names(run)):
        try:
            values = json.loads((run.checkpoints_folder / name / "progress.json").read_text(encoding="utf-8"))
            return {key: values[key] for key in ("step", "epoch", "ends_epoch")}
        except (OSError, ValueError, KeyError, TypeError):  # damaged: the run's process will name it and pass it over
            continue
    raise InputError(
        f"run {run.id}: none of its checkpoints can be read, so there is nothing to go on from; launch it anew"
    )

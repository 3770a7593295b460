"""Resuming a stopped, lost or failed run: a new run that starts from its last good checkpoint.

A run that was stopped before its first step is queued again, also as a new run.

The old run is not changed. What the new one needs is copied, so either may be deleted.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import Timeout

from bsc_core.errors import InputError, JobError
from bsc_core.files import file_lock, read_regular
from bsc_core.jobs.actions.launching import default_backend, launch, write_launch_environment
from bsc_core.jobs.actions.stopping import check_ended, has_live_process
from bsc_core.jobs.backends import get_backend
from bsc_core.jobs.local.processes import start_supervisor
from bsc_core.jobs.queue import check_locks
from bsc_core.runs import Run, RunStatus, RunStore
from bsc_core.runs.documents import EVALUATION_SIZES, INTERVALS, LAUNCHED, PREVIOUS_NAMES, RESUMED
from bsc_core.runs.ids import new_run_id, without_time
from bsc_core.runs.store import DRAFT

COPIED = (
    *("model", "loss", "evaluation", "plans", "vectors", "false_negatives", "marks"),
    *("embeddings_before.npy", "embeddings_after.npy", "texts.json", "group.json", "first_batch.json", "metrics.jsonl"),
)
_OF_WAITING_RUN = ("false_negatives", "marks", "group.json")
_OF_OLD_MODEL = ("evaluation/after", EVALUATION_SIZES, PREVIOUS_NAMES[EVALUATION_SIZES], INTERVALS)
SPARSE_ABOVE = 2**28  # bytes
_BUSY_SECONDS = 5.0


def can_resume(run: Run) -> bool:
    """Return whether a run ended early and has a checkpoint, or was stopped before its first step."""
    ended_early = run.status().state in ("stopped", "lost", "failed")
    return ended_early and (_checkpoint_names(run) != [] or never_started(run))


def never_started(run: Run) -> bool:
    """Return whether a run was stopped before its first training step."""
    status = run.status()
    return status.state == "stopped" and status.step == 0 and not _checkpoint_names(run)


def continue_run(store: RunStore, run: Run) -> Run:
    """Create the run that resumes `run`, with the same config and the metrics up to the checkpoint; start nothing.

    Raises:
        InputError: The run did not end early, has no checkpoint, or is resumed by a run that has not ended.
        JobError: The run cannot be copied.
    """
    _check(run)
    with _resume_lock(run):
        other = _active_continuation(store, run)
        if other is not None:
            raise InputError(
                f"run {run.id} is resumed by run {other.id}, which is {other.status().state}; stop that one first"
            )
        return _create(store, run)


def resume(store: RunStore, run: Run, *, start: Callable[[RunStore], None] = start_supervisor) -> Run:
    """Queue a run that resumes `run` and return it at once. Raises as `continue_run` does.

    If a run that resumes it has not ended, as after a click in two tabs, that one is returned.
    """
    _check(run)
    check_locks(store.root)
    with _resume_lock(run):
        resumed = _active_continuation(store, run) or _create(store, run, is_queued=True)
    if not (resumed.folder / f"{LAUNCHED}.json").is_file():  # executed by the process that created it
        return resumed
    return launch(store, resumed.config(), resumed.id, start=start)


def _check(run: Run) -> None:
    """Raise InputError if a run cannot be resumed."""
    check_ended(run)
    if run.status().state == "done":
        raise InputError(f"run {run.id} is done; there is nothing to resume")
    if never_started(run):
        return
    if not _checkpoint_names(run):
        raise InputError(f"run {run.id} has no checkpoint to resume from; launch a new run")
    _checkpoint_position(run)


@contextmanager
def _resume_lock(run: Run) -> Iterator[None]:
    """Hold the lock for creating a run that resumes this one. Raises JobError if another process holds it for long."""
    lock = file_lock(run.folder / ".resume.lock", _BUSY_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise JobError(
            f"run {run.id}: another process is copying it in order to resume it; check the runs again in a minute"
        ) from None
    except OSError as error:
        raise JobError(
            f"run {run.id}: its folder cannot be written to ({error}); make it writable or free disk space"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _active_continuation(store: RunStore, run: Run) -> Run | None:
    """Return the run that resumes this one and has not ended, if any; not one that was copied from elsewhere."""
    resumed = (other for other in store.list() if other.read_signed(RESUMED) == {"from": run.id})
    return next((other for other in resumed if not other.status().is_finished or has_live_process(other)), None)


def _create(store: RunStore, run: Run, *, is_queued: bool = False) -> Run:
    """Create the run and copy what it needs; with `is_queued`, it belongs in the queue once it is visible."""
    _remove_unfinished(store, run)
    config, status, is_new = run.config(), run.status(), never_started(run)
    parts = _OF_WAITING_RUN if is_new else COPIED
    names = [*parts, *(f"checkpoints/{name}" for name in _checkpoint_names(run))]

    def fill(draft: Run) -> None:
        draft.update_status(resumed_from=run.id)  # identifies the draft if this process is killed
        draft.write_signed(RESUMED, {"from": run.id})
        _check_disk_size(run, names)
        for name in names:
            _copy(run, draft, name)
        for name in _OF_OLD_MODEL:  # the results of the new run are written when it ends
            (draft.folder / f"{name}.json").unlink(missing_ok=True)
        if is_queued:
            _copy_launch_environment(run, draft)
        if is_new:
            draft.update_status(group=status.group)
            return
        position = _checkpoint_position(run)
        draft.rewind_metrics(**position)
        message = f"Resumes after step {position['step']:,}"
        best = {"metric_name": status.metric_name, "metric_best": status.metric_best}
        draft.update_status(group=status.group, message=message, step=position["step"], steps=status.steps, **best)

    try:
        return store.create(config, new_run_id(config, words=_words(run, status)), fill)
    except OSError as error:
        raise JobError(f"run {run.id}: it could not be copied ({error}); free disk space, then retry") from error


def _words(run: Run, status: RunStatus) -> str:
    """Return the words of the id of a run that resumes one of a group: its id, of which a long name is cut."""
    if status.group is None:
        return ""
    words = without_time(run.id)
    words = words if status.resumed_from is None else re.sub(r"-[0-9a-f]{4}$", "", words)
    return words[-79:].lstrip("-.")


def _copy_launch_environment(run: Run, draft: Run) -> None:
    """Give the new run the launch environment and backend of the old one."""
    launched = run.read_signed(LAUNCHED)
    backend = default_backend() if launched is None else run.status().backend
    get_backend(backend)
    draft.update_status(backend=backend)
    if launched is None:
        write_launch_environment(draft, backend)
    else:
        draft.write_signed(LAUNCHED, launched)


def _remove_unfinished(store: RunStore, run: Run) -> None:
    """Remove the unfinished files of a killed process: a checkpoint, the best model, or a copy of the run."""
    for scratch in (*run.checkpoints_folder.glob(".step-*"), *run.folder.glob(".model-*")):
        shutil.rmtree(scratch, ignore_errors=True)
    for draft in store.root.glob(f"{DRAFT}*"):
        if Run(draft).status().resumed_from == run.id:  # the lock excludes others
            shutil.rmtree(draft, ignore_errors=True)


def _checkpoint_names(run: Run) -> list[str]:
    folders = run.checkpoints_folder.glob("step-*")
    complete = (path.name for path in folders if (path / "progress.json").is_file())
    return sorted(complete, key=lambda name: (len(name), name))  # names are longer from 1,000,000 steps


def _copy(run: Run, draft: Run, name: str) -> None:
    """Copy a file or folder of the run; links are left out, and whatever is neither a file nor a folder."""
    source, target = run.folder / name, draft.folder / name
    if source.is_symlink():
        return
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=_not_copied)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _check_disk_size(run: Run, names: Sequence[str]) -> None:
    """Raise JobError if large files need less than a tenth of their sizes on the disk, which a copy would fill.

    Such files are sparse, or hard links to each other, and no run writes them.
    """
    size, on_disk = 0, {}
    sources = [run.folder / name for name in names if not (run.folder / name).is_symlink()]
    for path in chain.from_iterable((source, *source.rglob("*")) for source in sources):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            size += status.st_size
            on_disk[status.st_dev, status.st_ino] = 512 * getattr(status, "st_blocks", status.st_size)
    if size > SPARSE_ABOVE and sum(on_disk.values()) < size // 10:
        raise JobError(f"run {run.id} has sparse files or hard links; restore its folder, or launch the run again")


def _not_copied(folder: str, names: list[str]) -> set[str]:
    paths = [Path(folder, name) for name in names]
    return {path.name for path in paths if path.is_symlink() or not (path.is_file() or path.is_dir())}


def _checkpoint_position(run: Run) -> dict[str, Any]:
    """Return the position of the newest readable checkpoint: step, epoch, and whether it ends the epoch."""
    for name in reversed(_checkpoint_names(run)):
        try:
            values = json.loads(read_regular(run.checkpoints_folder / name / "progress.json"))
            position = {key: values[key] for key in ("step", "epoch", "ends_epoch")}
            if list(map(type, position.values())) == [int, int, bool]:
                return position
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # damaged: the run's process will report and skip it
    raise InputError(f"run {run.id}: none of its checkpoints can be read, so it cannot be resumed; launch a new run")

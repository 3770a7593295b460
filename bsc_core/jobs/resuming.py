"""Going on with a run that was stopped, lost or failed: a new run that starts from its last good checkpoint.

The old run stays as it ended. What the new one needs of it is copied, so either may be deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from bsc_core.errors import InputError, JobError
from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.launching import launch
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import LAUNCHED
from bsc_core.runs import Run, RunStore, new_run_id

COPIED = (
    "model",
    "loss",
    "evaluation",
    "plans",
    "embeddings_before.npy",
    "embeddings_after.npy",
    "texts.json",
    "group.json",
    "first_batch.json",
    "metrics.jsonl",
)


def can_resume(run: Run) -> bool:
    """Whether a run ended early and left a checkpoint to go on from."""
    return run.status().state in ("stopped", "lost", "failed") and _checkpoint_names(run) != []


def continue_run(store: RunStore, run: Run) -> Run:
    """Make the run that goes on where `run` ended; it is queued, and nothing is started. Its config is the same.

    Curves up to the checkpoint are copied too. Raises InputError where the run did not end early or has no checkpoint.
    """
    status = run.status()
    if not status.is_finished:
        raise InputError(f"run {run.id} is {status.state}; stop it first")
    if status.state == "lost" and backend_of(run).look(run).state == "alive":
        raise InputError(f"run {run.id} was given up for lost, but its process is still there; stop it first")
    if status.state == "done":
        raise InputError(f"run {run.id} is done; there is nothing to go on with")
    if not _checkpoint_names(run):
        raise InputError(f"run {run.id} left no checkpoint, so there is nothing to go on from; launch it anew")
    _sweep(run)
    reached, config = _reached(run), run.config()
    try:
        draft = store.create(config, new_run_id(config))
    except OSError as error:
        raise JobError(f"{store.root}: the run could not be written ({error}); free disk space, then retry") from error
    try:
        for name in (*COPIED, *(f"checkpoints/{name}" for name in _checkpoint_names(run))):
            _copy(run, draft, name)
        draft.rewind_metrics(**reached)
        draft.update_status(resumed_from=run.id, group=status.group, message=f"goes on from run {run.id}")
    except OSError as error:
        shutil.rmtree(draft.folder, ignore_errors=True)
        raise JobError(f"run {run.id}: it could not be copied ({error}); free disk space, then retry") from error
    return draft


def resume(store: RunStore, run: Run, *, start: Callable[[RunStore], None] = start_supervisor) -> Run:
    """Queue the run that goes on where `run` ended, and return it at once. Raises InputError as `continue_run` does."""
    following = continue_run(store, run)
    launched = run.read_json(LAUNCHED)
    if launched is not None:  # it may read what the old one might
        following.update_status(backend=run.status().backend)
        following.write_json(LAUNCHED, launched)
    return launch(store, following.config(), following.id, start=start)


def _sweep(run: Run) -> None:
    """Remove what a process that was killed had half written: a checkpoint, or the best model."""
    for scratch in (*run.checkpoints_folder.glob(".step-*"), *run.folder.glob(".model-*")):
        shutil.rmtree(scratch, ignore_errors=True)


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

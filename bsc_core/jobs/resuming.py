"""Going on with a run that was stopped, lost or failed: a new run that starts from its last good checkpoint.

The old run stays as it ended. What the new one needs of it is copied, so either may be deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

from bsc_core.errors import InputError
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
    config = run.config()
    draft = store.create(config, new_run_id(config))
    for name in COPIED:
        _copy(run, draft, name)
    for name in _checkpoint_names(run):
        _copy(run, draft, f"checkpoints/{name}")
    _copy_metrics(run, draft)
    draft.update_status(resumed_from=run.id, group=status.group, message=f"goes on from run {run.id}")
    return draft


def resume(store: RunStore, run: Run, *, start: Callable[[RunStore], None] = start_supervisor) -> Run:
    """Queue the run that goes on where `run` ended, and return it at once. Raises InputError as `continue_run` does."""
    following = continue_run(store, run)
    launched = run.read_json(LAUNCHED)
    if launched is not None:  # it may read what the old one might
        following.update_status(backend=run.status().backend)
        following.write_json(LAUNCHED, launched)
    return launch(store, following.config(), following.id, start=start)


def _checkpoint_names(run: Run) -> list[str]:
    found = run.checkpoints_folder.glob("step-*")
    return sorted(path.name for path in found if (path / "progress.json").is_file())


def _copy(run: Run, following: Run, name: str) -> None:
    source, target = run.folder / name, following.folder / name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _copy_metrics(run: Run, following: Run) -> None:
    """The lines up to the newest checkpoint's step; what came after it will come again."""
    newest = run.checkpoints_folder / _checkpoint_names(run)[-1] / "progress.json"
    reached = json.loads(newest.read_text(encoding="utf-8"))
    epochs = reached["epoch"] - (not reached["ends_epoch"])  # those that were measured
    lines, _ = run.metrics()
    for line in lines:
        done = {"step": reached["step"], "evaluation": epochs, "plan": reached["epoch"]}[line["kind"]]
        if line["step" if line["kind"] == "step" else "epoch"] <= done:
            following.append_metrics(line)

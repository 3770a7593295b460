"""Launching: a run folder, a row in the queue, and a supervisor if none is at work."""

from __future__ import annotations

import os
from collections.abc import Callable

from filelock import Timeout

from bsc_core.config import RunConfig
from bsc_core.jobs.local import ROOTS, start_supervisor
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.runs import Run, RunStore


def launch(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    start: Callable[[RunStore], None] = start_supervisor,
) -> Run:
    """Queue a run and return at once; a detached process will perform it, and may read what this process may read.

    Launching an id again launches nothing and returns the run there is. start: starts a supervisor for the store.
    Raises JobError when the queue or the supervisor cannot be reached.
    """
    run = store.create(config, run_id)
    if run.read_json("launch") is None:
        run.write_json("launch", {ROOTS: os.environ.get(ROOTS, "")})
    Queue(store.root).add(run.id)
    ensure_supervisor(store, start=start)
    return run


def ensure_supervisor(store: RunStore, *, start: Callable[[RunStore], None] = start_supervisor) -> None:
    """Start a supervisor when runs wait and none is at work.

    One that is at work and about to end looks at the queue once more after it has let go of its lock, so no run that
    was queued before this look is forgotten.
    """
    if not store.root.is_dir() or not Queue(store.root).waiting():
        return
    try:
        with supervisor_lock(store.root):
            pass
    except Timeout:
        return
    start(store)

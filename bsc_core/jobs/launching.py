"""Launching: a run folder, a row in the queue, and a supervisor if none is at work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from filelock import Timeout

from bsc_core.config import RunConfig
from bsc_core.errors import ConfigError, JobError
from bsc_core.jobs.backends import backend_named
from bsc_core.jobs.local import ROOTS, start_supervisor
from bsc_core.jobs.queue import LAUNCHED, Queue, supervisor_lock
from bsc_core.runs import Run, RunStore

BACKEND = "BSC_BACKEND"
KEPT = "BSC_RAY_"  # the launcher's to say, as its roots are: the supervisor may have been started by another
Start = Callable[[RunStore], None]


def launch(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    backend: str | None = None,
    start: Start = start_supervisor,
) -> Run:
    """Queue a run and return at once; a detached process will perform it, and may read what this process may read.

    Launching an id again launches nothing and returns the run there is. backend: where it is performed; None: what the
    environment's BSC_BACKEND says, else on this machine. start: starts a supervisor for the store.
    Raises ConfigError for a config with several seeds or an unknown backend, JobError when the disk, the queue or the
    supervisor refuses: a run that was made by then is kept, and the sentence names it.
    """
    run = enqueue(store, config, run_id, backend=backend)
    serve(store, f"run {run.id}", start=start)
    return run


def enqueue(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    backend: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Make a run and queue it, without a look for who serves the queue. about: of a group's member, as `join_group`."""
    run = make(store, config, run_id, backend=backend, about=about)
    try:
        Queue(store.root).add(run.id)
    except JobError as error:
        raise not_queued(f"run {run.id}", error) from error
    return run


def make(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    backend: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Make the folder of a run that belongs in the queue; who looks at the runs queues it where nobody else does."""
    if config.training.seeds:
        raise ConfigError(
            f"training.seeds is {list(config.training.seeds)}; launch a group, with one run for each seed"
        )
    where = backend or backend_here()
    backend_named(where)
    try:
        run = store.create(config, run_id)
        if run.read_json(LAUNCHED) is None:
            run.update_status(backend=where)
            if about is not None:
                join_group(run, about)
            write_launched(run, where)
    except OSError as error:
        raise JobError(f"{store.root}: the run could not be written ({error}); free disk space, then retry") from error
    return run


def backend_here() -> str:
    """Where this process's environment has runs performed."""
    return os.environ.get(BACKEND) or "local"


def not_queued(what: str, error: JobError) -> JobError:
    """The sentence for a run, or the runs of a group, that are made and that the queue did not take."""
    return JobError(
        f"{what} is kept but not queued yet ({_cause(error)}); the Runs page or `bsc runs` queues it a minute from "
        "now, so do not launch it anew"
    )


def serve(store: RunStore, what: str, *, start: Start = start_supervisor) -> None:
    """See to it that what was just queued is served. Raises JobError that says that it is queued all the same."""
    try:
        ensure_supervisor(store, start=start)
    except JobError as error:
        raise JobError(
            f"{what} is queued, but is not served yet ({_cause(error)}); the Runs page or `bsc runs` sees to it, so do "
            "not launch it anew"
        ) from error


def _cause(error: JobError) -> str:
    """An error without its way out, which is another one here."""
    return str(error).partition(";")[0]


def join_group(run: Run, about: Mapping[str, Any]) -> None:
    """Make a run a member of a group. about: `group`, its `setting` by key and its `seed`."""
    run.write_json("group", dict(about))
    run.update_status(group=about["group"])


def write_launched(run: Run, backend: str) -> None:
    """Write what of this process's environment the run's worker is to have; from now on it belongs in the queue."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    run.write_json(LAUNCHED, {ROOTS: os.environ.get(ROOTS, ""), BACKEND: backend, **kept})


def ensure_supervisor(store: RunStore, *, start: Start = start_supervisor) -> None:
    """Start a supervisor when runs wait or have to be followed, and none is at work.

    One that is at work and about to end looks at the queue once more after it has let go of its lock, so no run that
    was queued before this look is forgotten.
    """
    if not store.root.is_dir():
        return
    standing = Queue(store.root).look()
    if not standing.claimed and (standing.paused or not standing.waiting):
        return
    try:
        with supervisor_lock(store.root):
            pass
    except Timeout:
        return
    start(store)

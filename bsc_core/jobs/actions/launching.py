"""Launching: create a run folder, queue it, and start a supervisor if none is running."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from filelock import Timeout

from bsc_core.config import RunConfig
from bsc_core.errors import ConfigError, JobError
from bsc_core.jobs.backends import get_backend
from bsc_core.jobs.local.processes import ROOTS, start_supervisor
from bsc_core.jobs.queue import Queue, check_locks, supervisor_lock
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GROUP, LAUNCHED
from bsc_core.runs.signatures import trust

BACKEND = "BSC_BACKEND"
RAY_PREFIX = "BSC_RAY_"  # variables of the launcher that the worker gets; the supervisor may have others
Start = Callable[[RunStore], None]


def launch(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    backend: str | None = None,
    start: Start = start_supervisor,
) -> Run:
    """Queue a run and return at once; a detached process executes it, with the same allowed paths as this process.

    Launching an existing id returns the existing run.

    Args:
        store: The runs.
        config: Config of the run.
        run_id: Id of the run; None: a new one.
        backend: Name of the backend; None: the environment's BSC_BACKEND, else local.
        start: Starts a supervisor for the store.

    Raises:
        ConfigError: The config has several seeds, or the backend is unknown.
        JobError: The disk, the queue or the supervisor failed; the message names the run if it was created.
    """
    run = create_run(store, config, run_id, backend=backend)
    enqueue(store, [run], f"run {run.id}", start=start)
    return run


def create_run(
    store: RunStore,
    config: RunConfig,
    run_id: str | None = None,
    *,
    backend: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Create the folder of a run to be queued; `reconcile` queues it if the caller does not.

    See `launch` for the arguments and errors, and `join_group` for `about`.
    """
    if config.training.seeds:
        raise ConfigError(f"training.seeds is {list(config.training.seeds)}; launch a group, with one run per seed")
    backend = backend or default_backend()
    get_backend(backend)

    def fill(run: Run) -> None:  # a run is visible only once it can be queued by `reconcile`
        run.update_status(backend=backend)
        if about is not None:
            join_group(run, about)
        write_launch_environment(run, backend)

    try:
        check_locks(store.root)
        run = store.create(config, run_id, fill)
        if run.read_signed(LAUNCHED) is None:  # of an earlier version, whose launch was interrupted
            fill(run)
    except OSError as error:
        raise JobError(f"{store.root}: the run could not be written ({error}); free disk space, then retry") from error
    return run


def default_backend() -> str:
    """Return the name of the backend that the environment selects."""
    return os.environ.get(BACKEND) or "local"


def enqueue(store: RunStore, runs: Iterable[Run], description: str, *, start: Start) -> None:
    """Queue created runs and start a supervisor.

    Raises:
        JobError: The queue or the supervisor failed; the message has the description of the runs and advises not to
            launch them again.
    """
    state, suggestion = "created but not queued yet", "queues it automatically after a minute"
    try:
        for run in runs:
            Queue(store.root).add(run.id)
        state, suggestion = "queued but no supervisor was started", "starts one automatically"
        ensure_supervisor(store, start=start)
    except JobError as error:
        raise JobError(
            f"{description} was {state} ({str(error).partition(';')[0]}); "
            f"the Runs page or `bsc runs` {suggestion}, so do not launch it again"
        ) from error


def join_group(run: Run, about: Mapping[str, Any]) -> None:
    """Add a run to a group; `about` has the keys `group`, `setting` (by config key) and `seed`."""
    run.write_json(GROUP, dict(about))
    run.update_status(group=about["group"])


def write_launch_environment(run: Run, backend: str) -> None:
    """Write the variables that the worker gets from this process; a run with this file is restored to the queue."""
    ray = {name: value for name, value in os.environ.items() if name.startswith(RAY_PREFIX)}
    run.write_signed(LAUNCHED, {ROOTS: os.environ.get(ROOTS, ""), BACKEND: backend, **ray})


def ensure_supervisor(store: RunStore, *, start: Start = start_supervisor) -> None:
    """Start a supervisor if runs wait or are active and none is running.

    A supervisor that is about to end reads the queue once more after it has released its lock, so no run queued before
    this check is forgotten.
    """
    if not store.root.is_dir():
        return
    queued = Queue(store.root).snapshot()
    if not queued.claimed and (queued.paused or not queued.waiting):
        return
    try:
        with supervisor_lock(store.root):
            pass
    except Timeout:
        return
    trust(store.root)
    start(store)


def unpause(store: RunStore, *, start: Start = start_supervisor) -> None:
    """Start the waiting runs of a paused queue again.

    Raises:
        JobError: The queue fails.
    """
    Queue(store.root).unpause()
    ensure_supervisor(store, start=start)

"""Stopping: a flag that the run sees between two steps, and a ladder of signals for a run that does not look."""

from __future__ import annotations

from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.local import start_ladder
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStatus

GRACE_SECONDS = 30.0
TERMINATE_SECONDS = 10.0


def stop(run: Run, *, grace_seconds: float = GRACE_SECONDS, terminate_seconds: float = TERMINATE_SECONDS) -> RunStatus:
    """Stop a run without waiting for it: a detached process climbs the ladder of `bsc_core.jobs.ladder`.

    grace_seconds: for the run to see the flag, end its step and save. terminate_seconds: for what SIGTERM asks.
    Stopping again starts another ladder; a finished run stays as it is. Returns the status after the request.
    """
    if ask_to_stop(run):
        start_ladder(run, grace_seconds=grace_seconds, terminate_seconds=terminate_seconds)
    return run.status()


def hangs_on(run: Run) -> bool:
    """Whether a run was given up for lost though its process is there, perhaps only asleep: it can be stopped."""
    return run.status().state == "lost" and backend_of(run).look(run).state == "alive"


def ask_to_stop(run: Run) -> bool:
    """Raise the flag; a run that still waits in the queue is stopped at once. True when a process has yet to end."""
    if run.status().is_finished:
        left = hangs_on(run)
        if left:
            backend_of(run).ask(run)
        return left
    backend_of(run).ask(run)
    status = advance(run, "stopping", message="stopping after this step")
    if status.state == "queued":
        status = advance(run, "stopped", message="stopped before it began")
    return not status.is_finished

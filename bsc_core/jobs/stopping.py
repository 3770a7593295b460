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


def ask_to_stop(run: Run) -> bool:
    """Raise the flag; a run that still waits in the queue is stopped at once. True when a process has yet to end."""
    status, backend = run.status(), backend_of(run)
    if status.is_finished:
        hangs_on = status.state == "lost" and backend.look(run).state == "alive"  # given up, but perhaps only asleep
        if hangs_on:
            backend.ask(run)
        return hangs_on
    backend.ask(run)
    status = advance(run, "stopping", message="stopping after this step")
    if status.state == "queued":
        status = advance(run, "stopped", message="stopped before it began")
    return not status.is_finished

"""Stopping a run: a flag that it checks after each step, and a process that escalates to signals."""

from bsc_core.errors import InputError
from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.local.processes import start_escalation
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStatus

GRACE_SECONDS = 30.0
TERMINATE_SECONDS = 10.0


def stop(run: Run, *, grace_seconds: float = GRACE_SECONDS, terminate_seconds: float = TERMINATE_SECONDS) -> RunStatus:
    """Stop a run without waiting; a detached process escalates, see `bsc_core.jobs.actions.escalation.stop_and_wait`.

    Stopping again starts another escalation; a finished run is not changed. Returns the status after the request.
    """
    if request_stop(run):
        start_escalation(run, grace_seconds=grace_seconds, terminate_seconds=terminate_seconds)
    return run.status()


def has_live_process(run: Run) -> bool:
    """Return whether a run was marked lost although its process exists, perhaps suspended; it can be stopped."""
    return run.status().state == "lost" and backend_of(run).inspect(run).state == "alive"


def check_ended(run: Run) -> None:
    """Raise InputError if a run has not ended or its process is still alive."""
    status = run.status()
    if not status.is_finished:
        raise InputError(f"run {run.id} is {status.state}; stop it first")
    if has_live_process(run):
        raise InputError(f"run {run.id} is marked lost, but its process is still alive; stop it first")


def request_stop(run: Run) -> bool:
    """Write the stop flag; a queued run is stopped at once. Returns whether a process has yet to end."""
    if run.status().is_finished:
        is_alive = has_live_process(run)
        if is_alive:
            backend_of(run).request_stop(run)
        return is_alive
    backend_of(run).request_stop(run)
    status = advance(run, "stopping", message="Stopping after this step")
    if status.state == "queued":
        status = advance(run, "stopped", message="stopped before it started")
    return not status.is_finished

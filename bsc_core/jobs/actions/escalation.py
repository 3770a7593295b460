"""Escalation: make a run stop with the stop flag, then SIGTERM, then SIGKILL.

Runs as a process, since a page can neither wait nor be relied on to finish:
`python -m bsc_core.jobs.actions.escalation RUN_FOLDER GRACE_SECONDS TERMINATE_SECONDS`.
"""

import signal
import sys
from pathlib import Path

from bsc_core.jobs.actions.stopping import GRACE_SECONDS, TERMINATE_SECONDS, request_stop
from bsc_core.jobs.backends import BackendUnavailableError, backend_of
from bsc_core.jobs.local.processes import wait_until
from bsc_core.jobs.states import advance, stopped_message
from bsc_core.runs import Run, RunStatus

_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows SIGTERM ends a process at once
_KILL_SECONDS = 5.0
MAX_WAITS = 20
ENDED_MESSAGE = "stopped; it was ended before it had saved everything"


def stop_and_wait(
    run: Run, *, grace_seconds: float = GRACE_SECONDS, terminate_seconds: float = TERMINATE_SECONDS
) -> RunStatus:
    """Stop a run, wait for it, and return its final status.

    If it makes no progress for `grace_seconds`, or does not end in MAX_WAITS times as long, its process group gets
    SIGTERM and, `terminate_seconds` later, SIGKILL. The evaluation of a large corpus takes longer than a step.
    """
    try:
        return _escalate(run, grace_seconds, terminate_seconds)
    except BackendUnavailableError as error:
        return advance(run, "lost", error=f"{error}; whether the run is still active there is unknown")


def _escalate(run: Run, grace_seconds: float, terminate_seconds: float) -> RunStatus:
    if not request_stop(run):
        return run.status()
    if not _ends_while_progressing(run, grace_seconds):
        backend_of(run).send_signal(run, signal.SIGTERM)
        if not _ends_within(run, terminate_seconds):
            backend_of(run).send_signal(run, _KILL)
            _ends_within(run, _KILL_SECONDS)
        return advance(run, "stopped", message=ENDED_MESSAGE)
    return advance(run, "stopped", message=stopped_message(run))


def _ends_while_progressing(run: Run, seconds: float) -> bool:
    """Return whether a run ends, while its step or its message changes at least every so many seconds."""
    known = None
    for _ in range(MAX_WAITS if seconds else 1):
        status = run.status()
        if (progress := (status.step, status.message)) == known:
            return False
        known = progress
        if _ends_within(run, seconds):
            return True
    return False


def _ends_within(run: Run, seconds: float) -> bool:
    backend = backend_of(run)

    def has_ended() -> bool:
        process_ended = backend.inspect(run).state == "ended"
        status = run.status()
        return process_ended and (status.is_finished or status.pid is not None)

    return wait_until(has_ended, seconds)


if __name__ == "__main__":
    stop_and_wait(Run(Path(sys.argv[1])), grace_seconds=float(sys.argv[2]), terminate_seconds=float(sys.argv[3]))

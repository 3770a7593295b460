"""The ladder that stops a run: the flag, then SIGTERM to its process group, then SIGKILL; a final state in any case.

Run as a process of its own, since the one that asks (a page) must neither wait nor forget:
`python -m bsc_core.jobs.ladder RUN_FOLDER GRACE_SECONDS TERMINATE_SECONDS`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from bsc_core.jobs.backend import AwayError
from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.identity import wait_until
from bsc_core.jobs.states import advance
from bsc_core.jobs.stopping import GRACE_SECONDS, TERMINATE_SECONDS, ask_to_stop
from bsc_core.runs import Run, RunStatus

_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows ends a process at once on SIGTERM
_KILL_SECONDS = 5.0


def climb(run: Run, *, grace_seconds: float = GRACE_SECONDS, terminate_seconds: float = TERMINATE_SECONDS) -> RunStatus:
    """Ask a run to stop and wait for it, signalling its process group where it does not. Returns its final status."""
    try:
        return _climb(run, grace_seconds, terminate_seconds)
    except AwayError as error:
        return advance(run, "lost", error=f"{error}; whether the run goes on there is not known")


def _climb(run: Run, grace_seconds: float, terminate_seconds: float) -> RunStatus:
    if not ask_to_stop(run):
        return run.status()
    if _ends_within(run, grace_seconds):
        return _stopped(run)
    backend_of(run).end(run, signal.SIGTERM)
    if _ends_within(run, terminate_seconds):
        return _stopped(run)
    backend_of(run).end(run, _KILL)
    _ends_within(run, _KILL_SECONDS)
    return _stopped(run)


def _ends_within(run: Run, seconds: float) -> bool:
    backend = backend_of(run)

    def ended() -> bool:
        gone = backend.look(run).state == "ended"
        status = run.status()
        return gone and (status.is_finished or status.pid is not None)

    return wait_until(ended, seconds)


def _stopped(run: Run) -> RunStatus:
    return advance(run, "stopped", message="stopped; what was saved by then is kept")


if __name__ == "__main__":
    climb(Run(Path(sys.argv[1])), grace_seconds=float(sys.argv[2]), terminate_seconds=float(sys.argv[3]))

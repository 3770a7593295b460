"""Runs as detached processes of this machine: the backend that needs nothing else."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bsc_core.jobs.backend import Look
from bsc_core.jobs.identity import find_process, identity_of, is_of_this_boot, signal_group
from bsc_core.jobs.local import module_command, start_detached
from bsc_core.runs import Run, RunStatus

_FOREIGN_SECONDS = 60.0


class LocalBackend:
    """Starts workers on this machine. Exit codes are known for those that this object started."""

    takes_slot = True

    def __init__(self, command: Sequence[str] = ()) -> None:
        """command: what is run with the run's folder as last argument; empty for this package's own worker."""
        self._command = list(command) or module_command("worker")
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Start a worker; its output goes to the run's log file. Raises JobError when the system starts no process."""
        child = start_detached([*self._command, str(run.folder)], run.log_file, environment)
        self._children[run.id] = child
        identity = identity_of(child.pid) | {"pulse": time.monotonic()}

        def name(status: RunStatus) -> RunStatus:  # the worker itself may have been quicker, or is another one
            return replace(status, **identity) if status.state == "starting" and status.pid is None else status

        run.change_status(name)

    def look(self, run: Run) -> Look:
        """Look for the worker: the child of this object, or the process that the run's status names."""
        status = run.status()
        child = self._children.get(run.id)
        if child is not None and status.pid in (None, child.pid):
            exit_code = child.poll()
            return _alive(run, status) if exit_code is None else Look("ended", exit_code)
        if find_process(status) is not None:
            return _alive(run, status)
        fresh = abs(run.clock() - status.updated) < _FOREIGN_SECONDS
        if status.pid is not None and not is_of_this_boot(status) and fresh:
            return Look("unknown")  # another machine's, which shares the runs folder; told by its heartbeat
        return Look("ended")

    def ask(self, run: Run) -> None:
        """Raise the flag that the worker looks at after each step."""
        run.request_stop()

    def end(self, run: Run, number: signal.Signals) -> None:
        """Send a signal to the worker's process group."""
        signal_group(run.status(), number)


def _alive(run: Run, status: RunStatus) -> Look:
    if status.pulse is not None:
        return Look("alive", silent_seconds=time.monotonic() - status.pulse)
    return Look("alive", silent_seconds=run.clock() - status.updated)

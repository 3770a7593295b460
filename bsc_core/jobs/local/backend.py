"""Local backend: runs as detached processes of this machine."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bsc_core.jobs.backends import ProcessInfo
from bsc_core.jobs.local.processes import (
    find_process,
    is_local_process,
    module_command,
    process_fields,
    signal_group,
    start_detached,
)
from bsc_core.runs import Run, RunStatus
from bsc_core.runs.documents import WORKER

_REMOTE_HEARTBEAT_SECONDS = 60.0


class LocalBackend:
    """Starts workers on this machine. Exit statuses are known for those that this object started."""

    takes_slot = True

    def __init__(self, command: Sequence[str] = ()) -> None:
        """Create the backend; `command` replaces the worker's command, to which the run's folder is appended."""
        self._command = list(command) or module_command("worker")
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Start a worker; its output goes to the run's log file.

        Raises:
            JobError: The system starts no process.
        """
        child = start_detached([*self._command, str(run.folder)], run.log_file, environment)
        self._children[run.id] = child
        identity = process_fields(child.pid)
        run.write_signed(WORKER, identity)

        def identify(status: RunStatus) -> RunStatus:  # unless the worker has done so already
            is_unknown = status.state == "starting" and status.pid is None
            return replace(status, **identity, pulse=time.monotonic()) if is_unknown else status

        run.change_status(identify)

    def inspect(self, run: Run) -> ProcessInfo:
        """Return the state of the worker: this object's child, or the process in the run's status."""
        status = run.status()
        child = self._children.get(run.id)
        if child is not None and status.pid in (None, child.pid):
            exit_code = child.poll()
            return _alive(run, status) if exit_code is None else ProcessInfo("ended", exit_code)
        if find_process(status) is not None:
            return _alive(run, status)
        is_recent = abs(run.clock() - status.updated) < _REMOTE_HEARTBEAT_SECONDS
        if status.pid is not None and not is_local_process(status) and is_recent:
            return ProcessInfo("unknown")  # of another machine that shares the runs folder
        return ProcessInfo("ended")

    def request_stop(self, run: Run) -> None:
        """Write the stop flag, which the worker checks after each step."""
        run.request_stop()

    def send_signal(self, run: Run, number: signal.Signals) -> None:
        """Send a signal to the worker's process group; a run folder from elsewhere may name any process."""
        worker = run.read_signed(WORKER)
        if worker is not None:
            signal_group(RunStatus(**worker), number)


def _alive(run: Run, status: RunStatus) -> ProcessInfo:
    if status.pulse is not None:
        return ProcessInfo("alive", heartbeat_age=time.monotonic() - status.pulse)
    return ProcessInfo("alive", heartbeat_age=run.clock() - status.updated)

"""The app as a user starts it: `bsc app` in a separate process group with a separate runs folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from bsc_core.jobs.actions.stopping import request_stop
from bsc_core.jobs.local.processes import find_process, signal_group
from bsc_core.runs import RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

STOP_SECONDS = PATIENCE_SECONDS / 10
FAULTS = ("Traceback (most recent call last)", "Uncaught app", "Warning:")
LINES_OF_FAULT = 60


class AppServer:
    """One server and the runs launched through it. It can be stopped and restarted on the same runs."""

    def __init__(self, folder: Path, python: Path | str = sys.executable) -> None:
        self.folder = folder
        self.python = str(python)
        self.store = RunStore(folder / "runs")
        self.log_file = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @contextmanager
    def running(self, *options: str, **variables: str) -> Iterator[AppServer]:
        """Start the app with these options and environment variables, and stop it at the end of the block."""
        try:
            self.start(*options, **variables)
            yield self
        finally:
            self.stop()

    def start(self, *options: str, **variables: str) -> None:
        """Start `bsc app` in its folder, outside the checkout, and wait until it responds."""
        self.port = _free_port()
        command = [self.python, "-m", "bsc_core.cli", "app", "--port", str(self.port), "--no-browser"]
        command += ["--runs", str(self.store.root), *options]
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1", **variables}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._responds, self.log)

    def _responds(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal to its process group, by default that of Ctrl-C; do nothing if it is not running."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_SECONDS)
        except ProcessLookupError:
            self._process.wait(STOP_SECONDS)
        self._process = None

    def stop_jobs(self) -> None:
        """Stop every active run and wait until the scheduler has released the queue."""
        for run in self.store.list():
            status = run.status()
            if not status.is_finished:
                request_stop(run)  # so that a queued run does not start
                signal_group(status, signal.SIGKILL)
            wait_until(lambda status=status: find_process(status) is None, f"{run.id} does not end")
        with FileLock(self.store.root / ".supervisor.lock", timeout=PATIENCE_SECONDS):
            pass

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def faults(self) -> list[str]:
        """Return the lines of the log with an exception or a warning, each with the lines that explain it."""
        lines = self.log().splitlines()
        return [
            "\n".join(lines[max(i - 1, 0) : i + LINES_OF_FAULT])
            for i, line in enumerate(lines)
            if any(word in line for word in FAULTS)
        ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])

"""The app as a user starts it: `bsc app` in a process group of its own, on a runs folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from filelock import FileLock

from bsc_core.jobs.identity import find_process, signal_group, wait_until
from bsc_core.jobs.stopping import ask_to_stop
from bsc_core.runs import RunStore

START_SECONDS = 60.0
END_SECONDS = 20.0
FAULTS = ("Traceback (most recent call last)", "Uncaught app", "Warning:")


class AppServer:
    """One server, and the runs that are launched through it. It can be ended and started again on the same runs."""

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

    def start(self) -> None:
        """Start it away from the checkout and wait until it answers."""
        self.port = _free_port()
        command = [self.python, "-m", "bsc_core.cli", "app", "--port", str(self.port), "--no-browser"]
        command += ["--runs", str(self.store.root)]
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert wait_until(self._answers, START_SECONDS), self.log()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it as Ctrl-C in its terminal does, by a signal to its whole process group; nothing when it has ended."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_SECONDS)
        except ProcessLookupError:
            self._process.wait(END_SECONDS)
        self._process = None

    def end_jobs(self) -> None:
        """End every run that still goes on, and wait until the supervisor has let go of the queue."""
        for run in self.store.list():
            status = run.status()
            if not status.is_finished:
                ask_to_stop(run)  # one that waits is not started any more
                signal_group(status, signal.SIGKILL)
            assert wait_until(lambda status=status: find_process(status) is None, END_SECONDS)
        with FileLock(self.store.root / ".supervisor.lock", timeout=END_SECONDS):
            pass

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def faults(self) -> list[str]:
        """Lines of the log that speak of an exception or a warning."""
        return [line for line in self.log().splitlines() if any(word in line for word in FAULTS)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])

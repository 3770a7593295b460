"""The job of a run whose folder goes through storage: `python -m bsc_core.jobs.ray_worker STORAGE JOB`.

It brings the run's folder to this machine, performs the run with the worker that every run has, and stores what changes
while that runs and after it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bsc_core.errors import BscError
from bsc_core.jobs.local import ROOTS, module_command
from bsc_core.jobs.ray_parcel import unpack
from bsc_core.jobs.ray_storage import OWN, STOP, Outgoing, Storage, StorageError
from bsc_core.jobs.states import advance
from bsc_core.runs import Run

PUSH_SECONDS = 2.0
LAST_PUSH_SECONDS = 300.0
_SHARE = 4.0  # storing takes at most a fifth of the time
_CANNOT = 3
Start = Callable[[Run, Path], "subprocess.Popen[bytes]"]


def main(url: str, job: str) -> int:
    """Perform the run that is stored for a job. Returns the worker's exit status; 3 when storage does not serve."""
    signal.signal(signal.SIGTERM, _wait_for_the_worker)
    scratch = Path(tempfile.mkdtemp(prefix="bsc-run-"))
    try:
        exit_code = perform(Storage(url), job, scratch)
    except (BscError, OSError) as error:
        sys.stderr.write(f"{error}\nWhat the run wrote is in {scratch} on this node\n")
        return _CANNOT
    shutil.rmtree(scratch, ignore_errors=True)
    return exit_code


def perform(shared: Storage, job: str, scratch: Path, *, start: Start | None = None) -> int:
    """Unpack a job's run under `scratch`, start its worker, and store what it writes until it has ended.

    Returns the worker's exit status; a run that was stopped before is not begun. Raises StorageError when the
    last of it cannot be stored.
    """
    storage = shared.at(job)
    unpacked = unpack(storage, shared, scratch)
    run = unpacked.run
    outgoing = Outgoing(run.folder, storage, kept=OWN, sent=unpacked.files)
    _look_for_stop(run, storage)
    if run.stop_requested():
        advance(run, "stopping")  # its worker says the rest
    with (start or _start)(run, scratch) as worker:
        while _still_runs(worker, _push(outgoing)):
            _look_for_stop(run, storage)
    _push_last(outgoing)
    return worker.returncode


def _start(run: Run, scratch: Path) -> subprocess.Popen[bytes]:
    """The worker of the run, in this job's group of processes, so that it ends with the job."""
    with run.log_file.open("ab") as log:
        return subprocess.Popen(
            [*module_command("worker"), str(run.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, ROOTS: str(scratch) if os.environ.get(ROOTS) else ""},
        )


def _push(outgoing: Outgoing) -> float:
    """Store what changed. Returns the seconds to wait before the next time."""
    began = time.monotonic()
    try:
        outgoing.push()
    except StorageError as error:  # training goes on; what changed is stored when the storage answers again
        sys.stderr.write(f"{error}\n")
    return max(PUSH_SECONDS, _SHARE * (time.monotonic() - began))


def _push_last(outgoing: Outgoing) -> None:
    deadline = time.monotonic() + LAST_PUSH_SECONDS
    while True:
        try:
            outgoing.push()
            return
        except StorageError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PUSH_SECONDS)


def _still_runs(worker: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        worker.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _look_for_stop(run: Run, storage: Storage) -> None:
    try:
        if not run.stop_requested() and storage.has(STOP):
            run.request_stop()
    except StorageError as error:
        sys.stderr.write(f"{error}\n")


def _wait_for_the_worker(number: int, frame: FrameType | None) -> None:
    """Ray signals the worker too; this process ends after it, with the last of its files stored."""


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

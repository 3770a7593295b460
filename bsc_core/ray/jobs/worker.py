"""Job of a run that is transferred through storage: `python -m bsc_core.ray.jobs.worker STORAGE JOB`.

Downloads the run's folder, starts the usual worker, and uploads changes while it runs and afterwards.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from bsc_core.errors import BscError
from bsc_core.jobs.local.processes import ROOTS, module_command
from bsc_core.jobs.states import advance
from bsc_core.ray.jobs.storage import STOP, Storage, StorageError, Uploader, unpack
from bsc_core.runs import Run

PUSH_SECONDS = 2.0
LAST_PUSH_SECONDS = 300.0
_PAUSE_FACTOR = 4.0  # uploading takes at most a fifth of the time
_STORAGE_FAILED = 3
Start = Callable[[Run, Path], "subprocess.Popen[bytes]"]


def main(url: str, job: str) -> int:
    """Perform the run that is stored for a job. Returns the worker's exit status; 3 if the storage fails."""
    signal.signal(signal.SIGTERM, _wait_for_worker)
    scratch = Path(tempfile.mkdtemp(prefix="bsc-run-"))
    try:
        exit_code = perform(Storage(url), job, scratch)
    except (BscError, OSError) as error:
        sys.stderr.write(f"{error}\nThe files of the run are in {scratch} on this node\n")
        return _STORAGE_FAILED
    shutil.rmtree(scratch, ignore_errors=True)
    return exit_code


def perform(shared: Storage, job: str, scratch: Path, *, start: Start | None = None) -> int:
    """Unpack a job's run under `scratch`, start its worker, and upload changes until it has ended.

    A run that was stopped before is not started.

    Returns:
        The worker's exit status.

    Raises:
        StorageError: The last changes cannot be stored.
    """
    storage = shared.at(job)
    run, files = unpack(storage, shared, scratch)
    uploader = Uploader(run.folder, storage, uploaded=files)
    _check_stop(run, storage)
    if run.stop_requested():
        advance(run, "stopping")  # the worker sets the final state
    with (start or _start)(run, scratch) as worker:
        while worker.poll() is None:
            _check_stop(run, storage)
            with suppress(subprocess.TimeoutExpired):
                worker.wait(_push(uploader))
    _push_last(uploader)
    return worker.returncode


def _start(run: Run, scratch: Path) -> subprocess.Popen[bytes]:
    """Start the worker of the run in this job's process group, so that it ends with the job."""
    with run.log_file.open("ab") as log:
        return subprocess.Popen(
            [*module_command("worker"), str(run.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, ROOTS: str(scratch) if os.environ.get(ROOTS) else ""},
        )


def _push(uploader: Uploader) -> float:
    """Upload changes. Returns the seconds to wait before the next upload."""
    started = time.monotonic()
    try:
        uploader.push()
    except StorageError as error:  # training continues; the changes are uploaded when the storage answers again
        sys.stderr.write(f"{error}\n")
    return max(PUSH_SECONDS, _PAUSE_FACTOR * (time.monotonic() - started))


def _push_last(uploader: Uploader) -> None:
    deadline = time.monotonic() + LAST_PUSH_SECONDS
    while True:
        try:
            uploader.push()
            return
        except StorageError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PUSH_SECONDS)


def _check_stop(run: Run, storage: Storage) -> None:
    try:
        if not run.stop_requested() and storage.has(STOP):
            run.request_stop()
    except StorageError as error:
        sys.stderr.write(f"{error}\n")


def _wait_for_worker(number: int, frame: FrameType | None) -> None:
    """Ignore the signal, which Ray also sends to the worker, and end after it with its last files stored."""


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

"""Backend that performs runs as jobs of the Ray cluster at BSC_RAY_ADDRESS.

The state of a job is in the run's folder, so that any process can query it. The folder is on a disk that the cluster
shares, or its changes are transferred through storage (BSC_RAY_STORAGE).
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import Timeout

from bsc_core.errors import JobError, RunError
from bsc_core.files import file_lock
from bsc_core.jobs.backends import BackendUnavailableError, ProcessInfo
from bsc_core.jobs.local.processes import ROOTS, worker_environment
from bsc_core.jobs.states import may_follow
from bsc_core.ray.jobs.client import NEVER_STARTED, JobInfo, RayClient
from bsc_core.ray.jobs.settings import RaySettings
from bsc_core.ray.jobs.storage import STATUS, STOP, Downloader, Storage, StorageError, pack
from bsc_core.runs import Run, RunStatus, State
from bsc_core.runs.documents import LAUNCHED

POLL_SECONDS = 2.0
RETRY_SECONDS = 10.0
_PAUSE_FACTOR = 4.0  # polling takes at most a fifth of the time
_JOB_FILE, _POLL_FILE, _DOWNLOADED_FILE = "ray", ".ray-seen", ".ray-taken"
_START_SECONDS = 10.0
_STOP_SECONDS = 10  # between Ray's SIGTERM and its SIGKILL
_LAUNCHER_FIELDS = ("created", "group", "backend", "resumed_from", "pid", "process_created", "process_mark", "pulse")
_STATE_FIELDS = ("message", "error", "finished", "exit_code")


@dataclass(frozen=True)
class Job:
    """The job of a run, as recorded in the run's folder."""

    name: str
    address: str  # of the cluster's dashboard
    storage: str = ""  # URL through which the folder is transferred; empty for a shared disk
    attempt: int = 1
    packed: bool = False  # whether the run is in the storage
    submitted: bool = False  # whether the cluster accepted the job
    environment: Mapping[str, str] | None = None

    @property
    def submission(self) -> str:
        """Name of the current attempt in the cluster; later attempts have a suffix."""
        return self.name if self.attempt == 1 else f"{self.name}-{self.attempt}"

    @property
    def run_storage(self) -> Storage:
        """Storage of this run."""
        return Storage(self.storage).at(self.name)

    @classmethod
    def read(cls, run: Run) -> Job | None:
        """Read the job of a run; None if it has none yet.

        Raises:
            JobError: The record is damaged, or was not written in this runs folder.
        """
        try:
            values = run.read_signed(_JOB_FILE)
            if values is None and run.read_json(_JOB_FILE) is not None:
                raise RunError("it was not written in this runs folder")
            return None if values is None else cls(**values)
        except (RunError, TypeError) as error:
            raise JobError(
                f"run {run.id}: {_JOB_FILE}.json, the record of its job, is damaged ({error}); end it in the cluster"
            ) from None

    def write(self, run: Run) -> Job:
        """Record the job in the run's folder, and return it."""
        run.write_signed(_JOB_FILE, asdict(self))
        return self


class RayBackend:
    """Performs runs as jobs of the cluster that the run's launcher named."""

    takes_slot = False  # the cluster has its own queue

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Submit a run, once; Ray starts it when and where resources are free.

        Raises:
            BackendUnavailableError: The cluster or storage does not answer.
            JobError: The cluster refuses the run.
        """
        with _job_lock(run, _START_SECONDS):
            settings = RaySettings.for_run(run)
            client = RayClient(settings.address)
            job = Job.read(run)
            if job is None:
                job = Job(f"bsc-{run.id}-{secrets.token_hex(3)}", client.address, settings.storage).write(run)
            if job.storage and not job.packed:
                job = _pack(run, job).write(run)
            job = replace(job, environment=_environment(environment, settings)).write(run)
            _submit(run, job, client, settings)

    def inspect(self, run: Run) -> ProcessInfo:
        """Query the cluster for the run's job and download its files; frequent calls reuse the last result."""
        try:
            job, status = Job.read(run), run.status()
        except JobError as error:
            return ProcessInfo("ended", cause=str(error))
        if job is None or (not job.submitted and status.state in ("queued", "starting") and status.pid is None):
            return ProcessInfo("ended")  # never started
        last = _read_note(run, _POLL_FILE)
        if 0 <= run.clock() - last.get("at", 0.0) < last.get("pause", 0.0):
            return ProcessInfo(last["state"], last["exit_code"], last["cause"])
        try:
            with _job_lock(run):
                started = run.clock()
                info, waiting_for = _poll(run, job)
                _show_waiting(run, last.get("waiting_for", ""), waiting_for)
                interval = RETRY_SECONDS if info.state == "unknown" else POLL_SECONDS
                pause = max(interval, _PAUSE_FACTOR * (run.clock() - started))
                run.write_json(
                    _POLL_FILE, asdict(info) | {"at": run.clock(), "pause": pause, "waiting_for": waiting_for}
                )
                return info
        except BackendUnavailableError:  # another process is polling
            return ProcessInfo("unknown")

    def request_stop(self, run: Run) -> None:
        """Set the stop flag where the run checks it; if storage does not answer, `inspect` sets it later."""
        run.request_stop()
        job = Job.read(run)
        if job is not None and job.storage:
            with suppress(StorageError):
                job.run_storage.put_bytes(b"", STOP)

    def send_signal(self, run: Run, number: signal.Signals) -> None:
        """End the run's job; Ray always sends SIGTERM at once and SIGKILL some seconds later.

        Raises:
            BackendUnavailableError: The cluster does not answer.
        """
        job = Job.read(run)
        if job is not None:
            RayClient(job.address).stop(job.submission)


def _submit(run: Run, job: Job, client: RayClient, settings: RaySettings) -> None:
    client.submit(job.submission, _command(run, job, settings), settings.driver, job.environment or {})
    replace(job, submitted=True).write(run)


def _pack(run: Run, job: Job) -> Job:
    """Store the files that the run needs on another machine."""
    roots = (run.read_signed(LAUNCHED) or {}).get(ROOTS, "").split(os.pathsep)
    allowed = tuple(Path(root).expanduser().resolve() for root in roots if root.strip())
    try:
        run.write_json(_DOWNLOADED_FILE, pack(run, job.run_storage, Storage(job.storage), allowed))
    except StorageError as error:
        raise BackendUnavailableError(str(error)) from error
    return replace(job, packed=True)


def _command(run: Run, job: Job, settings: RaySettings) -> str:
    """Return the shell command that performs the run on a node."""
    module = [settings.python, "-P", "-m"]
    if job.storage:
        return "exec " + shlex.join([*module, "bsc_core.ray.jobs.worker", job.storage, job.name])
    worker = ["bsc_core.ray.jobs.worker_ranks", *settings.ranks] if settings.ranks else ["bsc_core.jobs.worker"]
    return f"exec {shlex.join([*module, *worker, str(run.folder)])} >> {shlex.quote(str(run.log_file))} 2>&1"


def _environment(environment: Mapping[str, str], settings: RaySettings) -> dict[str, str]:
    """Return the variables of the job's processes; the default number of threads is the number of CPUs."""
    threads = max(1, int(settings.per_process.cpus))
    variables = {name: value for name, value in environment.items() if not name.startswith(("BSC_RAY_", "BSC_BACKEND"))}
    ray = {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS), "RAY_COLOR_PREFIX": "0"}
    return worker_environment(threads) | {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"} | ray | variables


def _poll(run: Run, job: Job) -> tuple[ProcessInfo, str]:
    """Return the state of the job, and what the run waits for, if anything.

    Files are downloaded after the query, so that they are complete when the job has ended.
    """
    try:
        client = RayClient(job.address)
        info = client.job_info(job.submission)
        if job.storage:
            _download(run, job)
        if info is not None and (info.state == "PENDING" or info.error_type == NEVER_STARTED):
            return _pending(run, job, client, info)
    except JobError as error:
        return ProcessInfo("unknown"), str(error)
    if info is None:
        cause = f"the Ray cluster at {job.address} does not know its job; the cluster was restarted"
        return ProcessInfo("ended", cause=cause), ""
    return ProcessInfo("ended", info.exit_code, _cause(job, info)) if info.has_ended else ProcessInfo("alive"), ""


def _pending(run: Run, job: Job, client: RayClient, info: JobInfo) -> tuple[ProcessInfo, str]:
    """Handle a job that waits for resources: end it if the run is stopping, resubmit it if Ray gave up on it."""
    if run.status().state == "stopping":  # the process would stop at once
        client.stop(job.submission)
        return ProcessInfo("ended", cause="it was stopped before the cluster had free resources for it"), ""
    settings = RaySettings.for_run(run)
    if info.has_ended:
        _submit(run, replace(job, attempt=job.attempt + 1), client, settings)
    return ProcessInfo("alive"), f"waits for resources in the Ray cluster: {settings.per_process}"


def _cause(job: Job, info: JobInfo) -> str | None:
    """Return why a job has ended, if more is known than its exit status."""
    if info.state == "SUCCEEDED":
        return "its job in the Ray cluster ended, but the run has no result"
    if info.state == "STOPPED":
        return f"job {job.submission} was stopped in the Ray cluster"
    lines = [line.strip() for line in info.message.splitlines() if line.strip()]
    return f"Ray: {lines[-1]}" if lines else None


def _download(run: Run, job: Job) -> None:
    """Download the files that the run wrote, and merge its status."""
    if run.stop_requested():
        job.run_storage.put_bytes(b"", STOP)
    downloader = Downloader(run.folder, job.run_storage, _read_note(run, _DOWNLOADED_FILE))
    try:
        remote = downloader.pull()
        if remote is not None:
            status_stamp = downloader.downloaded.pop(STATUS)
            run.change_status(lambda status: _merge(status, remote))
            downloader.downloaded[STATUS] = status_stamp
    finally:
        run.write_json(_DOWNLOADED_FILE, downloader.downloaded)


def _read_note(run: Run, name: str) -> dict[str, Any]:
    """Read a file of the last poll; empty if it is damaged, and then everything is downloaded again."""
    try:
        return run.read_json(name) or {}
    except RunError:
        return {}


def _merge(status: RunStatus, remote: Mapping[str, Any]) -> RunStatus:
    """Merge the status that the run's process wrote; fields of the launcher stay."""
    values = {name: value for name, value in remote.items() if hasattr(status, name) and name not in _LAUNCHER_FIELDS}
    if status.is_finished or not values:
        return status
    state = values.pop("state", status.state)
    if state != status.state and not _may_reach(status.state, state):
        values = {name: value for name, value in values.items() if name not in _STATE_FIELDS}
        state = status.state
    return replace(status, state=state, **values)


def _may_reach(state: State, following: State) -> bool:
    """Return whether a state may follow, perhaps with an unseen `running` in between."""
    return may_follow(state, following) or (may_follow(state, "running") and may_follow("running", following))


def _show_waiting(run: Run, before: str, waiting_for: str) -> None:
    """Set or clear the message in the status that says what the run waits for."""

    def change(status: RunStatus) -> RunStatus:
        is_replaceable = status.message in ("", before) and not status.is_finished
        return replace(status, message=waiting_for) if is_replaceable else status

    if waiting_for != before:
        run.change_status(change)


@contextmanager
def _job_lock(run: Run, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of the run's job. Raises BackendUnavailableError if another process holds it for longer."""
    try:
        with file_lock(run.folder / ".ray.lock", seconds):
            yield
    except Timeout:
        raise BackendUnavailableError(f"run {run.id}: another process is handling its job") from None

"""Runs as jobs of a Ray cluster: the backend that submits the worker's command to BSC_RAY_ADDRESS.

What is known of a job stands in the run's folder, so that any process, started before or after, follows it. The folder
is on a disk that the cluster shares, or its changes go through storage (BSC_RAY_STORAGE).
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

from filelock import FileLock, Timeout

from bsc_core.errors import JobError, RunError
from bsc_core.jobs.backend import AwayError, Look
from bsc_core.jobs.local import ROOTS, worker_environment
from bsc_core.jobs.ray_client import NEVER_STARTED, JobFacts, RayClient
from bsc_core.jobs.ray_parcel import pack
from bsc_core.jobs.ray_settings import RaySettings
from bsc_core.jobs.ray_storage import STATUS, STOP, Files, Incoming, Storage, StorageError
from bsc_core.jobs.states import may_follow
from bsc_core.runs import Run, RunStatus, State

LOOK_SECONDS = 2.0
AWAY_SECONDS = 10.0
_SHARE = 4.0  # looking takes at most a fifth of the time
_RECORD, _SEEN, _TAKEN = "ray", ".ray-seen", ".ray-taken"
_START_SECONDS = 10.0
_STOP_SECONDS = 10  # between Ray's SIGTERM and its SIGKILL
_LOCAL = ("created", "group", "backend", "resumed_from", "pid", "process_created", "process_mark", "pulse")
_OF_STATE = ("message", "error", "finished", "exit_code")


@dataclass(frozen=True)
class Job:
    """What a run's folder says of its job. name: of all its attempts; each is submitted under a name of its own.

    storage: the URL that the folder goes through, empty on a shared disk. submitted: the cluster has taken it.
    """

    name: str
    address: str
    storage: str = ""
    attempt: int = 1
    packed: bool = False
    submitted: bool = False
    environment: Mapping[str, str] | None = None

    @property
    def submission(self) -> str:
        return self.name if self.attempt == 1 else f"{self.name}-{self.attempt}"

    @property
    def own_storage(self) -> Storage:
        return Storage(self.storage).at(self.name)

    @classmethod
    def of(cls, run: Run) -> Job | None:
        """The job of a run; None before one was made. Raises JobError when its name cannot be read."""
        try:
            values = run.read_json(_RECORD)
            return None if values is None else cls(**values)
        except (RunError, TypeError) as error:
            raise JobError(
                f"run {run.id}: {_RECORD}.json, which names its job, is damaged ({error}); end the job in the cluster"
            ) from None

    def write(self, run: Run) -> Job:
        run.write_json(_RECORD, asdict(self))
        return self


class RayBackend:
    """Performs runs as jobs of the cluster that a run's launcher named."""

    takes_slot = False  # the cluster has a queue of its own

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Submit a run, once; Ray starts it where and when there is room.

        Raises AwayError while the cluster or the storage does not answer, JobError when the run can be no job.
        """
        with _held(run, _START_SECONDS):
            settings = RaySettings.of(run)
            client = RayClient(settings.address)
            job = Job.of(run)
            if job is None:
                job = Job(f"bsc-{run.id}-{secrets.token_hex(3)}", client.address, settings.storage).write(run)
            if job.storage and not job.packed:
                job = _packed(run, job).write(run)
            job = replace(job, environment=_environment(environment, settings)).write(run)
            _submit(run, job, client, settings)

    def look(self, run: Run) -> Look:
        """Ask the cluster for the run's job, and bring what the run wrote into its folder; seldom enough for a poll."""
        try:
            job, status = Job.of(run), run.status()
        except JobError as error:
            return Look("ended", cause=str(error))
        if job is None or (not job.submitted and status.state in ("queued", "starting") and status.pid is None):
            return Look("ended")  # never started, as far as is known
        seen = _noted(run, _SEEN)
        if 0 <= run.clock() - seen.get("at", 0.0) < seen.get("pause", 0.0):
            return Look(seen["state"], seen["exit_code"], seen["cause"])
        try:
            with _held(run):
                began = run.clock()
                look, waiting_for = _look(run, job)
                _tell(run, seen.get("waiting_for", ""), waiting_for)
                least = AWAY_SECONDS if look.state == "unknown" else LOOK_SECONDS
                pause = max(least, _SHARE * (run.clock() - began))
                values = {"at": run.clock(), "pause": pause, "waiting_for": waiting_for}
                run.write_json(_SEEN, {**values, "state": look.state, "exit_code": look.exit_code, "cause": look.cause})
                return look
        except AwayError:  # another process is at it
            return Look("unknown")

    def ask(self, run: Run) -> None:
        """Raise the flag where the run looks for it; storage that does not answer is told at the next look."""
        run.request_stop()
        job = Job.of(run)
        if job is not None and job.storage:
            with suppress(StorageError):
                job.own_storage.put_bytes(b"", STOP)

    def end(self, run: Run, number: signal.Signals) -> None:
        """End the run's job; Ray sends SIGTERM at once and SIGKILL some seconds later, whichever is asked for.

        Raises AwayError while the cluster does not answer.
        """
        job = Job.of(run)
        if job is not None:
            RayClient(job.address).stop(job.submission)


def _submit(run: Run, job: Job, client: RayClient, settings: RaySettings) -> None:
    client.submit(job.submission, _command(run, job, settings), settings.driver, job.environment or {})
    replace(job, submitted=True).write(run)


def _packed(run: Run, job: Job) -> Job:
    """Store what the run needs on another machine."""
    roots = (run.read_json("launch") or {}).get(ROOTS, "").split(os.pathsep)
    allowed = tuple(Path(root).expanduser().resolve() for root in roots if root.strip())
    try:
        run.write_json(_TAKEN, pack(run, job.own_storage, Storage(job.storage), allowed))
    except StorageError as error:
        raise AwayError(str(error)) from error
    return replace(job, packed=True)


def _command(run: Run, job: Job, settings: RaySettings) -> str:
    """The shell's command that performs the run on a node of the cluster."""
    module = [settings.python, "-P", "-m"]
    if job.storage:
        return "exec " + shlex.join([*module, "bsc_core.jobs.ray_worker", job.storage, job.name])
    worker = ["bsc_core.jobs.ray_ranks", *settings.ranks] if settings.ranks else ["bsc_core.jobs.worker"]
    return f"exec {shlex.join([*module, *worker, str(run.folder)])} >> {shlex.quote(str(run.log_file))} 2>&1"


def _environment(environment: Mapping[str, str], settings: RaySettings) -> dict[str, str]:
    """What the job's processes are told: threads as many as CPUs were asked for, unless the run says how many."""
    threads = max(1, int(settings.each.cpus))
    told = {name: value for name, value in environment.items() if not name.startswith(("BSC_RAY_", "BSC_BACKEND"))}
    ray = {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS), "RAY_COLOR_PREFIX": "0"}
    return worker_environment(threads) | {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"} | ray | told


def _look(run: Run, job: Job) -> tuple[Look, str]:
    """What the cluster says, and what the run waits for, if anything.

    What the run wrote is brought after the cluster was asked, so that the last of it is there when the job has ended.
    """
    try:
        client = RayClient(job.address)
        facts = client.facts(job.submission)
        if job.storage:
            _bring(run, job)
        if facts is not None and (facts.state == "PENDING" or facts.error_type == NEVER_STARTED):
            return _not_begun(run, job, client, facts)
    except JobError as error:
        return Look("unknown"), str(error)
    if facts is None:
        cause = f"the Ray cluster at {job.address} does not know its job; it was started anew since"
        return Look("ended", cause=cause), ""
    return Look("ended", facts.exit_code, _cause(job, facts)) if facts.has_ended else Look("alive"), ""


def _not_begun(run: Run, job: Job, client: RayClient, facts: JobFacts) -> tuple[Look, str]:
    """A job that waits for room; it is ended when the run was stopped, and submitted anew when Ray gave up on it."""
    if run.status().state == "stopping":  # its process would find the flag and end at once
        client.stop(job.submission)
        return Look("ended", cause="it was stopped before the cluster had room for it"), ""
    settings = RaySettings.of(run)
    if facts.has_ended:
        _submit(run, replace(job, attempt=job.attempt + 1), client, settings)
    return Look("alive"), f"waits for room in the Ray cluster: {settings.each}"


def _cause(job: Job, facts: JobFacts) -> str | None:
    """Why a job has ended, where that is more than its exit code tells."""
    if facts.state == "SUCCEEDED":
        return "its job in the Ray cluster ended without a word of the run"
    if facts.state == "STOPPED":
        return f"job {job.submission} was stopped in the Ray cluster"
    lines = [line.strip() for line in facts.message.splitlines() if line.strip()]
    return f"Ray: {lines[-1]}" if lines else None


def _bring(run: Run, job: Job) -> None:
    """Bring what the run wrote elsewhere into its folder, the status as far as the states allow."""
    if run.stop_requested():
        job.own_storage.put_bytes(b"", STOP)
    taken: Files = _noted(run, _TAKEN)
    incoming = Incoming(run.folder, job.own_storage, taken)
    try:
        news = incoming.pull()
        if news is not None:
            status_stamp = incoming.taken.pop(STATUS)
            run.change_status(lambda status: _merged(status, news))
            incoming.taken[STATUS] = status_stamp
    finally:
        run.write_json(_TAKEN, incoming.taken)


def _noted(run: Run, name: str) -> dict[str, Any]:
    """What a look left for the next one; nothing where that cannot be read, and then all is brought once more."""
    try:
        return run.read_json(name) or {}
    except RunError:
        return {}


def _merged(status: RunStatus, news: Mapping[str, Any]) -> RunStatus:
    """The status with what the run's own process says; what this side alone knows stays."""
    known = {name: value for name, value in news.items() if hasattr(status, name) and name not in _LOCAL}
    if status.is_finished or not known:
        return status
    state = known.pop("state", status.state)
    if state != status.state and not _may_come_to(status.state, state):
        known = {name: value for name, value in known.items() if name not in _OF_STATE}
        state = status.state
    return replace(status, state=state, **known)


def _may_come_to(state: State, following: State) -> bool:
    """True when a run may follow on so, a look between `starting` and `done` left out."""
    return may_follow(state, following) or (may_follow(state, "running") and may_follow("running", following))


def _tell(run: Run, before: str, waiting_for: str) -> None:
    """Say in the status of a run what it waits for, and take that back when it waits no more."""

    def change(status: RunStatus) -> RunStatus:
        is_ours = status.message in ("", before) and not status.is_finished
        return replace(status, message=waiting_for) if is_ours else status

    if waiting_for != before:
        run.change_status(change)


@contextmanager
def _held(run: Run, seconds: float = 0.0) -> Iterator[None]:
    """The run's job for this process alone. Raises AwayError when another one holds it for longer than that."""
    try:
        with FileLock(run.folder / ".ray.lock", timeout=seconds):
            yield
    except Timeout:
        raise AwayError(f"run {run.id}: another process is at its job") from None

"""Client of a Ray cluster's jobs with timeouts and one-line errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import bsc_core
from bsc_core.errors import JobError
from bsc_core.jobs.backends import BackendUnavailableError
from bsc_core.ray.jobs.settings import Resources, job_address

JobState = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
NEVER_STARTED = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"  # a job waited too long for its resources
_TIMEOUTS = (3.0, 20.0)  # seconds to connect, and to read
_MIN_VERSION = "2.8"  # the first with memory as a resource of a job
T = TypeVar("T")


@dataclass(frozen=True)
class JobInfo:
    """State of a job in the cluster; `error_type` is Ray's name of a failure."""

    state: JobState
    message: str = ""
    error_type: str | None = None
    exit_code: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the job is in a final state."""
        return self.state in ("STOPPED", "SUCCEEDED", "FAILED")


class RayClient:
    """Jobs of one cluster. Calls raise BackendUnavailableError while it does not answer, JobError if it refuses."""

    def __init__(self, address: str) -> None:
        """Connect to the dashboard at `address`, such as http://10.0.0.1:8265.

        Raises:
            JobError: The address is malformed.
        """
        self.address = job_address(address)
        self._client = self._call(lambda: _connect(self.address))

    def submit(self, job: str, command: str, resources: Resources, environment: Mapping[str, str]) -> None:
        """Submit a shell command with this version of the package; a job that exists is not submitted again."""
        runtime = {"py_modules": [str(Path(bsc_core.__file__).parent)], "env_vars": dict(environment)}
        try:
            self._call(
                lambda: self._client.submit_job(
                    submission_id=job,
                    entrypoint=command,
                    entrypoint_num_cpus=resources.cpus or None,
                    entrypoint_num_gpus=resources.gpus or None,
                    entrypoint_memory=resources.memory or None,
                    runtime_env=runtime,
                    metadata={"bsc_lab": bsc_core.__version__},
                )
            )
        except JobError:
            if self.job_info(job) is None:  # otherwise an earlier call succeeded without its answer
                raise

    def job_info(self, job: str) -> JobInfo | None:
        """Return the state of a job; None if the cluster does not know it."""
        try:
            details = self._call(lambda: self._client.get_job_info(job))
        except _UnknownJobError:
            return None
        return JobInfo(details.status.value, details.message or "", details.error_type, details.driver_exit_code)

    def stop(self, job: str) -> None:
        """End a job with SIGTERM and later SIGKILL; does nothing if it has ended or is unknown."""
        try:
            self._call(lambda: self._client.stop_job(job))
        except _UnknownJobError:
            return

    def _call(self, call: Callable[[], T]) -> T:
        """Call a function of Ray's client, with one-line errors."""
        import ray.exceptions
        import requests

        try:
            return call()
        except ray.exceptions.AuthenticationError:
            raise JobError(
                f"the Ray cluster at {self.address} refuses this user; give its token in RAY_AUTH_TOKEN or "
                "~/.ray/auth_token"
            ) from None
        except (OSError, requests.exceptions.RequestException) as error:
            raise BackendUnavailableError(
                f"the Ray cluster at {self.address} does not answer ({_reason(error)}); start its head, or correct "
                "BSC_RAY_ADDRESS, the address of its dashboard (usually port 8265)"
            ) from None
        except (KeyError, ValueError) as error:
            raise JobError(
                f"the server at {self.address} is not a Ray dashboard ({error}); correct the address"
            ) from None
        except RuntimeError as error:  # Ray's client raises no other class when the head refuses
            raise self._refused(str(error)) from None

    def _refused(self, answer: str) -> JobError:
        last = next((line.strip(" .") for line in reversed(answer.splitlines()) if line.strip(" .")), "no reason given")
        if "status code 404" in answer and "does not exist" in answer:
            return _UnknownJobError(last)
        if "status code 5" in answer.splitlines()[0] and "status code 400" not in answer:
            return BackendUnavailableError(
                f"the Ray cluster at {self.address} cannot accept jobs now ({last}); submission is retried"
            )
        return JobError(f"the Ray cluster at {self.address} refuses ({last})")


class _UnknownJobError(JobError):
    """The cluster does not know the job."""


def _connect(address: str) -> Any:
    """Return Ray's client for an address, with timeouts; RAY_ADDRESS is ignored."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.dashboard.modules.dashboard_sdk import SubmissionClient
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise JobError("Ray is not installed; install it with `pip install 'bsc-lab[ray]'`") from None

    class Client(JobSubmissionClient):  # type: ignore[misc]
        def __init__(self) -> None:  # the base class gives RAY_ADDRESS precedence
            SubmissionClient.__init__(self, address=address, headers=_token())
            self._client_ray_version = ray.__version__
            self._check_connection_and_version(min_version=_MIN_VERSION)

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, timeout=_TIMEOUTS, **options)

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return Client()


def _token() -> dict[str, str]:
    """Return the header with the user's token; Ray's client sends it only if RAY_AUTH_MODE is set."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not token and path.is_file():
        token = path.read_text(encoding="utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _reason(error: Exception) -> str:
    """Return the innermost reason of a failed request, such as `Connection refused`."""
    cause: Any = error
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__ or (cause.args or (None,))[0]
        if not isinstance(inner, BaseException):
            break
        cause = inner
    reason = getattr(cause, "strerror", None) or str(cause).rpartition(": ")[2] or type(cause).__name__
    line = str(reason).splitlines()[0]
    return line if line.isprintable() else "the server there does not speak HTTP"

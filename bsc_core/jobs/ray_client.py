"""A Ray cluster's jobs, as its dashboard's address serves them: each call ends in time, and fails in one sentence."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import bsc_core
from bsc_core.errors import JobError
from bsc_core.jobs.backend import AwayError

JobState = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
NEVER_STARTED = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"  # Ray gives up on a job that waited too long for its resources
_SECONDS = (3.0, 20.0)  # to connect, and between two pieces of an answer
_OLDEST = "2.8"  # the first that takes memory for a job
T = TypeVar("T")


@dataclass(frozen=True)
class Resources:
    """What a job occupies in the cluster. memory: bytes; 0 asks for none."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}"] if self.cpus else []
        parts += [f"{self.gpus:g} GPU{'s' * (self.gpus != 1)}"] if self.gpus else []
        parts += [f"{self.memory / 2**30:.3g} GiB"] if self.memory else []
        return ", ".join(parts) or "a place"


@dataclass(frozen=True)
class JobFacts:
    """What Ray says of a job. error_type: Ray's own word for the kind of failure."""

    state: JobState
    message: str = ""
    error_type: str | None = None
    exit_code: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ("STOPPED", "SUCCEEDED", "FAILED")


class RayClient:
    """The jobs of one cluster. Calls raise AwayError while it does not answer and JobError when it refuses."""

    def __init__(self, address: str) -> None:
        """address: of the dashboard, such as http://10.0.0.1:8265. Connects. Raises JobError for another form."""
        self.address = job_address(address)
        self._client = self._told(lambda: _connect(self.address))

    def submit(self, job: str, command: str, resources: Resources, environment: Mapping[str, str]) -> None:
        """Submit a command as the job of that name, with this version of the package; once, however often it is called.

        command: for the shell. environment: added to that of the node.
        """
        runtime = {"py_modules": [str(Path(bsc_core.__file__).parent)], "env_vars": dict(environment)}
        try:
            self._told(
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
            if self.facts(job) is None:  # else an earlier call reached the cluster, though its answer did not come
                raise

    def facts(self, job: str) -> JobFacts | None:
        """What Ray says of a job; None when it knows none of that name."""
        try:
            details = self._told(lambda: self._client.get_job_info(job))
        except _UnknownJobError:
            return None
        return JobFacts(details.status.value, details.message or "", details.error_type, details.driver_exit_code)

    def stop(self, job: str) -> None:
        """Ask Ray to end a job: SIGTERM to its processes, later SIGKILL. Nothing when it has ended or is not known."""
        try:
            self._told(lambda: self._client.stop_job(job))
        except _UnknownJobError:
            return

    def _told(self, call: Callable[[], T]) -> T:
        """The result of a call, its failure in one sentence."""
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
            raise AwayError(
                f"the Ray cluster at {self.address} does not answer ({_reason(error)}); start its head, or correct "
                "BSC_RAY_ADDRESS, which names its dashboard (port 8265 as a rule)"
            ) from None
        except (KeyError, ValueError) as error:
            raise JobError(
                f"what answers at {self.address} is no Ray dashboard ({error}); correct the address"
            ) from None
        except RuntimeError as error:  # Ray's client raises no other class when the head refuses
            raise self._refused(str(error)) from None

    def _refused(self, answer: str) -> JobError:
        last = next((line.strip(" .") for line in reversed(answer.splitlines()) if line.strip(" .")), "no reason given")
        if "status code 404" in answer and "does not exist" in answer:
            return _UnknownJobError(last)
        if "status code 5" in answer.splitlines()[0] and "status code 400" not in answer:
            return AwayError(f"the Ray cluster at {self.address} cannot take jobs now ({last}); it is asked again")
        return JobError(f"the Ray cluster at {self.address} refuses ({last})")


class _UnknownJobError(JobError):
    """The cluster has no job of that name."""


def job_address(address: str) -> str:
    """The address of a dashboard as a URL. Raises JobError for what can be none."""
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        fits = False
    if not fits or (":" not in address and "." not in address):
        raise JobError(
            f"BSC_RAY_ADDRESS is {address!r}; give the address of the cluster's dashboard, such as http://10.0.0.1:8265"
        )
    return url.rstrip("/")


def _connect(address: str) -> Any:
    """Ray's client for that address, whatever RAY_ADDRESS says, with a limit on the time of each request."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.dashboard.modules.dashboard_sdk import SubmissionClient
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise JobError("Ray is not installed; install it with `pip install 'bsc-lab[ray]'`") from None

    class Client(JobSubmissionClient):  # type: ignore[misc]
        def __init__(self) -> None:  # its own would let RAY_ADDRESS overrule the address
            SubmissionClient.__init__(self, address=address, headers=_token())
            self._client_ray_version = ray.__version__
            self._check_connection_and_version(min_version=_OLDEST)

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, timeout=_SECONDS, **options)

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return Client()


def _token() -> dict[str, str]:
    """The header for a head that asks for a token: Ray's client sends one only where RAY_AUTH_MODE says so."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not token and path.is_file():
        token = path.read_text(encoding="utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _reason(error: Exception) -> str:
    """The innermost reason of a failed request: `Connection refused` rather than three lines about pools."""
    cause: Any = error
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__ or (cause.args or (None,))[0]
        if not isinstance(inner, BaseException):
            break
        cause = inner
    told = getattr(cause, "strerror", None) or str(cause).rpartition(": ")[2] or type(cause).__name__
    line = str(told).splitlines()[0]
    return line if line.isprintable() else "what answers there speaks no HTTP"

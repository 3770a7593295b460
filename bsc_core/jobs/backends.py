"""Backends: where runs are executed. The protocol that each implements, and their registry."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, cast

from bsc_core.errors import ConfigError, JobError
from bsc_core.runs import Run


class BackendUnavailableError(JobError):
    """A backend cannot be reached at the moment; the run waits and is retried."""


@dataclass(frozen=True)
class ProcessInfo:
    """State of the process of a run.

    Attributes:
        state: `unknown` if it cannot be determined now; the run then keeps its state.
        exit_code: Exit status of an ended process, if known.
        cause: Why it ended, if more is known than the exit status.
        heartbeat_age: Seconds since the last heartbeat of a live process.
    """

    state: Literal["alive", "ended", "unknown"]
    exit_code: int | None = None
    cause: str | None = None
    heartbeat_age: float = 0.0


class Backend(Protocol):
    """Executes runs. Its records of a run are in the run's folder, so any process can use it."""

    @property
    def takes_slot(self) -> bool:
        """Whether its runs use this machine and so count against the queue's slots."""

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Start the process of a run, detached from this one; does nothing if the run has one.

        Args:
            run: The run.
            environment: Variables added to those of the process.

        Raises:
            JobError: The process cannot be started; the run fails.
            BackendUnavailableError: The backend cannot be reached; the run waits.
        """

    def inspect(self, run: Run) -> ProcessInfo:
        """Return the state of the run's process; copies its output into the run folder if it is written elsewhere."""

    def request_stop(self, run: Run) -> None:
        """Ask the run to stop after its current step."""

    def send_signal(self, run: Run, number: signal.Signals) -> None:
        """Send SIGTERM or SIGKILL to all processes of a run; does nothing if they have ended."""


BACKENDS: Mapping[str, str] = {
    "local": "bsc_core.jobs.local.backend:LocalBackend",
    "ray": "bsc_core.ray.jobs.backend:RayBackend",
}


def get_backend(name: str) -> Backend:
    """Return the backend of a name.

    Raises:
        ConfigError: The name is unknown.
    """
    if name not in BACKENDS:
        raise ConfigError(f"backend is {name!r}; it must be one of {', '.join(BACKENDS)}")
    module, _, symbol = BACKENDS[name].partition(":")
    return cast("Backend", getattr(import_module(module), symbol)())


def backend_of(run: Run) -> Backend:
    """Return the backend that executes a run.

    Raises:
        ConfigError: The name of the backend is unknown.
    """
    return get_backend(run.status().backend)

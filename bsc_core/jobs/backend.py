"""What a place where runs are performed has to offer: start one, look at it, ask it to stop, end it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bsc_core.errors import JobError
from bsc_core.runs import Run


class AwayError(JobError):
    """The place where a run is to be performed cannot be reached now; the run waits, and is tried again."""


@dataclass(frozen=True)
class Look:
    """What is known of the process of a run. `unknown`: it cannot be told now, so the run keeps its state.

    exit_code: of a process that has ended, where it is known. cause: why it ended, where more is known than that.
    silent_seconds: how long a process that is alive has given no sign of life.
    """

    state: Literal["alive", "ended", "unknown"]
    exit_code: int | None = None
    cause: str | None = None
    silent_seconds: float = 0.0


class Backend(Protocol):
    """A place where runs are performed. What it knows of a run stands in the run's folder: any process may ask it."""

    @property
    def takes_slot(self) -> bool:
        """Whether its runs share this machine, of which the queue's slots are places."""

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        """Start the process that performs a run, detached from this one; a run that has one is left to it.

        environment: added to that of the process. Raises JobError, with which the run fails, or AwayError.
        """

    def look(self, run: Run) -> Look:
        """Look for the run's process, and bring what it wrote into the run's folder where it writes elsewhere."""

    def ask(self, run: Run) -> None:
        """Ask the run to stop after its current step."""

    def end(self, run: Run, number: signal.Signals) -> None:
        """Send SIGTERM or SIGKILL to all of a run's processes; nothing when they have ended."""

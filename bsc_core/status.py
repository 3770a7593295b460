"""Where a run is: its states, and the record that is replaced whole. Which may follow which: `bsc_core.jobs.states`."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Literal, get_args

State = Literal["queued", "starting", "running", "stopping", "done", "failed", "stopped", "lost"]
STATES: tuple[State, ...] = get_args(State)
_NUMBERS = ("step", "epoch", "created", "updated")
FINISHED: frozenset[State] = frozenset({"done", "failed", "stopped", "lost"})


@dataclass(frozen=True)
class RunStatus:
    """Where a run is. Times are seconds since the epoch, by a clock that may be set; `pulse` is its process's heartbeat
    on a clock that only goes on, and `process_mark` names the process whatever the clock says. `metric_low`,
    `metric_high`: the interval of `metric_best`, once the run has ended.
    """

    state: State = "queued"
    step: int = 0
    steps: int | None = None
    epoch: int = 0
    epochs: int | None = None
    created: float = 0.0
    started: float | None = None
    updated: float = 0.0
    finished: float | None = None
    pid: int | None = None
    process_created: float | None = None
    process_mark: str | None = None
    pulse: float | None = None
    message: str = ""
    error: str | None = None
    eta_seconds: float | None = None
    metric_name: str | None = None
    metric_best: float | None = None
    metric_low: float | None = None
    metric_high: float | None = None
    exit_code: int | None = None
    resumed_from: str | None = None
    group: str | None = None
    backend: str = "local"

    @property
    def is_finished(self) -> bool:
        """True when nothing more is to be expected of the run: done, failed, stopped or lost."""
        return self.state in FINISHED

    @property
    def is_readable(self) -> bool:
        """False when the file could not be read: one that was written holds the time at which the run was made."""
        return self.created > 0

    @property
    def progress(self) -> float:
        """Share of the steps that are done, in [0, 1]; 0 while their number is not known."""
        return min(1.0, self.step / self.steps) if self.steps else 0.0


def status_from_json(content: bytes) -> RunStatus:
    """The status that a file holds; fields of another version are left out. Raises ValueError for anything else."""
    values = json.loads(content)
    if not isinstance(values, dict) or values.get("state") not in STATES:
        raise ValueError("it holds no state of a run")
    if any(not isinstance(values.get(name, 0), int | float) for name in _NUMBERS):
        raise ValueError("it holds words where numbers belong")
    known = {field.name for field in fields(RunStatus)}
    return RunStatus(**{name: value for name, value in values.items() if name in known})

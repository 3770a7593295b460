"""Preflight: expected time, memory and disk usage of a run, estimated from a few training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.config import RunConfig
    from bsc_core.runs import RunStore

__all__ = ["STEPS", "Preflight", "preflight"]

STEPS = 3
"""Default number of timed steps."""
Say = Callable[[int, int, str], object]
"""Called with (stages done, stages in total, description of the current one)."""


@dataclass(frozen=True)
class Preflight:
    """Expected cost of a run. Sizes in bytes, times in seconds."""

    rows: int  # rows that the loss trains on
    texts: int  # number of distinct texts
    tokens: int  # number of tokens of the texts after truncation
    steps: int  # optimizer steps of the run
    epochs: int  # epochs of the run
    steps_timed: int  # number of timed steps
    step_seconds: float  # median time of a step
    pairs_per_second: float  # training speed
    seconds: dict[str, float]  # time of each part of the run: start, encode, plan, train, checkpoint
    memory_bytes: int  # peak memory of the preflight, whose first batch has the longest texts
    memory_free_bytes: int  # memory available to the run
    disk_bytes: int  # final size of the run folder
    disk_free_bytes: int  # free disk space
    device: str  # device of the encoder
    precision: str  # numerical precision of training
    loss: float  # loss of the last step
    warnings: tuple[str, ...] = ()  # one sentence for each likely problem

    @property
    def total_seconds(self) -> float:
        """Expected time of the run."""
        return sum(self.seconds.values())

    def as_report(self) -> dict[str, Any]:
        """Return the values for JSON, with `total_seconds`; the key of the warnings is `odd`."""
        values = asdict(self)
        values["odd"] = list(values.pop("warnings"))
        return {**values, "total_seconds": self.total_seconds}

    @classmethod
    def from_report(cls, report: dict[str, Any]) -> Preflight:
        """Create a preflight from the output of `as_report`.

        Raises:
            TypeError: A field is missing or unknown.
        """
        values = {name: value for name, value in report.items() if name not in ("total_seconds", "odd")}
        return cls(**values, warnings=tuple(report["odd"]))


def preflight(
    config: RunConfig,
    *,
    steps: int = STEPS,
    store: RunStore | None = None,
    say: Say = lambda done, total, description: None,
) -> Preflight:
    """Load the data and the encoder, run a few training steps, and estimate the cost of the run.

    The first step uses the longest texts, for the peak memory; the next `steps` steps use random rows and are timed.
    One checkpoint is written to the runs folder and removed.

    Args:
        config: The experiment.
        steps: Number of steps to time.
        store: Where the run would be created; by default the runs folder.
        say: Called with the progress.

    Raises:
        InputError: The configuration or the data are invalid.
        TrainingError: The loss is not finite in one of these steps.
    """
    from bsc_core.preflight.probe import measure
    from bsc_core.runs import RunStore

    return measure(config, steps, store or RunStore(), say)

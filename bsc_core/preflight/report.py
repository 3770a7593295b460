"""Result of a preflight, and the default number of timed steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

STEPS = 3
"""Default number of timed steps."""


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

"""What a preflight tells, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Say = Callable[[int, int, str], object]
"""Called with (stages done, stages in all, what is being done)."""


def silent(done: int, of: int, doing: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Preflight:
    """What a run would take. Sizes in bytes, times in seconds.

    rows: that the loss trains on. texts, tokens: distinct ones, and their word pieces after cutting. seconds: of the
    whole run by part: start, encode, plan, train, checkpoint. memory_bytes: the peak of the probe, whose first batch
    held the longest texts. disk_bytes: of the run's folder in the end. loss: of the last step that was timed. odd: one
    sentence for each thing to look at twice.
    """

    rows: int
    texts: int
    tokens: int
    steps: int
    epochs: int
    steps_timed: int
    step_seconds: float
    pairs_per_second: float
    seconds: dict[str, float]
    memory_bytes: int
    memory_free_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    device: str
    precision: str
    loss: float
    odd: tuple[str, ...] = ()

    @property
    def total_seconds(self) -> float:
        """Expected time of the whole run."""
        return sum(self.seconds.values())

    def as_report(self) -> dict[str, Any]:
        """The same as plain values for JSON, with `total_seconds`."""
        return {**asdict(self), "odd": list(self.odd), "total_seconds": self.total_seconds}

    @classmethod
    def from_report(cls, values: dict[str, Any]) -> Preflight:
        """What `as_report` gave. Raises TypeError where other fields were written."""
        given = {name: value for name, value in values.items() if name != "total_seconds"}
        return cls(**given | {"odd": tuple(values["odd"])})

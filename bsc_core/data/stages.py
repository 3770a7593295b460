"""What is left after each step in which data are made, with a few examples to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SHOWN = 3


@dataclass(frozen=True)
class Stage:
    """One step: its name, how many are left after it, three of them as texts, and what is to be known beside."""

    name: str
    count: int
    examples: tuple[tuple[str, ...], ...] = ()
    note: str = ""

    def sentence(self) -> str:
        """The stage in one line, such as `above the threshold: 1,204 (cosine of at least 0.5)`."""
        return f"{self.name}: {self.count:,}" + (f" ({self.note})" if self.note else "")


def spread(count: int) -> npt.NDArray[np.int64]:
    """At most three of the numbers 0 to count - 1, far apart."""
    return np.unique(np.linspace(0, count - 1, min(SHOWN, count)).astype(np.int64))

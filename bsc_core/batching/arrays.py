"""The array types that strategies and plans exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]  # row numbers, text ids or group ids
Vectors = NDArray[np.float32]  # one row a text
Matrix = NDArray[np.float32]  # queries x documents
Mask = NDArray[np.bool_]
Progress = Callable[[int, int], object]  # (done, total)


@dataclass(frozen=True, eq=False)
class Formed:
    """What a strategy makes: rows in plan order (N,), the group id of each (N,), and what it says of itself.

    centroids: (C, D) where it has some that the next epoch can start from.
    """

    order: Ids
    groups: Ids
    facts: dict[str, float | str] = field(default_factory=dict)
    centroids: Vectors | None = None


def plan_generator(seed: int, epoch: int) -> np.random.Generator:
    """The source of a plan's random draws: the same seed and epoch give the same plan."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))

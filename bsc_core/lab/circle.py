"""Points on a circle: the smallest embeddings that can be looked at whole."""

# B pairs

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LARGEST, SMALLEST, LabBatch


def circle_batch(pairs: int = 6, spread: float = 40.0, seed: int = 0) -> LabBatch:
    """Queries evenly around a circle, each document within `spread` degrees of its query, drawn from the seed.

    pairs: 4 to 16. spread: 0 to 180; at 0 every document lies on its query. Raises ConfigError outside these.
    """
    if not (SMALLEST <= pairs <= LARGEST):
        raise ConfigError(f"pairs is {pairs}; the lab shows {SMALLEST} to {LARGEST}")
    if not (math.isfinite(spread) and 0 <= spread <= 180):
        raise ConfigError(f"spread is {spread:g}; it must be 0 to 180 degrees")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must be 0 or more")
    asked = 360 * np.arange(pairs) / pairs
    answered = asked + np.random.default_rng(seed).uniform(-spread, spread, pairs)
    return LabBatch(
        title=f"{pairs} pairs on a circle",
        queries=on_circle(asked),
        documents=on_circle(answered),
        labels=np.ones(pairs),
        query_texts=tuple(f"query at {angle:.0f}°" for angle in asked % 360),
        document_texts=tuple(f"document {number} at {angle:.0f}°" for number, angle in enumerate(answered % 360, 1)),
    )


def on_circle(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """(B, 2) points of length 1 at angles of (B,) degrees."""
    radians = np.deg2rad(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)

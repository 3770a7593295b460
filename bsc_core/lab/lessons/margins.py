"""The numbers of the lesson on margins: triplets on a circle, in closed form."""

# B triplets

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.circle import circle_batch

MARGINS = (0.01, 0.1, 1.0, 5.0, 7.5, 10.0)
"""The margins that the paper on margins tries for triplets."""
FARTHEST = 1.0 - -1.0
"""The cosine distance of opposite vectors."""
GRID = tuple(np.round(np.geomspace(0.01, 10, 61), 3).tolist())
"""Margins of the curves."""


def margin_batch() -> LabBatch:
    """Twelve pairs on a circle; each query's negative is the document of the query two places on."""
    return circle_batch(pairs=12, spread=50, seed=3)


def triplet_distances(batch: LabBatch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(B,) cosine distances of each query from its document and from its negative, in [0, 2]."""
    negatives = np.roll(batch.documents, -2, axis=0)
    near = 1 - (batch.queries * batch.documents).sum(axis=1)  # points of length 1
    return near, 1 - (batch.queries * negatives).sum(axis=1)


def active(batch: LabBatch, margin: float) -> NDArray[np.bool_]:
    """(B,) triplets that do not meet the margin yet, and so still have a gradient."""
    near, far = triplet_distances(batch)
    return near - far + margin > 0


def active_share(batch: LabBatch, margin: float) -> float:
    """Share of the triplets that still pull and push."""
    return float(active(batch, margin).mean())


def triplet_loss(batch: LabBatch, margin: float) -> float:
    """Mean of max(0, d+ - d- + margin)."""
    near, far = triplet_distances(batch)
    return float(np.maximum(0, near - far + margin).mean())


def query_gradient(batch: LabBatch, margin: float) -> NDArray[np.float64]:
    """(B, 2) gradient of the mean triplet loss with respect to the queries, along the circle.

    d = 1 - q . a on the circle, so that each active triplet pulls with (negative - document) / B, less its part along
    the query, which does not turn it.
    """
    negatives = np.roll(batch.documents, -2, axis=0)
    raw = (negatives - batch.documents) * active(batch, margin)[:, None] / len(batch)
    along: NDArray[np.float64] = (raw * batch.queries).sum(axis=1, keepdims=True) * batch.queries
    return raw - along


def gradient_difference(batch: LabBatch, margin: float, other: float) -> float:
    """Largest difference of the two margins' gradients in any coordinate."""
    return float(np.abs(query_gradient(batch, margin) - query_gradient(batch, other)).max())

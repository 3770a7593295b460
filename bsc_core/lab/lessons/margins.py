"""The numbers of the lesson on margins: triplets on a circle, in closed form."""

# B triplets

import numpy as np
from numpy.typing import NDArray

from bsc_core.lab.batch import LabBatch, circle_batch

MARGINS = (0.01, 0.1, 1.0, 5.0, 7.5, 10.0)
"""The margins that the paper on margins tries for triplets."""
USUAL = (0.1, 0.5)
"""The range of usual margins of the cosine distance."""
FARTHEST = 1.0 - -1.0
"""The cosine distance of opposite vectors."""
LENGTH = 5.0
"""Length of the vectors whose Euclidean distances are compared."""
GRID = tuple(sorted({*np.round(np.geomspace(0.01, 10, 61), 3).tolist(), *MARGINS}))
"""Margins of the slider and the curves."""
DISTANCES = ("cosine", "euclidean")


def margin_batch() -> LabBatch:
    """Return twelve pairs on a circle."""
    return circle_batch(pairs=12, spread=50, seed=3)


def negative_rows(batch: LabBatch) -> NDArray[np.int64]:
    """Return (B,) the row of each query's negative: the document of a query one to six places further on the circle."""
    rows = np.arange(len(batch), dtype=np.int64)
    return (rows + 1 + rows % 6) % len(batch)


def negatives(batch: LabBatch) -> NDArray[np.float64]:
    """Return (B, 2) the negative of each query."""
    documents: NDArray[np.float64] = batch.documents[negative_rows(batch)]
    return documents


def triplet_distances(batch: LabBatch, distance: str = "cosine") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (B,) distances of each query from its document and from its negative.

    Args:
        batch: B pairs; `negatives` chooses the negatives.
        distance: `cosine`, in [0, 2], or `euclidean`, of vectors of length LENGTH, in [0, 2 * LENGTH].
    """
    near, far = (1 - (batch.queries * other).sum(axis=1) for other in (batch.documents, negatives(batch)))
    if distance == "euclidean":  # |q - a|^2 = 2 - 2 q . a for points of length 1
        near, far = (LENGTH * np.sqrt(np.maximum(2 * cosine, 0)) for cosine in (near, far))
    return near, far


def active(batch: LabBatch, margin: float, distance: str = "cosine") -> NDArray[np.bool_]:
    """Return (B,) whether a triplet violates the margin and so has a gradient."""
    near, far = triplet_distances(batch, distance)
    return near - far + margin > 0


def active_share(batch: LabBatch, margin: float, distance: str = "cosine") -> float:
    """Return the share of active triplets."""
    return float(active(batch, margin, distance).mean())


def triplet_loss(batch: LabBatch, margin: float) -> float:
    """Return the mean of max(0, d+ - d- + margin) of cosine distances."""
    near, far = triplet_distances(batch)
    return float(np.maximum(0, near - far + margin).mean())


def query_gradient(batch: LabBatch, margin: float) -> NDArray[np.float64]:
    """Return (B, 2) the gradient of the mean triplet loss with respect to the queries, along the circle.

    d = 1 - q . a on the circle, so each active triplet contributes (negative - document) / B, minus the component along
    the query, which does not rotate it.
    """
    raw = (negatives(batch) - batch.documents) * active(batch, margin)[:, None] / len(batch)
    along: NDArray[np.float64] = (raw * batch.queries).sum(axis=1, keepdims=True) * batch.queries
    return raw - along


def gradient_difference(batch: LabBatch, margin: float, other: float) -> float:
    """Return the largest difference between the gradients of two margins in any coordinate."""
    return float(np.abs(query_gradient(batch, margin) - query_gradient(batch, other)).max())

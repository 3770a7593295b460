"""The numbers of the lessons on batch size and temperature, from stored vectors of the bundled encoder."""

# B pairs

from functools import cache

import numpy as np
from numpy.typing import NDArray

from bsc_core.lab.batch import LabBatch, circle_batch
from bsc_core.lab.presets import preset_batch, rows_batch, sample_rows
from bsc_core.lab.settings import LabSettings, explain_batch

SIZES = tuple(range(2, 17))
SUBSETS = 40
"""Random batches of each size."""
LOW, USUAL, HIGH = 0.02, 0.1, 2.0
"""Temperatures that the second lesson compares."""
ROW_ORDER = (12, 8, 15, 0, 9, 14, 13, 3, 11, 2, 4, 10, 7, 1, 5, 6)
"""Order of the sixteen pairs in which the loss of the first n is near the mean loss of n random pairs, for each n."""


def ordered_batch() -> LabBatch:
    """Return the sixteen pairs of the first lesson in ROW_ORDER."""
    dataset, vectors = sample_rows("sixteen")
    return rows_batch("Sixteen pairs", dataset.take(np.asarray(ROW_ORDER)), vectors)


@cache
def losses_by_size() -> dict[int, NDArray[np.float64]]:
    """Return for each of SIZES the loss L0 of random batches (SUBSETS,) of the same sixteen pairs.

    L0 = -mean log softmax(cosine / temperature) of the own document, at the lab's temperature.
    """
    dataset, vectors = sample_rows("sixteen")
    logits = vectors[dataset.query].astype(np.float64) @ vectors[dataset.document].T / LabSettings().temperature
    generator = np.random.default_rng(0)
    losses = {}
    for size in SIZES:
        batches = [generator.permutation(len(logits))[:size] for _ in range(SUBSETS)]
        losses[size] = np.asarray([_query_loss(logits[np.ix_(rows, rows)]) for rows in batches])
    return losses


def _query_loss(logits: NDArray[np.float64]) -> float:
    """Return -mean log softmax of the diagonal (B, B)."""
    highest = logits.max(axis=1)
    return float((np.log(np.exp(logits - highest[:, None]).sum(axis=1)) + highest - np.diag(logits)).mean())


def training_batch() -> LabBatch:
    """Return six pairs on a circle, of which four are farther apart than from another document."""
    return circle_batch(pairs=6, spread=60)


def negative_shares(temperature: float) -> NDArray[np.float64]:
    """Return (B, B) how the gradient on the negatives of each query of the confusable questions is divided.

    A row sums to one; its own document has 0.
    """
    explained = explain_batch(preset_batch("confusable"), temperature=temperature, symmetric=False)
    push = np.where(explained.row_positives, 0.0, explained.rows)
    shares: NDArray[np.float64] = push / push.sum(axis=1, keepdims=True)
    return shares

"""What every loss refuses: batches whose shapes or values cannot be meant."""

# B pairs in a batch, K extra documents, D dimensions

from __future__ import annotations

import math

import torch
from torch import Tensor

from bsc_core.errors import InputError


def check_batch(queries: Tensor, documents: Tensor, labels: Tensor | None, *, least: int = 1) -> None:
    """Refuse a batch that a loss cannot make sense of.

    queries: (B, D), documents: (B + K, D), labels: (B,) in [0, 1] or None. least: the pairs it must hold; 2 where the
    other pairs are the negatives. Raises InputError with one sentence.
    """
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)};"
            " give two matrices with the same number of columns"
        )
    pairs = len(queries)
    if pairs < least:
        reason = ", since the other pairs are the negatives" if least > 1 else ""
        raise InputError(f"a batch holds {pairs} pair(s); it must hold at least {least}{reason}")
    if len(documents) < pairs:
        raise InputError(f"{pairs} queries have {len(documents)} documents; give each query its own document")
    for name, vectors in (("queries", queries), ("documents", documents)):
        if not math.isfinite(vectors.detach().sum(dtype=torch.float64)):  # NaN and infinity do not leave a sum
            raise InputError(f"the embeddings of the {name} hold NaN or infinity; check the encoder and learning_rate")
    if labels is not None:
        check_labels(labels, pairs)


def check_labels(labels: Tensor, pairs: int) -> None:
    """Refuse labels that are not one number in [0, 1] for each pair. Raises InputError."""
    if labels.shape != (pairs,):
        raise InputError(f"labels are {tuple(labels.shape)} for {pairs} pairs; give one label a pair")
    if not ((labels >= 0) & (labels <= 1)).all():  # NaN fails both
        lowest, highest = float(labels.min()), float(labels.max())
        raise InputError(f"labels go from {lowest:g} to {highest:g}; scale them to 0 to 1")


def require_labels(labels: Tensor | None, name: str) -> Tensor:
    """The labels of a loss that learns from them. Raises InputError where there are none."""
    if labels is None:
        raise InputError(f"{name} needs a label in [0, 1] for each pair; give labels, or choose a loss without them")
    return labels

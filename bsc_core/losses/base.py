"""Base class of all losses, their return type, and checks of their input."""

# B pairs in a batch, K extra documents, D dimensions

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bsc_core.errors import InputError, TrainingError


@dataclass(frozen=True)
class LossParts:
    """Result of a loss on one batch.

    Attributes:
        total: Scalar tensor with gradient.
        terms: Scalar tensors without gradient, by name, for curves and the loss lab.

    Raises:
        TrainingError: The total is NaN or infinite.
    """

    total: Tensor
    terms: dict[str, Tensor]

    def __post_init__(self) -> None:
        value = float(self.total.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value}: its scores exceed the range of their number format; lower learning_rate, raise "
                "the temperature, or choose normalization l2"
            )


class Loss(nn.Module):
    """Base of all losses: checks the batch and computes outside autocast.

    Attributes:
        config: Settings of the loss.
        threshold: Labels above it are positive; the config's, or else that of the data.
        min_pairs: Minimum number of pairs; 2 where the other pairs are the negatives.
        reads_labels: Whether `labels` are graded labels of the pairs.
    """

    min_pairs = 1
    reads_labels = True
    config: Any

    def __init__(self, config: Any, threshold: float = 0.5) -> None:
        super().__init__()
        self.config = config
        given = getattr(config, "threshold", None)
        self.threshold: float = threshold if given is None else given

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """Compute the loss of one batch, in float32 (float64 for float64 input) regardless of autocast.

        Args:
            queries: (B, D); B >= 2 where the other pairs are the negatives.
            documents: (B + K, D); row i < B is paired with query i, further rows are extra negatives.
            labels: (B,) in [0, 1]; None if all pairs are positive.
            **ids: `query_ids` and `document_ids`, (B,), equal for equal texts; `classes`, integers (B,) from 0;
                `excluded`, (E, 2), (query, document) positions that are left out of the softmax; `guide_queries`,
                (B, G), and `guide_documents`, (B + K, G), vectors of the guide of a mask. A loss ignores what it does
                not need.

        Raises:
            InputError: A shape or value cannot be used.
        """
        check_batch(queries, documents, labels if self.reads_labels else None, min_pairs=self.min_pairs)
        with torch.autocast(queries.device.type, enabled=False):
            return self._compute(queries, documents, labels, ids)

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        raise NotImplementedError

    def _positive(self, labels: Tensor | None, queries: Tensor) -> Tensor | None:
        """Return bool (B,), the positive pairs; None for all."""
        return None if labels is None else labels.to(queries.device) > self.threshold


def is_finite(vectors: Tensor) -> bool:
    """Return whether no number is NaN or infinite."""
    return math.isfinite(vectors.detach().sum(dtype=torch.float64))  # a sum keeps NaN and infinity


def promoted(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return two matrices in their common precision, at least float32."""
    precision = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    return left.to(precision), right.to(precision)


def check_batch(queries: Tensor, documents: Tensor, labels: Tensor | None, *, min_pairs: int = 1) -> None:
    """Check the shapes and values of a batch; see `Loss`.

    Raises:
        InputError: A shape or value cannot be used.
    """
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)};"
            " give two matrices with the same number of columns"
        )
    pairs = len(queries)
    if pairs < min_pairs:
        reason = ", since the other pairs are the negatives" if min_pairs > 1 else ""
        raise InputError(f"the batch has {pairs} pair(s); it needs at least {min_pairs}{reason}")
    if len(documents) < pairs:
        raise InputError(f"{pairs} queries have {len(documents)} documents; give one document for each query")
    for name, vectors in (("queries", queries), ("documents", documents)):
        if not is_finite(vectors):
            raise InputError(
                f"the embeddings of the {name} contain NaN or infinity; check the encoder and learning_rate"
            )
    if labels is None:
        return
    if labels.shape != (pairs,):
        raise InputError(f"labels are {tuple(labels.shape)} for {pairs} pairs; give one label for each pair")
    if not ((labels >= 0) & (labels <= 1)).all():  # NaN fails both
        lowest, highest = float(labels.min()), float(labels.max())
        raise InputError(f"labels range from {lowest:g} to {highest:g}; scale them to 0 to 1")


def require_labels(labels: Tensor | None, name: str) -> Tensor:
    """Return the labels.

    Raises:
        InputError: There are no labels.
    """
    if labels is None:
        raise InputError(f"{name} needs a label in [0, 1] for each pair; give labels, or choose a loss without them")
    return labels

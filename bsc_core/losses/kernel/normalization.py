"""Normalization of embeddings before they are compared (section 3.5 of the BSC paper).

`l2` scales rows. `l2_columns`, `range_columns` and `minmax_columns` scale coordinates over the batch, separately for
queries and documents. A coordinate that is (nearly) constant over the batch becomes 0 and receives no gradient.
"""

# B rows of a batch, D dimensions

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALLEST_RANGE = 1e-6
"""Column ranges and norms at or below this share of the largest magnitude of the matrix are treated as 0."""

SAFE_NORMS = (1e-15, 1e15)
"""Norms whose squares fit into a float32."""


def _sizes(vectors: Tensor, dim: int) -> Tensor:
    """Return the largest magnitude along a dimension, with keepdim; 1 where all are 0."""
    largest = vectors.abs().amax(dim=dim, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


class _UnitRows(torch.autograd.Function):
    """x / ||x|| by rows; with a custom backward pass, since autograd would store three more copies of the batch."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # (B, 1)
        inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
        unit = vectors * inverse
        shortest, longest = torch.aminmax(lengths.detach()) if len(lengths) else (1.0, 1.0)
        if not (SAFE_NORMS[0] < float(shortest) and float(longest) < SAFE_NORMS[1]):  # squares could be 0 or infinite
            size = _sizes(vectors, 1)
            lengths = torch.linalg.vector_norm(vectors / size, dim=1, keepdim=True)
            unit = torch.where(lengths > 0, vectors / size / lengths, 0.0)
            inverse = torch.where(lengths > 0, 1 / lengths / size, 0.0)
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, unit)[:, None]  # (B, 1)
        return torch.addcmul(gradient, unit, along, value=-1).mul_(inverse)


def l2(vectors: Tensor, detach: bool = False) -> Tensor:
    """Scale each row to norm 1, (B, D); dot products are then cosines.

    A zero row stays 0 and receives no gradient, so all its similarities are 0. `detach` has no effect on rows.
    """
    unit: Tensor = _UnitRows.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


def l2_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Divide each column by its norm over the batch, (B, D).

    Args:
        vectors: (B, D).
        detach: Compute no gradient through the norms.
    """
    size = _sizes(vectors.detach(), 0)  # so that no square is infinite
    return vectors * _inverse(torch.linalg.vector_norm(vectors / size, dim=0) * size[0], vectors, detach)


def range_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Divide each column by its range, max - min, without centering, (B, D): the BSC paper's released code.

    Args:
        vectors: (B, D).
        detach: Compute no gradient through the ranges.
    """
    return vectors * _inverse(vectors.amax(dim=0) - vectors.amin(dim=0), vectors, detach)


def minmax_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Shift and scale each column to [0, 1] over the batch, (B, D): the BSC paper's text.

    Args:
        vectors: (B, D).
        detach: Compute no gradient through minima and ranges.
    """
    lowest = vectors.amin(dim=0)
    scale = _inverse(vectors.amax(dim=0) - lowest, vectors, detach)
    return (vectors - (lowest.detach() if detach else lowest)) * scale


def none(vectors: Tensor, detach: bool = False) -> Tensor:
    """Return the vectors unchanged; dot products then grow with the encoder's width."""
    return vectors


def _inverse(sizes: Tensor, vectors: Tensor, detach: bool) -> Tensor:
    """Return 1 / size, (D,), and 0 for a column that is constant up to rounding."""
    if detach:
        sizes = sizes.detach()
    has_size = sizes > SMALLEST_RANGE * vectors.detach().abs().amax()
    return torch.where(has_size, 1 / torch.where(has_size, sizes, 1.0), 0.0)


NORMALIZATIONS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "l2": l2,
    "l2_columns": l2_columns,
    "range_columns": range_columns,
    "minmax_columns": minmax_columns,
    "none": none,
}

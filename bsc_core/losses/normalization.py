"""How embeddings are scaled before they are compared (section 3.5 of the BSC paper).

`l2` acts on rows. `l2_columns`, `range_columns` and `minmax_columns` act on coordinates over the batch, queries and
documents each by themselves. A coordinate that is (nearly) the same in every row has no scale: it becomes 0 and
receives no gradient.
"""

# B rows of a batch, D dimensions

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALLEST_RANGE = 1e-8
"""Ranges and lengths of columns below this count as 0."""


SAFE_LENGTHS = (1e-15, 1e15)
"""Lengths whose squares a float32 holds."""


def _sizes(vectors: Tensor, dim: int) -> Tensor:
    """The largest number along a dimension, which is kept, in size; 1 where all are 0."""
    largest = vectors.abs().amax(dim=dim, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


class _UnitRows(torch.autograd.Function):
    """x / ||x|| by rows; written out, since autograd would keep three more copies of a large batch."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # (B, 1)
        inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
        unit = vectors * inverse
        shortest, longest = torch.aminmax(lengths.detach()) if len(lengths) else (1.0, 1.0)
        if not (SAFE_LENGTHS[0] < float(shortest) and float(longest) < SAFE_LENGTHS[1]):  # squares may be 0 or infinite
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
    """Scale each row to length 1, so that a dot product is a cosine.

    vectors: (B, D). Returns (B, D). A row of length 0 has no direction: it stays 0 and receives no gradient, so its
    similarity with everything is 0. detach: has no meaning for rows.
    """
    unit: Tensor = _UnitRows.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


def l2_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Divide each column by its length over the batch.

    vectors: (B, D). Returns (B, D). detach: no gradient through the lengths.
    """
    size = _sizes(vectors.detach(), 0)  # so that no square is infinite
    return vectors * _inverse(torch.linalg.vector_norm(vectors / size, dim=0) * size[0], detach)


def range_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Divide each column by its range over the batch, max - min, without centring: the BSC paper's released code.

    vectors: (B, D). Returns (B, D). detach: no gradient through the ranges.
    """
    return vectors * _inverse(vectors.amax(dim=0) - vectors.amin(dim=0), detach)


def minmax_columns(vectors: Tensor, detach: bool = False) -> Tensor:
    """Move and scale each column to [0, 1] over the batch: what the BSC paper's text calls min-max.

    vectors: (B, D). Returns (B, D). detach: no gradient through minima and ranges.
    """
    lowest = vectors.amin(dim=0)
    scale = _inverse(vectors.amax(dim=0) - lowest, detach)
    return (vectors - (lowest.detach() if detach else lowest)) * scale


def none(vectors: Tensor, detach: bool = False) -> Tensor:
    """Leave the rows as they are: raw dot products, whose size grows with the encoder's width.

    vectors: (B, D). Returns the same tensor.
    """
    return vectors


def _inverse(sizes: Tensor, detach: bool) -> Tensor:
    """(D,) 1 / size, and 0 for a column without one."""
    if detach:
        sizes = sizes.detach()
    has_size = sizes > SMALLEST_RANGE
    return torch.where(has_size, 1 / torch.where(has_size, sizes, 1.0), 0.0)


NORMALIZATIONS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "l2": l2,
    "l2_columns": l2_columns,
    "range_columns": range_columns,
    "minmax_columns": minmax_columns,
    "none": none,
}

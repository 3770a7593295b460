"""How embeddings are scaled before they are compared (section 3.5 of the BSC paper)."""

# B rows of a batch, D dimensions

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def l2(vectors: Tensor) -> Tensor:
    """Scale each row to length 1, so that a dot product is a cosine.

    vectors: (B, D). Returns (B, D). A row of length 0 has no direction: it stays 0 and receives no gradient, so its
    similarity with everything is 0.
    """
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # (B, 1)
    has_direction = lengths > 0
    divisors = torch.where(has_direction, lengths, torch.ones_like(lengths))
    return torch.where(has_direction, vectors / divisors, torch.zeros_like(vectors))


def none(vectors: Tensor) -> Tensor:
    """Leave the rows as they are: raw dot products, whose size grows with the encoder's width.

    vectors: (B, D). Returns the same tensor.
    """
    return vectors


NORMALIZATIONS: dict[str, Callable[[Tensor], Tensor]] = {"l2": l2, "none": none}

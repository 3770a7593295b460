"""What every loss returns: the number to differentiate and the summands it was made of."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LossParts:
    """The result of a loss on one batch.

    total: scalar tensor with gradient. terms: scalar tensors without gradient, by name, for curves and the loss lab.
    """

    total: Tensor
    terms: dict[str, Tensor]

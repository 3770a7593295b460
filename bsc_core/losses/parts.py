"""What every loss returns: the number to differentiate and the summands it was made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from bsc_core.errors import TrainingError


@dataclass(frozen=True)
class LossParts:
    """The result of a loss on one batch.

    total: scalar tensor with gradient. terms: scalar tensors without gradient, by name, for curves and the loss lab.
    Raises TrainingError where the total is NaN or infinite.
    """

    total: Tensor
    terms: dict[str, Tensor]

    def __post_init__(self) -> None:
        value = float(self.total.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value}: its scores leave the range of their numbers; lower learning_rate, raise the "
                "temperature, or choose normalization l2"
            )

"""A weighted sum of losses on the same batch, with every summand reported by name."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bsc_core.config import CombinedLossConfig
from bsc_core.losses.parts import LossParts
from bsc_core.losses.temperature import Temperature


class CombinedLoss(nn.Module):
    """sum_k weight_k * loss_k; mu * bsc + (1 - mu) * mse is equation 6 of the BSC paper.

    losses: the summands, built from config.summands in their order; threshold: the one they were built with.
    """

    def __init__(self, config: CombinedLossConfig, losses: list[nn.Module], threshold: float = 0.5) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold
        self.losses = nn.ModuleList(losses)
        self.names = _distinct([part.loss.name for part in config.summands])

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch; arguments as the summands take them.

        Returns total and, unweighted, each summand under its name (`bsc`; a second one `bsc_2`) and its own terms under
        `bsc.query_to_document` and so on. Raises InputError when a summand refuses the batch.
        """
        total, terms = queries.new_zeros(()), {}
        for name, part, loss in zip(self.names, self.config.summands, self.losses, strict=True):
            found: LossParts = loss(queries, documents, labels, **ids)
            total = total + part.weight * found.total
            terms[name] = found.total.detach()
            terms |= {f"{name}.{term}": value for term, value in found.terms.items() if term != name}
        return LossParts(total, terms)

    @property
    def temperature(self) -> Temperature | None:
        """The temperature of the first summand that has one, for reports."""
        found: list[Any] = [loss.temperature for loss in self.losses if hasattr(loss, "temperature")]
        return found[0] if found else None


def _distinct(names: list[str]) -> list[str]:
    """bsc, mse, bsc -> bsc, mse, bsc_2."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    counted: dict[str, int] = {}
    distinct = []
    for name in names:
        counted[name] = counted.get(name, 0) + 1
        distinct.append(name if counted[name] == 1 else f"{name}_{counted[name]}")
    return distinct

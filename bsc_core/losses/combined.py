"""Losses around other losses: their weighted sum on the same batch, and their sum over truncated embeddings."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bsc_core.config import CombinedLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts
from bsc_core.losses.kernel.temperature import Temperature


class CombinedLoss(Loss):
    """sum_k weight_k * loss_k; mu * bsc + (1 - mu) * mse is equation 6 of the BSC paper.

    Terms: each summand, unweighted, under its name (`bsc`; a second one `bsc_2`), and its terms under names such as
    `bsc.query_to_document`.

    Args:
        config: Settings of the loss.
        losses: The summands, built from config.summands in their order.
        threshold: The threshold of the summands.
    """

    reads_labels = False  # the summands check them
    config: CombinedLossConfig

    def __init__(self, config: CombinedLossConfig, losses: list[nn.Module], threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.losses = nn.ModuleList(losses)
        count: Counter[str] = Counter()
        self.names = []
        for part in config.summands:
            count[part.loss.name] += 1
            number = count[part.loss.name]
            self.names.append(part.loss.name if number == 1 else f"{part.loss.name}_{number}")

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        total, terms = queries.new_zeros(()), {}
        for name, part, loss in zip(self.names, self.config.summands, self.losses, strict=True):
            result: LossParts = loss(queries, documents, labels, **ids)
            total = total + part.weight * result.total
            terms[name] = result.total.detach()
            terms |= {f"{name}.{term}": value for term, value in result.terms.items() if term != name}
        return LossParts(total, terms)

    @property
    def temperature(self) -> Temperature | None:
        """The temperature of the first summand that has one."""
        temperatures: list[Any] = [loss.temperature for loss in self.losses if hasattr(loss, "temperature")]
        return temperatures[0] if temperatures else None


def check_matryoshka_dims(requested: Sequence[int], dimensions: int) -> None:
    """Raise InputError if one of the requested dimensions exceeds the width of the embeddings."""
    if max(requested) > dimensions:
        raise InputError(
            f"matryoshka_dims has {max(requested)}, and the embeddings have {dimensions} dimensions; "
            f"use dimensions up to {dimensions}"
        )


class MatryoshkaLoss(Loss):
    """sum_d weight_d * loss(first d coordinates), Kusupati et al., 2022 (2205.13147), for any loss.

    The judge of a mask and the guide's vectors are not truncated, except for the model as its own judge. Equal to
    sentence-transformers' MatryoshkaLoss.

    Terms: the loss at each dimension, unweighted, as `dim_D`; and the terms at the largest one under their names.

    Attributes:
        config: The config of `loss`, with `matryoshka_dims` and `matryoshka_weights`.
        loss: The loss that is computed at each dimension.
    """

    reads_labels = False  # the loss checks them

    def __init__(self, config: Any, loss: nn.Module, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.loss = loss
        weights = config.matryoshka_weights or [1.0] * len(config.matryoshka_dims)
        self.weights = dict(sorted(zip(config.matryoshka_dims, weights, strict=True), reverse=True))

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        largest = max(self.weights)
        check_matryoshka_dims(list(self.weights), queries.shape[1])
        total = queries.new_zeros(())
        terms: dict[str, Tensor] = {}
        for dimension, weight in self.weights.items():
            result: LossParts = self.loss(queries[:, :dimension], documents[:, :dimension], labels, **ids)
            total = total + weight * result.total
            terms |= result.terms if dimension == largest else {}
            terms[f"dim_{dimension}"] = result.total.detach()
        return LossParts(total, terms)

    @property
    def temperature(self) -> Temperature | None:
        """The temperature of the loss; None without one."""
        return getattr(self.loss, "temperature", None)

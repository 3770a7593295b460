"""Losses that fit the cosine of a pair to its graded label: squared error and correlation."""

# B pairs in a batch, D dimensions

from __future__ import annotations

import torch
from torch import Tensor, nn

from bsc_core.config import MSELossConfig, PearsonLossConfig
from bsc_core.losses.checks import check_batch, require_labels
from bsc_core.losses.normalization import l2
from bsc_core.losses.parts import LossParts

CONSTANT = 1e-12
"""Variances at or below this share of the values' mean square are those of a constant."""


class CosineMSELoss(nn.Module):
    """Mean squared error of cosine and label, the second term of equation 6 of the BSC paper.

    1/B sum_i (cos(q_i, a_i) - y_i)^2. The paper prints the dot product; its code takes the cosine, and so does this.
    """

    def __init__(self, config: MSELossConfig, threshold: float = 0.5) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch. queries: (B, D), documents: (B + K, D), of which the first B count, labels: (B,).

        Returns total and the term `mse`. Raises InputError on other input.
        """
        cosines, wanted = _cosines_and_labels(queries, documents, labels, "mse")
        total = (cosines - wanted).square().mean()
        return LossParts(total, {"mse": total.detach()})


class PearsonLoss(nn.Module):
    """Minus the Pearson correlation of cosines and labels over the batch (section 7 of the BSC paper).

    -sum_i (c_i - mean c)(y_i - mean y) / sqrt(sum_i (c_i - mean c)^2 sum_i (y_i - mean y)^2), c_i = cos(q_i, a_i).
    Where cosines or labels are constant, one pair included, no correlation is defined: 0, with a gradient of 0.
    """

    def __init__(self, config: PearsonLossConfig, threshold: float = 0.5) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch. queries: (B, D), documents: (B + K, D), of which the first B count, labels: (B,).

        Returns total, in [-1, 1], and the term `pearson`. Raises InputError on other input.
        """
        cosines, wanted = _cosines_and_labels(queries, documents, labels, "pearson")
        first, second = cosines - cosines.mean(), wanted - wanted.mean()
        if _is_constant(cosines, first) or _is_constant(wanted, second):
            total = cosines.sum() * 0
        else:
            total = -(first * second).sum() / (first.norm() * second.norm())  # no matmul: autocast would cut it
        return LossParts(total, {"pearson": total.detach()})


def _cosines_and_labels(queries: Tensor, documents: Tensor, labels: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """Cosines of the pairs and their labels, (B,) each, in float32 or better."""
    check_batch(queries, documents, labels)
    wanted = require_labels(labels, name)
    with torch.autocast(queries.device.type, enabled=False):
        precision = torch.promote_types(torch.promote_types(queries.dtype, documents.dtype), torch.float32)
        left, right = l2(queries.to(precision)), l2(documents[: len(queries)].to(precision))
        return (left * right).sum(dim=1), wanted.to(left.device, precision)


def _is_constant(values: Tensor, centred: Tensor) -> bool:
    return bool(centred.detach().square().sum() <= CONSTANT * values.detach().square().sum())

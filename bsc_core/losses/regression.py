"""Losses of pairs with graded labels: squared error, correlation, and the order of the pairs (CoSENT, AnglE)."""

# B pairs in a batch, D dimensions

import torch
from torch import Tensor
from torch.nn.functional import pad

from bsc_core.config import AngleLossConfig, CoSENTLossConfig
from bsc_core.losses.base import Loss, LossParts, promoted, require_labels
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.temperature import make_temperature

CONSTANT = 1e-12
"""Values with a variance at or below this share of their mean square are treated as constant."""


class CosineMSELoss(Loss):
    """Mean squared error of cosine and label, the second term of equation 6 of the BSC paper.

    1/B sum_i (cos(q_i, a_i) - y_i)^2. The paper prints the dot product; its code and this loss use the cosine. Only the
    first B documents are used, and labels are required. Term: `mse`.
    """

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        cosines, targets = _cosines_and_labels(queries, documents, labels, "mse")
        total = (cosines - targets).square().mean()
        return LossParts(total, {"mse": total.detach()})


class PearsonLoss(Loss):
    """Minus the Pearson correlation of cosines and labels over the batch (section 7 of the BSC paper), in [-1, 1].

    -sum_i (c_i - mean c)(y_i - mean y) / sqrt(sum_i (c_i - mean c)^2 sum_i (y_i - mean y)^2), c_i = cos(q_i, a_i).
    If cosines or labels are constant, the correlation is undefined; the loss and its gradient are then 0. Only the
    first B documents are used, and labels are required. Term: `pearson`.
    """

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        cosines, targets = _cosines_and_labels(queries, documents, labels, "pearson")
        first, second = cosines - cosines.mean(), targets - targets.mean()
        if _is_constant(cosines, first) or _is_constant(targets, second):
            total = cosines.sum() * 0
        else:
            total = -(first * second).sum() / (first.norm() * second.norm())
        return LossParts(total, {"pearson": total.detach()})


class CoSENTLoss(Loss):
    """CoSENT: log(1 + sum_{y_i > y_j} exp((c_j - c_i) / tau)), c_i = cos(q_i, a_i), over all pairs of rows.

    A row with a higher label should have a higher cosine (Huang et al., 2024). The sum is computed from cumulative sums
    in the order of the labels, in O(B log B). Equal to sentence-transformers' CoSENTLoss with scale 1 / tau. If all
    labels are equal, the loss is 0. Only the first B documents are used, and labels are required. Term: `cosent`.
    """

    config: CoSENTLossConfig

    def __init__(self, config: CoSENTLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        cosines, targets = _cosines_and_labels(queries, documents, labels, "cosent")
        total = order_loss(cosines / self.temperature(), targets)
        return LossParts(total, {"cosent": total.detach()})


class AngleLoss(Loss):
    """AnglE (Li and Li, 2023, 2309.12871): the loss of CoSENT on the similarity of two complex vectors.

    With the first half of the unit embeddings as real and the second as imaginary parts, q = a + bi and d = c + di:
    s = |sum(a c + b d) + sum(b c - a d)|. The last coordinate of an odd width is paired with 0. Equal to
    sentence-transformers' AnglELoss with scale 1 / tau. Only the first B documents are used, and labels are required.
    Term: `angle`.
    """

    config: AngleLossConfig

    def __init__(self, config: AngleLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        targets = require_labels(labels, "angle")
        left, right = (l2(vectors) for vectors in promoted(queries, documents[: len(queries)]))
        if left.shape[1] % 2:
            left, right = (pad(vectors, (0, 1)) for vectors in (left, right))
        (left_real, left_imaginary), (right_real, right_imaginary) = (side.chunk(2, dim=1) for side in (left, right))
        real = (left * right).sum(dim=1)
        imaginary = (left_imaginary * right_real - left_real * right_imaginary).sum(dim=1)
        total = order_loss((real + imaginary).abs() / self.temperature(), targets.to(left.device, left.dtype))
        return LossParts(total, {"angle": total.detach()})


def order_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return log(1 + sum over all (i, j) with labels_i > labels_j of exp(scores_j - scores_i)), a scalar.

    Args:
        scores: (B,) similarities divided by the temperature.
        labels: (B,).
    """
    labels, order = labels.sort(descending=True)
    scores = scores[order]
    above = torch.searchsorted(-labels, -labels)  # (B,) number of rows with a higher label
    sums = (-scores).logcumsumexp(dim=0)  # of exp(-score) over the rows up to each
    lower = above > 0
    if not bool(lower.any()):
        return scores.sum() * 0
    terms = scores[lower] + sums[above[lower] - 1]
    return torch.cat([terms.new_zeros(1), terms]).logsumexp(dim=0)


def _cosines_and_labels(queries: Tensor, documents: Tensor, labels: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """Return cosines and labels of the pairs, (B,) each, in float32 or better."""
    targets = require_labels(labels, name)
    left, right = (l2(vectors) for vectors in promoted(queries, documents[: len(queries)]))
    return (left * right).sum(dim=1), targets.to(left.device, left.dtype)


def _is_constant(values: Tensor, centered: Tensor) -> bool:
    return bool(centered.detach().square().sum() <= CONSTANT * values.detach().square().sum())

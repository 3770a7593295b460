"""Regression of the cosine of a pair on its graded label: squared error and correlation."""

# B pairs in a batch, D dimensions

from torch import Tensor

from bsc_core.losses.base import Loss, LossParts, promoted, require_labels
from bsc_core.losses.kernel.normalization import l2

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


def _cosines_and_labels(queries: Tensor, documents: Tensor, labels: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """Return cosines and labels of the pairs, (B,) each, in float32 or better."""
    targets = require_labels(labels, name)
    left, right = (l2(vectors) for vectors in promoted(queries, documents[: len(queries)]))
    return (left * right).sum(dim=1), targets.to(left.device, left.dtype)


def _is_constant(values: Tensor, centered: Tensor) -> bool:
    return bool(centered.detach().square().sum() <= CONSTANT * values.detach().square().sum())

"""Losses with a margin: triplet, contrastive and online contrastive (margins paper)."""

# B pairs in a batch, D dimensions

import warnings

import torch
from torch import Tensor

from bsc_core.config import MarginSection
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts, promoted, require_labels
from bsc_core.losses.kernel.normalization import l2


class SaturatedMarginWarning(UserWarning):
    """The margin is 2 or more, and no cosine distance exceeds 2."""


class _Margin(Loss):
    """Base of the margin losses: warns of margins that no distance exceeds, and computes distances."""

    def __init__(self, config: MarginSection, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        if config.margin_warning is not None:
            warnings.warn(
                f"{config.margin_warning} Usual margins are 0.1 to 0.5.", SaturatedMarginWarning, stacklevel=3
            )

    def _distances(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the distance of each pair, (B,), in float32 or better; Euclidean with gradient 0 for equal vectors."""
        left, right = promoted(left, right)
        if self.config.distance == "euclidean":
            lengths: Tensor = torch.linalg.vector_norm(left - right, dim=1)
            return lengths
        return 1 - (l2(left) * l2(right)).sum(dim=1)


class TripletLoss(_Margin):
    """Triplet loss: mean or sum of max(0, d(q, a+) - d(q, a-) + margin) (margins paper, section 3.3).

    `documents` are (2B or more, D); row B + i is the negative of query i. With the cosine distance, margins of 2 or
    more differ only by a constant: 5, 7.5 and 10 give the same gradient. Term: `triplet`.
    """

    reads_labels = False

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        pairs = len(queries)
        if len(documents) < 2 * pairs:
            raise InputError(f"triplet has {len(documents) - pairs} negatives for {pairs} queries; give one for each")
        positive = self._distances(queries, documents[:pairs])
        negative = self._distances(queries, documents[pairs : 2 * pairs])
        total = _reduced((positive - negative + self.config.margin).relu(), self.config.reduction)
        return LossParts(total, {"triplet": total.detach()})


class _LabeledMargin(_Margin):
    """Base of the losses on distances d of labeled pairs; positive is a label above the threshold (strictly)."""

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        is_positive = require_labels(labels, self.config.name).to(queries.device) > self.threshold
        return self._of_pairs(self._distances(queries, documents[: len(queries)]), is_positive)

    def _of_pairs(self, distances: Tensor, is_positive: Tensor) -> LossParts:
        raise NotImplementedError


class ContrastiveLoss(_LabeledMargin):
    """Contrastive loss (Hadsell et al., 2006): 0.5 * (y d^2 + (1 - y) max(0, margin - d)^2), mean or sum.

    Terms: `positives` and `negatives`, which add up to the total.
    """

    def _of_pairs(self, distances: Tensor, is_positive: Tensor) -> LossParts:
        apart = (self.config.margin - distances).relu()
        losses = 0.5 * torch.where(is_positive, distances.square(), apart.square())
        total = _reduced(losses, self.config.reduction)
        positives = _reduced(losses.detach() * is_positive, self.config.reduction)
        return LossParts(total, {"positives": positives, "negatives": total.detach() - positives})


class OnlineContrastiveLoss(_LabeledMargin):
    """Contrastive loss on the hard pairs of the batch (sentence-transformers; margins paper).

    The sum of d^2 over hard positives and of max(0, margin - d)^2 over hard negatives. Hard positives are farther
    apart than the closest negative, hard negatives closer than the farthest positive. If the other side has at most
    one pair, the limit is the mean distance of the same side, as in the released code. reduction "mean" divides by the
    number of hard pairs. Terms: `hard_positives` and `hard_negatives`, which add up to the total; 0 without hard pairs.
    """

    def _of_pairs(self, distances: Tensor, is_positive: Tensor) -> LossParts:
        near, far = distances[is_positive], distances[~is_positive]
        hard_far = far[far < (near.max() if len(near) > 1 else _mean(far))]
        hard_near = near[near > (far.min() if len(far) > 1 else _mean(near))]
        positives, negatives = hard_near.square().sum(), (self.config.margin - hard_far).relu().square().sum()
        if self.config.reduction == "mean":
            hard = max(1, len(hard_near) + len(hard_far))
            positives, negatives = positives / hard, negatives / hard
        terms = {"hard_positives": positives.detach(), "hard_negatives": negatives.detach()}
        return LossParts(positives + negatives, terms)


def _mean(values: Tensor) -> Tensor:
    """Return the mean, 0 for an empty tensor."""
    return values.mean() if len(values) else values.new_zeros(())


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    return losses.mean() if reduction == "mean" else losses.sum()

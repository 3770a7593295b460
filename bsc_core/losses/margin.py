"""Losses with a margin: triplet, contrastive, and contrastive on the hard pairs alone (as in the margins paper)."""

# B pairs in a batch, D dimensions

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from bsc_core.config import ContrastiveLossConfig, MarginSection, OnlineContrastiveLossConfig, TripletLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.checks import check_batch, require_labels
from bsc_core.losses.normalization import l2
from bsc_core.losses.parts import LossParts


class SaturatedMarginWarning(UserWarning):
    """A margin that no two vectors can meet."""


def distances(left: Tensor, right: Tensor, distance: str) -> Tensor:
    """Distance of each left from its right: 1 - cosine in [0, 2], or Euclidean on the raw embeddings.

    left, right: (B, D). Returns (B,) in float32 or better. The Euclidean distance of equal vectors is 0 and has a
    gradient of 0.
    """
    precision = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    left, right = left.to(precision), right.to(precision)
    if distance == "euclidean":
        lengths: Tensor = torch.linalg.vector_norm(left - right, dim=1)
        return lengths
    return 1 - (l2(left) * l2(right)).sum(dim=1)


class _Margin(nn.Module):
    """What the three share: the warning, and distances outside autocast."""

    def __init__(self, config: MarginSection) -> None:
        super().__init__()
        if config.saturated:
            warnings.warn(
                f"margin is {config.margin:g}, but cosine distances never exceed 2, so that no pair can ever meet it "
                "(all such triplet losses are one, up to a constant); choose a smaller margin, such as 0.1 to 0.5",
                SaturatedMarginWarning,
                stacklevel=4,
            )
        self.margin, self.distance = config.margin, config.distance

    def _apart(self, left: Tensor, right: Tensor) -> Tensor:
        with torch.autocast(left.device.type, enabled=False):
            return distances(left, right, self.distance)


class TripletLoss(_Margin):
    """Triplet loss: mean or sum of max(0, d(q, a+) - d(q, a-) + margin) (margins paper, section 3.3).

    With the cosine distance a margin of 2 or more is never met: 5, 7.5 and 10 differ by a constant and train alike.
    """

    def __init__(self, config: TripletLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config)
        self.config = config

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch. queries: (B, D), documents: (2B or more, D): row B + i is query i's negative.

        labels are not used. Returns total and the term `triplet`. Raises InputError on other input.
        """
        check_batch(queries, documents, None)
        pairs = len(queries)
        if len(documents) < 2 * pairs:
            raise InputError(f"triplet has {len(documents) - pairs} negatives for {pairs} queries; give one for each")
        nearer = self._apart(queries, documents[:pairs])
        farther = self._apart(queries, documents[pairs : 2 * pairs])
        total = _reduced((nearer - farther + self.margin).relu(), self.config.reduction)
        return LossParts(total, {"triplet": total.detach()})


class ContrastiveLoss(_Margin):
    """Contrastive loss (Hadsell et al., 2006): 0.5 * (y d^2 + (1 - y) max(0, margin - d)^2), mean or sum.

    y is 1 where the label is above the threshold, strictly, and d the distance of query and document.
    """

    def __init__(self, config: ContrastiveLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config)
        self.config = config
        self.threshold = threshold if config.threshold is None else config.threshold

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch. queries: (B, D), documents: (B + K, D), of which the first B count, labels: (B,).

        Returns total and the terms `positives` and `negatives`, which add up to it. Raises InputError on other input.
        """
        check_batch(queries, documents, labels)
        together = require_labels(labels, "contrastive").to(queries.device) > self.threshold
        apart = self._apart(queries, documents[: len(queries)])
        losses = 0.5 * torch.where(together, apart.square(), (self.margin - apart).relu().square())
        total = _reduced(losses, self.config.reduction)
        positives = _reduced(losses.detach() * together, self.config.reduction)
        return LossParts(total, {"positives": positives, "negatives": total.detach() - positives})


class OnlineContrastiveLoss(_Margin):
    """Contrastive loss on the hard pairs of the batch: sum of d^2 over hard positives and max(0, margin - d)^2 over
    hard negatives (sentence-transformers; margins paper).

    Hard positives are farther than the nearest negative, hard negatives nearer than the farthest positive. With at
    most one pair on the other side, that side's limit is the own mean distance instead, as released. The released sum
    grows with the batch; "mean" divides by the number of hard pairs.
    """

    def __init__(self, config: OnlineContrastiveLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config)
        self.config = config
        self.threshold = threshold if config.threshold is None else config.threshold

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch. queries: (B, D), documents: (B + K, D), of which the first B count, labels: (B,).

        Returns total and the terms `hard_positives` and `hard_negatives`, which add up to it. Without a hard pair the
        loss is 0. Raises InputError on other input.
        """
        check_batch(queries, documents, labels)
        together = require_labels(labels, "online_contrastive").to(queries.device) > self.threshold
        apart = self._apart(queries, documents[: len(queries)])
        near, far = apart[together], apart[~together]
        hard_far = far[far < (near.max() if len(near) > 1 else _mean(far))]
        hard_near = near[near > (far.min() if len(far) > 1 else _mean(near))]
        positives, negatives = hard_near.square().sum(), (self.margin - hard_far).relu().square().sum()
        if self.config.reduction == "mean":
            hard = max(1, len(hard_near) + len(hard_far))
            positives, negatives = positives / hard, negatives / hard
        terms = {"hard_positives": positives.detach(), "hard_negatives": negatives.detach()}
        return LossParts(positives + negatives, terms)


def _mean(values: Tensor) -> Tensor:
    """The mean; of nothing, 0, to which nothing is compared."""
    return values.mean() if len(values) else values.new_zeros(())


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    return losses.mean() if reduction == "mean" else losses.sum()

"""Every loss by name, and a loss from its config."""

from __future__ import annotations

from typing import Any

from torch import nn

from bsc_core.config import CombinedLossConfig, LossConfig, SoftmaxLossConfig, SupConLossConfig
from bsc_core.losses.bsc import BSCLoss
from bsc_core.losses.classification import SoftmaxLoss
from bsc_core.losses.combined import CombinedLoss
from bsc_core.losses.in_batch import MNRLoss, SimCSELoss
from bsc_core.losses.margin import ContrastiveLoss, OnlineContrastiveLoss, TripletLoss
from bsc_core.losses.regression import CosineMSELoss, PearsonLoss
from bsc_core.losses.supervised import SupConLoss

LOSSES: dict[str, type[nn.Module]] = {
    "bsc": BSCLoss,
    "combined": CombinedLoss,
    "mse": CosineMSELoss,
    "pearson": PearsonLoss,
    "softmax": SoftmaxLoss,
    "supcon": SupConLoss,
    "triplet": TripletLoss,
    "contrastive": ContrastiveLoss,
    "online_contrastive": OnlineContrastiveLoss,
    "simcse": SimCSELoss,
    "mnrl": MNRLoss,
}


def build_loss(config: LossConfig, *, threshold: float = 0.5, dimensions: int | None = None) -> nn.Module:
    """The loss that a config names.

    threshold: of the data; a pair is positive when its label is above it, unless the config names one of its own.
    dimensions: width of the embeddings, for losses with a head; None: the head takes it from the first batch.
    Call the result as loss(queries, documents, labels=None, **ids) -> LossParts.
    """
    if isinstance(config, CombinedLossConfig):
        parts = [build_loss(part.loss, threshold=threshold, dimensions=dimensions) for part in config.summands]
        return CombinedLoss(config, parts, threshold)
    arguments: dict[str, Any] = {"threshold": threshold}
    if isinstance(config, SoftmaxLossConfig | SupConLossConfig):
        arguments["dimensions"] = dimensions
    return LOSSES[config.name](config, **arguments)

"""Losses: pure functions of embeddings, labels and ids, made from their configs."""

from __future__ import annotations

from torch import nn

from bsc_core.config import LossConfig
from bsc_core.losses.bsc import BSCLoss
from bsc_core.losses.parts import LossParts

LOSSES = {"bsc": BSCLoss}


def build_loss(config: LossConfig, *, threshold: float = 0.5) -> nn.Module:
    """The loss that a config names.

    threshold: of the data; a pair is positive when its label is above it, unless the config names one of its own.
    Call the result as loss(queries, documents, labels=None, **ids) -> LossParts.
    """
    return LOSSES[config.name](config, threshold=threshold)


__all__ = ["LOSSES", "BSCLoss", "LossParts", "build_loss"]

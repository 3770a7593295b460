"""Losses: pure functions of embeddings, labels and ids, made from their configs; torch comes with the first one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.losses.bsc import BSCLoss
    from bsc_core.losses.build import LOSSES, build_loss
    from bsc_core.losses.classification import SoftmaxLoss
    from bsc_core.losses.combined import CombinedLoss
    from bsc_core.losses.in_batch import MNRLoss, SimCSELoss
    from bsc_core.losses.margin import ContrastiveLoss, OnlineContrastiveLoss, TripletLoss
    from bsc_core.losses.parts import LossParts
    from bsc_core.losses.regression import CosineMSELoss, PearsonLoss
    from bsc_core.losses.saving import load_loss, save_loss
    from bsc_core.losses.supervised import SupConLoss

_HOMES = {
    "LOSSES": "build",
    "BSCLoss": "bsc",
    "CombinedLoss": "combined",
    "ContrastiveLoss": "margin",
    "CosineMSELoss": "regression",
    "LossParts": "parts",
    "MNRLoss": "in_batch",
    "OnlineContrastiveLoss": "margin",
    "PearsonLoss": "regression",
    "SimCSELoss": "in_batch",
    "SoftmaxLoss": "classification",
    "SupConLoss": "supervised",
    "TripletLoss": "margin",
    "build_loss": "build",
    "load_loss": "saving",
    "save_loss": "saving",
}

__all__ = [
    "LOSSES",
    "BSCLoss",
    "CombinedLoss",
    "ContrastiveLoss",
    "CosineMSELoss",
    "LossParts",
    "MNRLoss",
    "OnlineContrastiveLoss",
    "PearsonLoss",
    "SimCSELoss",
    "SoftmaxLoss",
    "SupConLoss",
    "TripletLoss",
    "build_loss",
    "load_loss",
    "save_loss",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

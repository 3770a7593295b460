"""Losses: functions of embeddings, labels and ids, built from their configs; torch is imported lazily."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.losses.base import LossParts
    from bsc_core.losses.bsc import BSCLoss
    from bsc_core.losses.build import LOSSES, build_loss, load_loss, save_loss
    from bsc_core.losses.classification import SoftmaxLoss
    from bsc_core.losses.combined import CombinedLoss, MatryoshkaLoss
    from bsc_core.losses.in_batch import MNRLoss, SimCSELoss
    from bsc_core.losses.margin import ContrastiveLoss, OnlineContrastiveLoss, TripletLoss
    from bsc_core.losses.regression import AngleLoss, CoSENTLoss, CosineMSELoss, PearsonLoss
    from bsc_core.losses.sigmoid import SigmoidLoss
    from bsc_core.losses.supervised import SupConLoss

__all__ = [
    "LOSSES",
    "AngleLoss",
    "BSCLoss",
    "CoSENTLoss",
    "CombinedLoss",
    "ContrastiveLoss",
    "CosineMSELoss",
    "LossParts",
    "MNRLoss",
    "MatryoshkaLoss",
    "OnlineContrastiveLoss",
    "PearsonLoss",
    "SigmoidLoss",
    "SimCSELoss",
    "SoftmaxLoss",
    "SupConLoss",
    "TripletLoss",
    "build_loss",
    "load_loss",
    "save_loss",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'base' if name == 'LossParts' else 'build'}"), name)


def __dir__() -> list[str]:
    return __all__

"""Which rows a loss trains on, and what it refuses before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bsc_core.config import (
    BSCLossConfig,
    CombinedLossConfig,
    MNRLConfig,
    RunConfig,
    SingleLossConfig,
    SoftmaxLossConfig,
    SupConLossConfig,
)
from bsc_core.data.pairs import PairDataset
from bsc_core.data.triplets import triplets
from bsc_core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import nn


def training_rows(config: RunConfig, train: PairDataset) -> PairDataset:
    """The rows that the loss trains on.

    All of them, but the positive ones alone where labelled negatives are switched off, and triplets where the loss
    needs a negative for each query. Raises DataError when the data lack what the loss needs: labels, classes,
    negatives, a positive pair, or a second row.
    """
    source, needs = config.data.train, config.loss.needs
    if "labels" in needs and train.label is None:
        raise DataError(
            f"{source}: {config.loss.name} learns from labels, and these pairs have none; name the column in "
            "data.columns.label, or choose a loss for positives only, such as bsc"
        )
    if "classes" in needs:
        _check_classes(config, train)
    if "negatives" in needs:
        train = triplets(train)
    parts = _parts(config)
    if any(isinstance(part, BSCLossConfig | MNRLConfig) for part in parts) and not train.positive.any():
        raise DataError(
            f"{source}: no pair has a label above threshold {config.data.threshold:g}; "
            "lower data.threshold or check label_min and label_max"
        )
    if not keeps_negatives(config):
        train = train.take(np.flatnonzero(train.positive).astype(np.int32))
    if len(train) < 2:
        raise DataError(f"{source}: one training pair is left; a batch needs at least 2 to hold a negative")
    return train


def keeps_negatives(config: RunConfig) -> bool:
    """Whether rows labelled negative are trained on: a loss that leaves them out is alone in the run."""
    return any(getattr(part, "labelled_negatives", True) for part in _parts(config))


def check_views(config: RunConfig, model: nn.Module) -> None:
    """Refuse a loss that needs two dropout views of a text for an encoder without dropout. Raises ConfigError."""
    from bsc_core.training.step import has_dropout

    if "views" in config.loss.needs and not has_dropout(model):
        raise ConfigError(
            f"{config.loss.name} compares two dropout views of a text, and encoder {config.encoder.name} has no "
            "dropout; choose a transformer, such as bundled, or another loss"
        )


def _check_classes(config: RunConfig, train: PairDataset) -> None:
    source = config.data.train
    if train.classes is None:
        raise DataError(
            f"{source}: {config.loss.name} learns from classes, and these pairs have none; name the column in "
            "data.columns.class_label"
        )
    for part in _parts(config):
        if isinstance(part, SoftmaxLossConfig | SupConLossConfig) and int(train.classes.max()) >= part.num_classes:
            raise DataError(
                f"{source}: class {int(train.classes.max())} has no row in a head of {part.num_classes}; "
                "raise loss.num_classes or correct the classes"
            )


def _parts(config: RunConfig) -> list[SingleLossConfig]:
    loss = config.loss
    return [part.loss for part in loss.summands] if isinstance(loss, CombinedLossConfig) else [loss]

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
    train = _without_marked(train)
    if not keeps_negatives(config):
        train = train.take(np.flatnonzero(train.positive).astype(np.int32))
    if len(np.unique(np.concatenate(train.text_columns))) == 1:
        raise DataError(f"{source}: all texts of the training pairs are equal, so there is nothing to tell apart")
    if len(train) < 2:
        raise DataError(f"{source}: one training pair is left; a batch needs at least 2 to hold a negative")
    _check_clusters(config, train)
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


def _without_marked(train: PairDataset) -> PairDataset:
    """Without the rows that are negatives only by a mistake that a person marked, whatever the loss.

    These are rows labelled negative, and triplets, whose wrong document answers the query after all.
    """
    if not len(train.marked_pairs):
        return train
    marks = train.marked_pairs.astype(np.int64) @ [len(train.texts), 1]
    query = train.query.astype(np.int64) * len(train.texts)
    wrong = ~train.positive & np.isin(query + train.document, marks)
    if train.negative is not None:
        wrong |= np.isin(query + train.negative, marks)
    return train.take(np.flatnonzero(~wrong)) if wrong.any() else train


def _check_clusters(config: RunConfig, train: PairDataset) -> None:
    """Refuse more clusters than texts before anything is encoded."""
    batching = config.batching
    texts = len(np.unique(train.query if batching.by == "query" else train.document))
    if batching.strategy == "clusters" and batching.clusters > texts:
        raise DataError(
            f"{config.data.train}: batching.clusters is {batching.clusters} and there are {texts} distinct texts to "
            f"cluster; choose at most {texts}"
        )


def _check_classes(config: RunConfig, train: PairDataset) -> None:
    source = config.data.train
    if train.classes is None:
        raise DataError(
            f"{source}: {config.loss.name} learns from classes, and these pairs have none; name the column in "
            "data.columns.class_label"
        )
    found = np.unique(train.classes)
    for part in _parts(config):
        if isinstance(part, SupConLossConfig) and part.positive_class not in found:
            raise DataError(
                f"{source}: no training pair is of class {part.positive_class} (entailment), and supcon's anchors are "
                "made of these; check the class column, or set loss.positive_class"
            )
        if isinstance(part, SoftmaxLossConfig) and len(found) == 1:
            raise DataError(
                f"{source}: all training pairs are of class {found[0]}, so there is nothing to classify; "
                "check the class column"
            )
        if isinstance(part, SoftmaxLossConfig | SupConLossConfig) and int(train.classes.max()) >= part.num_classes:
            raise DataError(
                f"{source}: class {int(train.classes.max())} has no row in a head of {part.num_classes}; "
                "raise loss.num_classes or correct the classes"
            )


def _parts(config: RunConfig) -> list[SingleLossConfig]:
    loss = config.loss
    return [part.loss for part in loss.summands] if isinstance(loss, CombinedLossConfig) else [loss]

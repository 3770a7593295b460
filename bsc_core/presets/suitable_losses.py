"""Losses that suit a dataset."""

from dataclasses import dataclass

import numpy as np

from bsc_core.config import LOSS_CONFIGS
from bsc_core.data.dataset import PairDataset
from bsc_core.data.generation.negatives import number_of_triplets


@dataclass(frozen=True)
class DataShape:
    """What losses require of a dataset: numbers of positive and negative pairs, labels, classes and triplets.

    labeled: whether rows have labels; graded: whether the labels differ, as regression requires; classes: number of
    distinct classes, 0 without any; triplets: number of rows of query, positive and negative.
    """

    positives: int
    negatives: int
    labeled: bool
    graded: bool
    classes: int
    triplets: int


def shape_of(train: PairDataset) -> DataShape:
    """Return the shape of these pairs."""
    positives = int(train.positive.sum())
    return DataShape(
        positives=positives,
        negatives=len(train) - positives,
        labeled=train.label is not None,
        graded=train.label is not None and len(np.unique(train.label)) > 1,
        classes=0 if train.classes is None else len(np.unique(train.classes)),
        triplets=number_of_triplets(train),
    )


def suitable_losses(shape: DataShape) -> list[str]:
    """Return the names of the losses that can learn from such data, in the order of LOSS_CONFIGS.

    In-batch losses need two positive pairs, regression labels that differ, contrastive losses both kinds of pairs,
    classifiers two classes, triplet loss a negative for a query. SimCSE needs texts alone.
    """
    fits = {
        "bsc": shape.positives > 1,
        "mnrl": shape.positives > 1,
        "combined": shape.graded and shape.positives > 1,
        "mse": shape.graded,
        "pearson": shape.graded,
        "cosent": shape.graded,
        "angle": shape.graded,
        "sigmoid": shape.positives > 0 and shape.positives + shape.negatives > 1,
        "contrastive": shape.positives > 0 and shape.negatives > 0,
        "online_contrastive": shape.positives > 0 and shape.negatives > 0,
        "softmax": shape.classes > 1,
        "supcon": shape.classes > 1,
        "triplet": shape.triplets > 1,
        "simcse": True,
    }
    return [name for name in LOSS_CONFIGS if fits[name]]

"""Which losses the shape of a dataset can feed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bsc_core.config import LOSS_CONFIGS
from bsc_core.data.pairs import PairDataset
from bsc_core.data.triplets import triplets
from bsc_core.errors import DataError


@dataclass(frozen=True)
class DataShape:
    """What a loss asks of a dataset: how many positive and negative pairs, labels, classes and triplets there are.

    labelled: whether there are graded labels; graded: whether they differ, so that there is something to regress on;
    classes: how many distinct classes, 0 without any; triplets: rows of query, right and wrong document.
    """

    positives: int
    negatives: int
    labelled: bool
    graded: bool
    classes: int
    triplets: int


def shape_of(train: PairDataset) -> DataShape:
    """The shape of these pairs."""
    positives = int(train.positive.sum())
    return DataShape(
        positives=positives,
        negatives=len(train) - positives,
        labelled=train.label is not None,
        graded=train.label is not None and len(np.unique(train.label)) > 1,
        classes=0 if train.classes is None else len(np.unique(train.classes)),
        triplets=_triplets(train),
    )


def _triplets(train: PairDataset) -> int:
    try:
        return len(triplets(train))
    except DataError:
        return 0


def fitting_losses(shape: DataShape) -> list[str]:
    """The names of the losses that have something to learn from such data, in the order of LOSS_CONFIGS.

    In-batch losses need two positive pairs, regression labels that differ, the contrastive losses both kinds of
    pairs, the classifiers two classes, triplet loss a wrong document for a query. SimCSE needs texts alone.
    """
    fits = {
        "bsc": shape.positives > 1,
        "mnrl": shape.positives > 1,
        "combined": shape.graded and shape.positives > 1,
        "mse": shape.graded,
        "pearson": shape.graded,
        "contrastive": shape.positives > 0 and shape.negatives > 0,
        "online_contrastive": shape.positives > 0 and shape.negatives > 0,
        "softmax": shape.classes > 1,
        "supcon": shape.classes > 1,
        "triplet": shape.triplets > 1,
        "simcse": True,
    }
    return [name for name in LOSS_CONFIGS if fits[name]]

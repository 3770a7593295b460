"""The numbers of the lesson on batch order: from the shipped histograms and two shipped batches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bsc_core.data.places import sample_data_folder
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons.lesson import seen


@dataclass(frozen=True)
class OrderHardness:
    """How hard the negatives of one batch order are on the sample data.

    edges and shares: histogram of the cosine to the nearest wrong document; closer_share: queries with a wrong document
    nearer than their own; batch_size: pairs in a batch.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    closer_share: float
    batch_size: int


def hardness_of(strategy: str) -> OrderHardness:
    """The shipped measurement of a strategy, `random` or `examples`."""
    found = _shipped()
    return OrderHardness(
        tuple(found["edges"]),
        tuple(found["shares"][strategy]),
        float(found["closer_share"][strategy]),
        int(found["batch_size"]),
    )


@cache
def _shipped() -> dict[str, Any]:
    text = (sample_data_folder() / "thumbnails.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["hardness"]
    return found


def gradient_mass(batch: LabBatch) -> float:
    """Sum of the sizes of all gradients on the similarities of a batch, at the lab's default settings."""
    return float(np.abs(seen(batch).gradient).sum())

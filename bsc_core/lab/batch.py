"""Batches small enough to display every cell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import ConfigError, DataError
from bsc_core.losses.explain import normalize, products

SMALLEST, LARGEST = 4, 16

# B pairs, D dimensions


@dataclass(frozen=True, eq=False)
class LabBatch:
    """4 to 16 pairs with their embeddings.

    Raises:
        DataError: A value has another shape or range.
    """

    title: str
    queries: NDArray[np.float64]  # (B, D) float64, finite, not normalized
    documents: NDArray[np.float64]  # (B, D) float64, finite, not normalized
    labels: NDArray[np.float64]  # (B,) in [0, 1]
    query_texts: tuple[str, ...]  # B texts
    document_texts: tuple[str, ...]  # B texts
    guide: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None  # (B, G) of queries and documents, or None
    false_negatives: tuple[tuple[int, int], ...] = ()  # known ones in other words, each a query and a document

    def __post_init__(self) -> None:
        pairs = len(self.query_texts)
        if not SMALLEST <= pairs <= LARGEST:
            raise DataError(f"the batch has {pairs} pair(s); the lab takes {SMALLEST} to {LARGEST}")
        lengths = {len(self.queries), len(self.documents), len(self.labels), len(self.document_texts)}
        if lengths != {pairs} or self.queries.shape != self.documents.shape or self.queries.ndim != 2:
            raise DataError("queries, documents, labels and texts differ in length; give one row for each pair")
        if self.guide is not None and {len(side) for side in self.guide} != {pairs}:
            raise DataError(f"the guide has another number of vectors than {pairs}; give one for each text")
        if not (np.isfinite(self.queries).all() and np.isfinite(self.documents).all()):
            raise DataError("an embedding contains NaN or infinity; check the encoder")
        if not (np.isfinite(self.labels).all() and self.labels.min() >= 0 and self.labels.max() <= 1):
            raise DataError("a label is outside 0 to 1; scale the labels")

    def __len__(self) -> int:
        return len(self.query_texts)

    @property
    def query_ids(self) -> NDArray[np.int64]:
        """Return (B,) ids, one for each distinct query text."""
        return _text_ids(self.query_texts)

    @property
    def document_ids(self) -> NDArray[np.int64]:
        """Return (B,) ids, one for each distinct document text."""
        return _text_ids(self.document_texts)

    def plain(self) -> dict[str, Any]:
        """Return the batch as lists, for the browser; `guide` holds the cosines of the guide by direction."""
        of_guide = None
        if self.guide is not None:
            queries, documents = (normalize(side, "l2") for side in self.guide)
            of_guide = {name: values.tolist() for name, values in products(queries, documents).items()}
        return {
            "queries": self.queries.tolist(),
            "documents": self.documents.tolist(),
            "labels": self.labels.tolist(),
            "query_texts": list(self.query_texts),
            "document_texts": list(self.document_texts),
            "query_ids": self.query_ids.tolist(),
            "document_ids": self.document_ids.tolist(),
            "guide": of_guide,
            "false_negatives": [list(one) for one in self.false_negatives],
        }


def _text_ids(texts: Sequence[str]) -> NDArray[np.int64]:
    numbers: dict[str, int] = {}
    return np.asarray([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)


def circle_batch(pairs: int = 6, spread: float = 40.0, seed: int = 0, angles: Sequence[int] | None = None) -> LabBatch:
    """Return 4 to 16 queries evenly spaced on a circle, each with a document at a random angle within `spread` degrees.

    Args:
        pairs: 4 to 16.
        spread: 0 to 180; at 0 every document equals its query.
        seed: Of the random angles, 0 or more.
        angles: Instead of the computed ones, the angle in degrees of each query and then of each document, 2 * pairs.

    Raises:
        ConfigError: A value is out of range.
    """
    if not (SMALLEST <= pairs <= LARGEST):
        raise ConfigError(f"pairs is {pairs}; the lab takes {SMALLEST} to {LARGEST}")
    if not (math.isfinite(spread) and 0 <= spread <= 180):
        raise ConfigError(f"spread is {spread:g}; it must be 0 to 180 degrees")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must be 0 or more")
    query_angles = 360 * np.arange(pairs) / pairs
    document_angles = query_angles + np.random.default_rng(seed).uniform(-abs(spread), abs(spread), pairs)
    if angles is not None:
        if len(angles) != 2 * pairs:
            raise ConfigError(f"there are {len(angles)} angles for {pairs} pairs; give one for each query and document")
        query_angles, document_angles = np.asarray(angles, dtype=np.float64).reshape(2, pairs)
    return LabBatch(
        title=f"{pairs} pairs on a circle",
        queries=points_on_circle(query_angles),
        documents=points_on_circle(document_angles),
        labels=np.ones(pairs),
        query_texts=tuple(f"query at {angle:.0f}°" for angle in query_angles % 360),
        document_texts=tuple(
            f"document {number} at {angle:.0f}°" for number, angle in enumerate(document_angles % 360, 1)
        ),
    )


def points_on_circle(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (B, 2) points of length 1 at angles of (B,) degrees."""
    radians = np.deg2rad(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)

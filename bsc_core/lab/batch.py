"""A batch small enough to look at every cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import DataError

SMALLEST, LARGEST = 4, 16

# B pairs, D dimensions


@dataclass(frozen=True, eq=False)
class LabBatch:
    """4 to 16 pairs with their embeddings.

    queries, documents: (B, D) float64, finite, not normalised; labels: (B,) in [0, 1]; query_texts, document_texts: B
    texts each; query_ids, document_ids: (B,) equal where the texts are equal. Raises DataError for anything else.
    """

    title: str
    queries: NDArray[np.float64]
    documents: NDArray[np.float64]
    labels: NDArray[np.float64]
    query_texts: tuple[str, ...]
    document_texts: tuple[str, ...]

    def __post_init__(self) -> None:
        pairs = len(self.query_texts)
        if not SMALLEST <= pairs <= LARGEST:
            raise DataError(f"the batch has {pairs} pair(s); the lab shows {SMALLEST} to {LARGEST}")
        lengths = {len(self.queries), len(self.documents), len(self.labels), len(self.document_texts)}
        if lengths != {pairs} or self.queries.shape != self.documents.shape or self.queries.ndim != 2:
            raise DataError("queries, documents, labels and texts must have one row for each pair")
        if not (np.isfinite(self.queries).all() and np.isfinite(self.documents).all()):
            raise DataError("an embedding holds NaN or infinity; check the encoder")
        if not (np.isfinite(self.labels).all() and self.labels.min() >= 0 and self.labels.max() <= 1):
            raise DataError("a label is outside 0 to 1; scale the labels")

    def __len__(self) -> int:
        return len(self.query_texts)

    @property
    def query_ids(self) -> NDArray[np.int64]:
        """(B,) one number for each distinct query text."""
        return _numbered(self.query_texts)

    @property
    def document_ids(self) -> NDArray[np.int64]:
        """(B,) one number for each distinct document text."""
        return _numbered(self.document_texts)

    def plain(self) -> dict[str, Any]:
        """The batch as lists, for the browser."""
        return {
            "queries": self.queries.tolist(),
            "documents": self.documents.tolist(),
            "labels": self.labels.tolist(),
            "query_texts": list(self.query_texts),
            "document_texts": list(self.document_texts),
            "query_ids": self.query_ids.tolist(),
            "document_ids": self.document_ids.tolist(),
        }


def _numbered(texts: Sequence[str]) -> NDArray[np.int64]:
    numbers: dict[str, int] = {}
    return np.asarray([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)

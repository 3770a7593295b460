"""Texts of the rows of a pair dataset."""

from __future__ import annotations

from bsc_core.data import PairDataset


def texts_of(dataset: PairDataset) -> list[tuple[str, ...]]:
    """Return the texts of each row: query, document and, where there is one, negative."""
    return list(zip(*(dataset.texts.take(column) for column in dataset.text_columns), strict=True))

"""Helpers for the Retrieval page: submit a query, and read the result lists of both models."""

from __future__ import annotations

from typing import Any

import numpy as np


def submit_query(visit, query: str) -> None:
    """Submit a query without waiting for the results."""
    box = visit.page.get_by_role("textbox", name="Search", exact=True).or_(visit.page.get_by_role("searchbox")).first
    box.fill(query)
    box.press("Enter")


def result_lists(visit) -> list[list[int]]:
    """Return the corpus positions of the documents in both lists, best first; empty lists while they are drawn."""
    result: list[list[Any]] = visit.plot(
        "['x', 'x3'].map(axis => (plot._fullData || []).filter(one => one.customdata && (one.xaxis || 'x') === axis)"
        ".flatMap(one => Array.from(one.y).map((rank, i) => [rank, one.customdata[i]])).sort((a, b) => a[0] - b[0]))"
    )
    assert all([rank for rank, _ in one] in ([], list(range(1, 11))) for one in result)
    return [[int(document) for _, document in one] for one in result]


def nearest_documents(vectors: np.ndarray, query: int, corpus: np.ndarray) -> list[int]:
    """Return the corpus positions of the ten documents with the highest cosine to a query."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(unit[corpus] @ unit[query]), kind="stable")[:10].tolist()

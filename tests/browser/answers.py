"""The search box of the Retrieval page, and the two lists that it answers with."""

from __future__ import annotations

from typing import Any

import numpy as np


def search(visit, words: str) -> None:
    """Type a query and wait for nothing."""
    box = visit.page.get_by_role("textbox", name="Search", exact=True).or_(visit.page.get_by_role("searchbox")).first
    box.fill(words)
    box.press("Enter")


def lists(visit) -> list[list[int]]:
    """The documents of the two lists, by their place in the corpus, best first."""
    found: list[list[Any]] = visit.plot(
        "['x', 'x3'].map(axis => plot._fullData.filter(one => one.customdata && (one.xaxis || 'x') === axis)"
        ".flatMap(one => Array.from(one.y).map((rank, at) => [rank, one.customdata[at]])).sort((a, b) => a[0] - b[0]))"
    )
    assert all([rank for rank, _ in one] == list(range(1, 11)) for one in found)
    return [[int(document) for _, document in one] for one in found]


def best(vectors: np.ndarray, query: int, corpus: np.ndarray) -> list[int]:
    """Places in the corpus of the ten documents nearest to a query, by the definition of cosine."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(unit[corpus] @ unit[query]), kind="stable")[:10].tolist()

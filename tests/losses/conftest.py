"""Oracles written from the equations, in NumPy and float64, one cell at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


def slow_directions(
    queries: np.ndarray, documents: np.ndarray, is_positive: np.ndarray, tau: float, normalization: str
) -> tuple[float, float]:
    """L0 and L1 of equations 1, 2 and 5, term by term. documents may have extra rows, which only L0 sees."""
    if normalization == "l2":
        queries, documents = (np.array([row / np.sqrt(row @ row) for row in side]) for side in (queries, documents))
    pairs = len(queries)
    first = second = 0.0
    for i in range(pairs):
        if is_positive[i]:
            own = queries[i] @ documents[i] / tau
            first += np.log(sum(np.exp(queries[i] @ document / tau - own) for document in documents))
            second += np.log(sum(np.exp(query @ documents[i] / tau - own) for query in queries))
    return first / pairs, second / pairs


@pytest.fixture(scope="session")
def slow() -> Callable[..., tuple[float, float]]:
    return slow_directions

"""Small datasets with random vectors, and Algorithm 1 written down as slowly as the paper prints it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset


def make_dataset(queries: list[int], documents: list[int], labels: list[float] | None = None, **options) -> PairDataset:
    """Pairs of the texts "q<number>" and "d<number>"."""
    return PairDataset.from_pairs([f"q{q}" for q in queries], [f"d{d}" for d in documents], labels, **options)


def make_vectors(dataset: PairDataset, *, seed: int = 0, width: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(dataset.texts), width)).astype(np.float32)


def slow_examples(
    config: BatchingConfig, dataset: PairDataset, vectors: np.ndarray, shuffled: list[int]
) -> list[list[int]]:
    """Groups of Algorithm 1 in their order: plain lists and sets, distances sorted in full, no reversal."""
    side = dataset.query if config.group_by == "query" else dataset.document
    wide = vectors.astype(np.float64)

    def distance(one: int, other: int) -> float:
        if config.metric == "l2":
            return float(((wide[one] - wide[other]) ** 2).sum())
        return -float(wide[one] @ wide[other] / np.sqrt((wide[one] @ wide[one]) * (wide[other] @ wide[other])))

    used: set[int] = set()
    groups = []
    for anchor in shuffled:
        if anchor in used:
            continue
        used.add(anchor)
        group = [anchor]
        others = sorted(set(side.tolist()) - {side[anchor]}, key=lambda text: distance(side[anchor], text))
        for text in [side[anchor], *others[: config.neighbors]]:
            for row in shuffled:
                held = {ident for member in group for ident in (dataset.query[member], dataset.document[member])}
                repeats = dataset.query[row] in held or dataset.document[row] in held
                if side[row] != text or row in used or (config.distinct_texts and repeats):
                    continue
                if len(group) < config.group_size:
                    group.append(row)
                    used.add(row)
        groups.append(group)
    return groups


@pytest.fixture(scope="session")
def dataset_of() -> Callable[..., PairDataset]:
    return make_dataset


@pytest.fixture(scope="session")
def vectors_of() -> Callable[..., np.ndarray]:
    return make_vectors


@pytest.fixture(scope="session")
def slow_groups() -> Callable[..., list[list[int]]]:
    return slow_examples

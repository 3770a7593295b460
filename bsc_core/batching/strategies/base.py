"""Input and result of a batching strategy, and the strategies without groups."""

# N rows of the dataset, T distinct texts on the grouped side, U distinct texts, C centroids, D dimensions

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError
from bsc_core.types import Ids, Progress, Vectors


@dataclass(frozen=True, eq=False)
class StrategyInput:
    """Everything that a strategy may read."""

    config: BatchingConfig
    dataset: PairDataset  # N rows
    embeddings: Vectors | None = None  # (U, D), row t for text t of dataset.texts; None if none were given
    seed: int = 0
    epoch: int = 0
    progress: Progress | None = None  # called with (done, total)
    centroids: Vectors | None = None  # (C, D), centroids of the previous epoch, where `clusters` starts

    @cached_property
    def _grouped(self) -> tuple[Ids, Ids]:
        side = self.dataset.query if self.config.group_by == "query" else self.dataset.document
        texts, text_of_row = np.unique(side, return_inverse=True)
        return texts, text_of_row.astype(np.int32)

    @property
    def texts(self) -> Ids:
        """(T,), the distinct texts of the grouped side."""
        return self._grouped[0]

    @property
    def text_of_row(self) -> Ids:
        """(N,), positions in `texts`."""
        return self._grouped[1]

    def required_embeddings(self) -> Vectors:
        """Return the embeddings.

        Raises:
            InputError: No embeddings were given.
        """
        if self.embeddings is None:
            raise InputError(
                f"the strategy {self.config.strategy} compares embeddings, and none were given; encode the texts first"
            )
        return self.embeddings

    def report(self, done: int, total: int) -> None:
        """Report progress, if a callback was given."""
        if self.progress is not None:
            self.progress(done, total)


@dataclass(frozen=True, eq=False)
class StrategyResult:
    """Order and groups of all rows.

    Attributes:
        order: (N,), row numbers in plan order.
        groups: (N,), group id at each position of the order.
        facts: Values shown next to the plan, such as the recall of the search.
        centroids: (C, D), from which the next epoch can start; None if there are none.
        shuffle_batches: Whether the batches cut from the order come in random order.
    """

    order: Ids
    groups: Ids
    facts: dict[str, float | str] = field(default_factory=dict)
    centroids: Vectors | None = None
    shuffle_batches: bool = False

    @classmethod
    def empty(cls) -> StrategyResult:
        """Return the result for a dataset without rows."""
        return cls(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))


Strategy: TypeAlias = Callable[[StrategyInput], StrategyResult]


def plan_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the random generator of a plan; the same seed and epoch give the same plan."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))


def sequential(inputs: StrategyInput) -> StrategyResult:
    """Return the rows in file order, each a group by itself."""
    return _single_rows(np.arange(len(inputs.dataset), dtype=np.int32))


def random(inputs: StrategyInput) -> StrategyResult:
    """Return the rows in random order, each a group by itself."""
    generator = plan_generator(inputs.seed, inputs.epoch)
    return _single_rows(generator.permutation(len(inputs.dataset)).astype(np.int32))


def _single_rows(order: Ids) -> StrategyResult:
    return StrategyResult(order, np.arange(len(order), dtype=np.int32))

"""Batches of a single source, and the order in which the batches of an epoch come.

A source is one file of training pairs: `data.train`, or one of `data.mix`.
"""

# N rows of the dataset, M rows of the plan, S sources

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from bsc_core.batching.strategies.base import Strategy, StrategyInput, StrategyResult
from bsc_core.errors import InputError
from bsc_core.types import Ids

Mixing = Literal["proportional", "round_robin", "temperature"]
BATCH_STREAM = 102
"""Random stream of the order of batches; see `bsc_core.batching.strategies.shingles` for the others."""


@dataclass(frozen=True, eq=False)
class BatchOrder:
    """The order of a plan's batches, and the source of each position where batches hold rows of one source.

    Attributes:
        seed: Seed of the run.
        epoch: Epoch of the plan.
        shuffled: Whether the batches of each source come in random order; otherwise in the order of the plan.
        source: (M,) source of each position of the plan; None where batches may hold rows of several sources.
        mixing: Order of the sources. `proportional`: random, so that each batch is equally likely to be next.
            `round_robin`: the sources take turns, without those that have no batch left. `temperature`: a source with n
            rows is sampled with a probability proportional to n^(1 / temperature), among those with a batch left.
        temperature: At least 1; used by the mixing `temperature`.
    """

    seed: int = 0
    epoch: int = 0
    shuffled: bool = False
    source: Ids | None = None
    mixing: Mixing = "proportional"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        numbers = (self.seed, self.epoch)
        if not all(isinstance(number, int) and number >= 0 for number in numbers) or not self.temperature >= 1:
            raise InputError(f"seed {self.seed}, epoch {self.epoch}, temperature {self.temperature}: out of range")
        if self.mixing not in get_args(Mixing):
            raise InputError(f"mixing is {self.mixing!r}; choose one of {', '.join(get_args(Mixing))}")

    def parts(self, rows: int) -> list[Ids]:
        """Return the positions of each source, or all positions 0 to rows - 1."""
        if self.source is None:
            return [np.arange(rows, dtype=np.int32)]
        _, counts = np.unique(self.source, return_counts=True)
        return np.split(np.argsort(self.source, kind="stable").astype(np.int32), np.cumsum(counts)[:-1])

    def arrange(self, batches: list[list[Ids]]) -> list[Ids]:
        """Return all batches in order.

        Args:
            batches: The batches of each part, in the order of `parts`.
        """
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.epoch, BATCH_STREAM)))
        if self.shuffled:
            batches = [[part[number] for number in generator.permutation(len(part))] for part in batches]
        remaining = [iter(part) for part in batches]
        return [next(remaining[part]) for part in self._turns(batches, generator)]

    def _turns(self, batches: list[list[Ids]], generator: np.random.Generator) -> list[int]:
        """Return the part of each batch of the epoch."""
        counts = [len(part) for part in batches]
        parts = np.repeat(np.arange(len(counts)), counts)
        if len(counts) <= 1:
            return [0] * len(parts)
        if self.mixing == "proportional":
            return list(generator.permutation(parts))
        if self.mixing == "round_robin":
            numbers = np.concatenate([np.arange(count) for count in counts])
            return list(parts[np.lexsort((parts, numbers))])
        # Sampling until a part is used up equals ordering by times with exponential gaps, at the rate of the part.
        rows = np.array([sum(len(batch) for batch in part) for part in batches], dtype=np.float64)
        rates = (rows / rows.max()) ** (1 / self.temperature)
        times = [np.cumsum(generator.exponential(size=count)) / rate for count, rate in zip(counts, rates, strict=True)]
        return list(parts[np.argsort(np.concatenate(times), kind="stable")])


def has_several_sources(inputs: StrategyInput) -> bool:
    """Return whether the rows come from two or more files."""
    source = inputs.dataset.source
    return source is not None and len(np.unique(source)) > 1


def by_source(strategy: Strategy, inputs: StrategyInput) -> tuple[StrategyResult, Ids]:
    """Apply a strategy to the rows of each source, so that no group has rows of two sources.

    Returns:
        The rows of all sources, source by source, and the source of each position, (N,). A fact with different values
        has one entry for each file, counted from 1. Centroids are stacked source by source.

    Raises:
        InputError: A source has a single row, or as the strategy.
    """
    source = inputs.dataset.source
    assert source is not None
    numbers = np.unique(source).tolist()
    orders, groups, results, group = [], [], {}, 0
    for index, number in enumerate(numbers):
        rows = np.flatnonzero(source == number).astype(np.int32)
        if len(rows) == 1:
            raise InputError(
                f"file {number + 1} of the training pairs has one row, which has no negatives in a batch of its own; "
                "set batching.single_source = false, or add rows"
            )
        previous = None if inputs.centroids is None else np.array_split(inputs.centroids, len(numbers))[index]
        try:
            result = strategy(replace(inputs, dataset=inputs.dataset.take(rows), centroids=previous))
        except InputError as error:
            raise InputError(f"file {number + 1} of the training pairs: {error}") from None
        orders.append(rows[result.order])
        groups.append(result.groups + np.int32(group))
        group += int(result.groups.max()) + 1
        results[number] = result
    centroids = [result.centroids for result in results.values() if result.centroids is not None]
    merged = StrategyResult(
        np.concatenate(orders),
        np.concatenate(groups).astype(np.int32),
        _merged_facts({number: result.facts for number, result in results.items()}),
        np.concatenate(centroids) if centroids else None,
        any(result.shuffle_batches for result in results.values()),
    )
    return merged, source[merged.order]


def _merged_facts(facts: Mapping[int, Mapping[str, float | str]]) -> dict[str, float | str]:
    """Return the facts of all sources; one that differs between them once for each."""
    merged: dict[str, float | str] = {}
    for name in dict.fromkeys(name for part in facts.values() for name in part):
        values = {number: part.get(name) for number, part in facts.items()}
        same = len(set(values.values())) == 1
        for number, value in values.items():
            if value is not None:
                merged[name if same else f"{name} of file {number + 1}"] = value
    return merged

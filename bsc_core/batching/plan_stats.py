"""Statistics of a batch plan: its batches and their hardness, their file, and warnings about its settings."""

# M rows of the plan, U distinct texts, D dimensions

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.hardness import Hardness, plan_hardness
from bsc_core.batching.plan import UNREADABLE, BatchPlan
from bsc_core.batching.strategies.clusters import cluster_count
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError
from bsc_core.files import check_arrays, save_arrays
from bsc_core.types import Ids, Vectors

HARDNESS_ARRAYS = {
    "hardest": "hardest",
    "own": "pair_similarity",
    "batch_collisions": "batch_collisions",
    "batch_suspects": "batch_likely_false_negatives",
}
"""Names of the stored arrays, and the fields of `Hardness` that they hold."""
HARDNESS_NUMBERS = ("closer_share", "collisions", "intact")
"""The other fields of `Hardness`."""


@dataclass(frozen=True, eq=False)
class PlanStats:
    """A plan, its batches and their hardness.

    Attributes:
        plan: The plan.
        positions: Positions in the plan's order, one array for each batch.
        hardness: Hardness of the batches.
        seconds: Time to build and evaluate the plan.
    """

    plan: BatchPlan
    positions: tuple[Ids, ...]
    hardness: Hardness
    seconds: float

    @property
    def batches(self) -> list[Ids]:
        """Row numbers of each batch."""
        return [self.plan.order[positions] for positions in self.positions]

    def batch(self, number: int) -> tuple[Ids, Ids]:
        """Return row numbers and group ids of one batch, counted from 0."""
        positions = self.positions[number]
        return self.plan.order[positions], self.plan.groups[positions]

    def group_sizes(self) -> dict[int, int]:
        """Return the number of groups by group size."""
        sizes, counts = np.unique(np.unique(self.plan.groups, return_counts=True)[1], return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    def crossed_pairs(self) -> int:
        """Return the number of pairs of rows that share a batch."""
        return sum(len(batch) * (len(batch) - 1) // 2 for batch in self.positions)

    def hardest_batch(self, dataset: PairDataset) -> int:
        """Return the batch with the highest mean similarity of positive queries and their hardest negatives.

        Batches of less than half the size of the largest one, such as what is left at the end, count only if no other
        batch has such a query.
        """
        counted = dataset.positive[self.plan.order] & ~np.isnan(self.hardness.hardest)
        values = np.where(counted, self.hardness.hardest, 0).astype(np.float64)
        means = [values[batch].sum() / max(1, counted[batch].sum()) for batch in self.positions]
        defined = np.array([bool(counted[batch].any()) for batch in self.positions])
        sizes = np.array([len(batch) for batch in self.positions])
        large = defined & (2 * sizes >= sizes.max(initial=0))
        return int(np.argmax(np.where(large if large.any() else defined, means, -np.inf)))

    def batch_with_most_likely_false_negatives(self) -> int:
        """Return the batch with the most likely false negatives."""
        return int(np.argmax(self.hardness.batch_likely_false_negatives))

    def save(self, path: Path) -> None:
        """Save as an .npz file."""
        lengths = [len(batch) for batch in self.positions]
        facts = {"facts": self.plan.facts, "seconds": self.seconds, "keep_groups": self.plan.keep_groups}
        facts |= {name: getattr(self.hardness, name) for name in HARDNESS_NUMBERS}
        columns: dict[str, NDArray[Any]] = {
            "order": self.plan.order,
            "groups": self.plan.groups,
            "places": np.concatenate(self.positions) if lengths else np.empty(0, dtype=np.int32),
            "lengths": np.array(lengths, dtype=np.int32),
            "facts": np.array(json.dumps(facts)),
        }
        save_arrays(path, columns | {name: getattr(self.hardness, field) for name, field in HARDNESS_ARRAYS.items()})

    @classmethod
    def load(cls, path: Path) -> PlanStats:
        """Load a file written by `save`.

        Raises:
            FileFormatError: The file is not one of plan statistics.
        """
        try:
            check_arrays(path)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                columns = {name: arrays[name] for name in arrays.files}
            facts = json.loads(str(columns["facts"]))
            ends = np.cumsum(columns["lengths"])
            positions = np.split(columns["places"], ends[:-1]) if len(ends) else []
            plan = BatchPlan(columns["order"], columns["groups"], facts["keep_groups"], facts["facts"])
            hardness = {field: columns[name] for name, field in HARDNESS_ARRAYS.items()}
            hardness |= {name: facts[name] for name in HARDNESS_NUMBERS}
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: not plan statistics ({error}); build it again") from error
        return cls(plan, tuple(positions), Hardness(**hardness), facts["seconds"])


def plan_stats(build: Callable[[], BatchPlan], dataset: PairDataset, embeddings: Vectors, batch_size: int) -> PlanStats:
    """Build a plan and compute its statistics.

    Args:
        build: Builds the plan.
        dataset: The dataset of the plan.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        batch_size: Rows in a batch.
    """
    start = time.perf_counter()
    plan = build()
    positions = tuple(plan.positions(batch_size))
    hardness = plan_hardness(plan, dataset, embeddings, batch_size)
    return PlanStats(plan, positions, hardness, time.perf_counter() - start)


def plan_warnings(config: BatchingConfig, dataset: PairDataset) -> list[str]:
    """Return one sentence for each setting that exceeds the dataset."""
    sides = "queries" if config.group_by == "query" else "documents"
    texts = len(np.unique(dataset.query if config.group_by == "query" else dataset.document))
    grouped = config.strategy in ("words", "clusters", "neighbors", "nearest", "communities")
    warnings = []
    if grouped and config.group_size > len(dataset):
        warnings.append(
            f"group_size is {config.group_size:,} and there are {len(dataset):,} rows: no group can reach this size"
        )
    requested = {"nearest": config.neighbors, "neighbors": config.shingle_neighbors}.get(config.strategy, 0)
    name = "neighbors" if config.strategy == "nearest" else "shingle_neighbors"
    if requested > texts - 1 and name in config.model_fields_set:
        warnings.append(
            f"{name} is {requested:,}, but the rows have only {texts:,} distinct {sides}, so each of them is compared "
            "with all others"
        )
    if config.strategy == "clusters" and (clusters := cluster_count(config.clusters, texts)) < config.clusters:
        warnings.append(f"clusters is {config.clusters:,}, and there are only {texts:,} texts, so it is {clusters:,}")
    documents = len(np.unique(dataset.document))
    if config.strategy == "communities" and config.skip_ranks >= documents - 1:
        warnings.append(
            f"skip_ranks is {config.skip_ranks:,} and a query has {documents - 1:,} other documents: no row is linked"
        )
    if config.single_source and (dataset.source is None or len(np.unique(dataset.source)) < 2):
        warnings.append("single_source is on and the rows come from one file: it has no effect")
    return warnings

"""A batch plan: the order in which rows meet, and the group that each belongs to.

A plan is data, a function of (config, dataset, embeddings, seed, epoch). It is cut into batches where it is used.
"""

# M rows of the plan, U distinct texts, D dimensions

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bsc_core.batching.arrays import Formed, Ids, Progress, Vectors
from bsc_core.batching.clusters import clusters
from bsc_core.batching.conflicts import Conflicts, deal_apart
from bsc_core.batching.examples import examples
from bsc_core.batching.neighbours import neighbours
from bsc_core.batching.packing import cut, pack, pieces
from bsc_core.batching.premises import premises
from bsc_core.batching.random import random, sequential
from bsc_core.batching.words import words
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError, InputError, PathError

# What NumPy raises for bytes that are no .npz, a truncated one, or one that holds other arrays.
UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, EOFError, OSError, zipfile.BadZipFile, InputError)


CONFLICT_ARRAYS = tuple(field.name for field in fields(Conflicts))


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """An order of rows with the group of each.

    order: int32 (M,) row numbers. groups: int32 (M,) group id at each place of the order; rows of a group are
    neighbours in the order. keep_groups: whether `batches` keeps groups whole. facts: what the strategy says of
    itself, such as the kind of search and its recall. conflicts: the rows that may not meet in a batch, or None.
    centroids: (C, D) where there are some that the next epoch starts from.
    """

    order: Ids
    groups: Ids
    keep_groups: bool = False
    facts: dict[str, float | str] = field(default_factory=dict)
    conflicts: Conflicts | None = None
    centroids: Vectors | None = None

    def __post_init__(self) -> None:
        _check_columns(self.order, self.groups)

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, batch_size: int) -> list[Ids]:
        """The plan as row arrays of at most `batch_size` rows; every row is in exactly one.

        Cut in sequence, or with keep_groups packed from whole groups, first-fit; groups larger than a batch are cut.
        A batch of a single row, which would have no negatives, joins the one before it (the first joins the second),
        which then holds batch_size + 1 rows. With conflicts no two rows of a batch conflict: rows are dealt to the
        first batch in which they fit, and groups are parted where they must be. Raises InputError when batch_size is
        below 2, or a row conflicts with all others.
        """
        return [self.order[places] for places in self.places(batch_size)]

    def places(self, batch_size: int) -> list[Ids]:
        """As `batches`, but places in the plan's order instead of row numbers."""
        if batch_size < 2:
            raise InputError(
                f"batch_size is {batch_size}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
        if self.conflicts is not None:
            units = pieces(self.groups, batch_size) if self.keep_groups else list(np.arange(len(self))[:, None])
            return deal_apart(units, self.conflicts.of(self.order), batch_size)
        return pack(self.groups, batch_size) if self.keep_groups else cut(len(self), batch_size)

    def intact(self, batch_size: int) -> float | None:
        """Share in [0, 1] of the groups of two or more rows that lie in one batch whole; None when there are none."""
        batch_of_place = np.empty(len(self), dtype=np.int32)
        for batch, places in enumerate(self.places(batch_size)):
            batch_of_place[places] = batch
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        first = np.full(len(sizes), len(self), dtype=np.int32)
        last = np.full(len(sizes), -1, dtype=np.int32)
        np.minimum.at(first, group, batch_of_place)
        np.maximum.at(last, group, batch_of_place)
        several = sizes >= 2
        return float((first == last)[several].mean()) if several.any() else None

    def save(self, path: Path | str) -> None:
        """Write the plan as an .npz file, whole or not at all."""
        path = Path(path)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.partial")
        arrays: dict[str, Any] = {
            "order": self.order,
            "groups": self.groups,
            "keep_groups": np.array(self.keep_groups),
        }
        arrays["facts"] = np.array(json.dumps(self.facts))
        if self.conflicts is not None:
            arrays |= {f"conflict_{name}": getattr(self.conflicts, name) for name in CONFLICT_ARRAYS}
        if self.centroids is not None:
            arrays["centroids"] = self.centroids
        with unfinished.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path | str) -> BatchPlan:
        """Read a plan that `save` wrote. Raises PathError when it is missing, FileFormatError when it is no plan."""
        path = Path(path)
        if not path.is_file():
            raise PathError(f"{path}: there is no such batch plan; build it again")
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                order, groups, keep_groups = arrays["order"], arrays["groups"], bool(arrays["keep_groups"])
                facts = json.loads(str(arrays["facts"])) if "facts" in arrays else {}
                conflicts = None
                if "conflict_own" in arrays:
                    conflicts = Conflicts(*(arrays[f"conflict_{name}"] for name in CONFLICT_ARRAYS))
                centroids = arrays.get("centroids")
            _check_columns(order, groups)
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: not a batch plan ({error}); build it again") from error
        return cls(order, groups, keep_groups, facts, conflicts, centroids)


def _check_columns(order: Ids, groups: Ids) -> None:
    if order.ndim != 1 or order.shape != groups.shape:
        raise InputError(f"order is {order.shape} and groups {groups.shape}; a plan has one group id for each row")
    if order.dtype.kind not in "iu" or groups.dtype.kind not in "iu":
        raise InputError(f"order is {order.dtype} and groups {groups.dtype}; both must be whole numbers")


class Strategy(Protocol):
    """From arrays to an order of all rows and the group of each."""

    def __call__(
        self,
        config: BatchingConfig,
        dataset: PairDataset,
        *,
        embeddings: Vectors | None,
        seed: int,
        epoch: int,
        progress: Progress | None,
    ) -> Formed: ...


STRATEGIES: dict[str, Strategy] = {
    "sequential": sequential,
    "random": random,
    "words": words,
    "clusters": clusters,
    "neighbours": neighbours,
    "examples": examples,
    "premises": premises,
}
NEED_VECTORS = ("clusters", "neighbours", "examples")
"""Strategies that compare embeddings."""


def build_plan(
    config: BatchingConfig,
    dataset: PairDataset,
    embeddings: Vectors | None = None,
    *,
    seed: int,
    epoch: int,
    previous: BatchPlan | None = None,
    progress: Progress | None = None,
) -> BatchPlan:
    """The plan of one epoch: every row of `dataset` exactly once.

    embeddings: float32 (U, D), row t for text t of dataset.texts; only strategies that compare texts need them.
    previous: the plan of the epoch before, from whose centroids `clusters` starts. The same seed, epoch, embeddings and
    previous plan give the same plan. progress is told (done, of) on the way. Raises InputError when embeddings are
    needed and missing, do not match the texts, or are not finite.
    """
    if embeddings is not None and (embeddings.ndim != 2 or len(embeddings) != len(dataset.texts)):
        raise InputError(
            f"embeddings are {embeddings.shape} for {len(dataset.texts)} distinct texts; give one row for each text"
        )
    strategy = STRATEGIES[config.strategy]
    if config.strategy == "clusters" and previous is not None and previous.centroids is not None:
        strategy = partial(clusters, centroids=previous.centroids)
    formed = strategy(config, dataset, embeddings=embeddings, seed=seed, epoch=epoch, progress=progress)
    return BatchPlan(
        formed.order,
        formed.groups,
        keep_groups=config.keep_groups or config.strategy == "premises",
        facts=formed.facts,
        conflicts=_conflicts(config, dataset),
        centroids=formed.centroids,
    )


def _conflicts(config: BatchingConfig, dataset: PairDataset) -> Conflicts | None:
    """All that may not meet where collisions are forbidden, else what a person marked."""
    if config.forbid_collisions:
        return Conflicts.of_dataset(dataset)
    return Conflicts.of_marks(dataset) if len(dataset.marked_pairs) else None

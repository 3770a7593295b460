"""A batch plan: the order in which rows meet, and the group that each belongs to.

A plan is data, a function of (config, dataset, embeddings, seed, epoch). It is cut into batches where it is used.
"""

# M rows of the plan, U distinct texts, D dimensions

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bsc_core.batching.arrays import Groups, Ids, Progress, Vectors
from bsc_core.batching.examples import examples
from bsc_core.batching.packing import cut, pack
from bsc_core.batching.random import random, sequential
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError, InputError, PathError

# What NumPy raises for bytes that are no .npz, a truncated one, or one that holds other arrays.
UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, EOFError, OSError, zipfile.BadZipFile, InputError)


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """An order of rows with the group of each.

    order: int32 (M,) row numbers. groups: int32 (M,) group id at each place of the order; rows of a group are
    neighbours in the order. keep_groups: whether `batches` keeps groups whole.
    """

    order: Ids
    groups: Ids
    keep_groups: bool = False

    def __post_init__(self) -> None:
        _check_columns(self.order, self.groups)

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, batch_size: int) -> list[Ids]:
        """The plan as row arrays of at most `batch_size` rows; every row is in exactly one.

        Cut in sequence, or with keep_groups packed from whole groups, first-fit; groups larger than a batch are cut.
        A batch of a single row, which would have no negatives, joins the one before it (the first joins the second),
        which then holds batch_size + 1 rows. Raises InputError when batch_size is below 2.
        """
        return [self.order[places] for places in self.places(batch_size)]

    def places(self, batch_size: int) -> list[Ids]:
        """As `batches`, but places in the plan's order instead of row numbers."""
        if batch_size < 2:
            raise InputError(
                f"batch_size is {batch_size}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
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
        with unfinished.open("wb") as file:
            np.savez(file, order=self.order, groups=self.groups, keep_groups=np.array(self.keep_groups))
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
            _check_columns(order, groups)
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: not a batch plan ({error}); build it again") from error
        return cls(order, groups, keep_groups)


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
        generator: np.random.Generator,
        progress: Progress | None,
    ) -> Groups: ...


STRATEGIES: dict[str, Strategy] = {"sequential": sequential, "random": random, "examples": examples}


def build_plan(
    config: BatchingConfig,
    dataset: PairDataset,
    embeddings: Vectors | None = None,
    *,
    seed: int,
    epoch: int,
    progress: Progress | None = None,
) -> BatchPlan:
    """The plan of one epoch: every row of `dataset` exactly once.

    embeddings: float32 (U, D), row t for text t of dataset.texts; only strategies that compare texts need them. The
    same seed, epoch and embeddings give the same plan. progress is told (rows done, rows) on the way.
    Raises InputError when embeddings are needed and missing, do not match the texts, or are not finite.
    """
    if embeddings is not None and (embeddings.ndim != 2 or len(embeddings) != len(dataset.texts)):
        raise InputError(
            f"embeddings are {embeddings.shape} for {len(dataset.texts)} distinct texts; give one row for each text"
        )
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    strategy = STRATEGIES[config.strategy]
    order, groups = strategy(config, dataset, embeddings=embeddings, generator=generator, progress=progress)
    return BatchPlan(order, groups, config.keep_groups)

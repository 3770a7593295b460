"""A plan that was cut into batches and measured: what a page looks at, and the file that a child process leaves."""

# M rows of the plan, U distinct texts, D dimensions

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids, Vectors
from bsc_core.batching.hardness import Hardness, plan_hardness
from bsc_core.batching.plan import UNREADABLE, BatchPlan
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError


@dataclass(frozen=True, eq=False)
class MeasuredPlan:
    """A plan, its batches and their hardness.

    places: one array of places in the plan's order for each batch. seconds: what building and measuring took.
    """

    plan: BatchPlan
    places: tuple[Ids, ...]
    hardness: Hardness
    seconds: float

    @property
    def batches(self) -> list[Ids]:
        """Row numbers of each batch."""
        return [self.plan.order[places] for places in self.places]

    def batch(self, number: int) -> tuple[Ids, Ids]:
        """Row numbers of one batch and the group of each, in the plan's order. number: from 0."""
        places = self.places[number]
        return self.plan.order[places], self.plan.groups[places]

    def group_sizes(self) -> dict[int, int]:
        """Rows in a group -> how many groups are so large."""
        sizes, counts = np.unique(np.unique(self.plan.groups, return_counts=True)[1], return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    def crossed_pairs(self) -> int:
        """Pairs of rows that meet in a batch, each counted once."""
        return sum(len(places) * (len(places) - 1) // 2 for places in self.places)

    def hardest_batch(self, dataset: PairDataset) -> int:
        """The batch whose positive queries meet the most similar wrong documents on average."""
        counted = dataset.positive[self.plan.order] & ~np.isnan(self.hardness.hardest)
        values = np.where(counted, self.hardness.hardest, 0).astype(np.float64)
        means = [values[places].sum() / max(1, counted[places].sum()) for places in self.places]
        asked = [bool(counted[places].any()) for places in self.places]
        return int(np.argmax(np.where(asked, means, -np.inf)))

    def most_suspicious_batch(self) -> int:
        """The batch with the most likely false negatives."""
        return int(np.argmax(self.hardness.batch_suspects))

    def save(self, path: Path) -> None:
        """Write it as an .npz file, whole or not at all."""
        hardness, lengths = self.hardness, [len(places) for places in self.places]
        facts = {"facts": self.plan.facts, "seconds": self.seconds, "keep_groups": self.plan.keep_groups}
        facts |= {"closer_share": hardness.closer_share, "collisions": hardness.collisions, "intact": hardness.intact}
        columns: dict[str, NDArray[Any]] = {
            "order": self.plan.order,
            "groups": self.plan.groups,
            "places": np.concatenate(self.places) if lengths else np.empty(0, dtype=np.int32),
            "lengths": np.array(lengths, dtype=np.int32),
            "hardest": hardness.hardest,
            "own": hardness.own,
            "batch_collisions": hardness.batch_collisions,
            "batch_suspects": hardness.batch_suspects,
            "facts": np.array(json.dumps(facts)),
        }
        unfinished = path.with_name(f"{path.stem}.{os.getpid()}.partial")
        try:
            with unfinished.open("wb") as file:
                np.savez(file, **columns)  # type: ignore[arg-type]  # the stub reads every keyword as allow_pickle
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> MeasuredPlan:
        """Read what `save` wrote. Raises FileFormatError when the file is none of these."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
            facts = json.loads(str(found["facts"]))
            places = np.split(found["places"], np.cumsum(found["lengths"])[:-1]) if len(found["lengths"]) else []
            plan = BatchPlan(found["order"], found["groups"], facts["keep_groups"], facts["facts"])
            hardness = Hardness(
                found["hardest"],
                found["own"],
                facts["closer_share"],
                facts["collisions"],
                facts["intact"],
                found["batch_collisions"],
                found["batch_suspects"],
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: not a measured plan ({error}); build it again") from error
        return cls(plan, tuple(places), hardness, facts["seconds"])


def measure_plan(
    build: Callable[[], BatchPlan], dataset: PairDataset, embeddings: Vectors, batch_size: int
) -> MeasuredPlan:
    """Build a plan, cut it into batches and measure them. embeddings: (U, D), row t for text t of dataset.texts."""
    began = time.perf_counter()
    plan = build()
    places = tuple(plan.places(batch_size))
    hardness = plan_hardness(plan, dataset, embeddings, batch_size)
    return MeasuredPlan(plan, places, hardness, time.perf_counter() - began)

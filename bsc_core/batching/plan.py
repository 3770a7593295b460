"""Batch plans: an order of rows, the group of each, and the batches cut from it.

A plan is data, a function of (config, dataset, embeddings, seed, epoch).
"""

# M rows of the plan, U distinct texts, D dimensions

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from bsc_core.batching.conflicts import Conflicts, assign_without_conflicts
from bsc_core.batching.packing import cut, pack, pieces
from bsc_core.batching.sources import BatchOrder, by_source, has_several_sources
from bsc_core.batching.strategies.base import Strategy, StrategyInput, random, sequential
from bsc_core.batching.strategies.clusters import clusters
from bsc_core.batching.strategies.communities import communities
from bsc_core.batching.strategies.cuthill_mckee import cuthill_mckee
from bsc_core.batching.strategies.nearest import nearest
from bsc_core.batching.strategies.shingles import neighbors, premises
from bsc_core.batching.strategies.words import words
from bsc_core.config import BatchingConfig
from bsc_core.config.messages import first_problem
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError, InputError, PathError
from bsc_core.files import MAX_BYTES, MAX_DOCUMENT_BYTES, check_arrays, save_arrays
from bsc_core.types import Ids, Progress, Vectors

# Raised by NumPy for a file that is not .npz, truncated, or has other arrays.
UNREADABLE = (
    *(ValueError, TypeError, AttributeError, KeyError, EOFError, OSError, MemoryError, zipfile.BadZipFile),
    *(zlib.error, RuntimeError, InputError),  # RuntimeError: encrypted, compressed in an unknown way, nested too deeply
)

_FACTS = TypeAdapter(dict[str, Annotated[float, Field(allow_inf_nan=False)] | str])
CONFLICT_ARRAYS = {"own": "ids", "asker": "query_id", "answers": "positives", "starts": "starts"}
"""Names of the stored arrays, and the fields of `Conflicts` that they hold."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """An order of rows with the group of each.

    Attributes:
        order: int32 (M,), row numbers.
        groups: int32 (M,), group id at each position; rows of a group are adjacent.
        keep_groups: Whether `batches` keeps groups together.
        facts: Values reported by the strategy, such as the kind of search and its recall.
        conflicts: Rows that may not be in one batch; None for none.
        centroids: (C, D), initial centroids of the next epoch; None for none.
        batch_order: Order of the batches, and whether each holds rows of one source.
    """

    order: Ids
    groups: Ids
    keep_groups: bool = False
    facts: dict[str, float | str] = field(default_factory=dict)
    conflicts: Conflicts | None = None
    centroids: Vectors | None = None
    batch_order: BatchOrder = field(default_factory=BatchOrder)

    def __post_init__(self) -> None:
        _check_columns(self.order, self.groups)

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, batch_size: int) -> list[Ids]:
        """Return the rows of each batch; every row is in exactly one batch of at most `batch_size` rows.

        Rows are cut in sequence, or with keep_groups packed from complete groups, first fit; groups larger than a batch
        are cut. A single remaining row, which would have no negatives, joins the previous batch (the first joins the
        second), which then has batch_size + 1 rows. With conflicts, each row goes to the first batch in which it
        conflicts with no other, and groups are split where necessary. Batches of a single source are formed source by
        source in the same way. The batches then come in the order of `batch_order`.

        Raises:
            InputError: batch_size is below 2, or a row conflicts with all others.
        """
        return [self.order[positions] for positions in self.positions(batch_size)]

    def positions(self, batch_size: int) -> list[Ids]:
        """Return positions in the plan's order for each batch; see `batches`."""
        if batch_size < 2:
            raise InputError(
                f"batch_size is {batch_size}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
        parts = self.batch_order.parts(len(self))
        return self.batch_order.arrange([self._batches_of(part, batch_size) for part in parts])

    def _batches_of(self, part: Ids, batch_size: int) -> list[Ids]:
        """Return the batches formed of these positions, ascending."""
        groups = self.groups[part]
        if self.conflicts is not None:
            units = pieces(groups, batch_size) if self.keep_groups else list(np.arange(len(part))[:, None])
            constraints = self.conflicts.constraints(self.order[part])
            batches = assign_without_conflicts(units, constraints, batch_size)
        else:
            batches = pack(groups, batch_size) if self.keep_groups else cut(len(part), batch_size)
        return [part[batch] for batch in batches]

    def intact(self, batch_size: int) -> float | None:
        """Return the share in [0, 1] of groups with two or more rows that are in one batch; None without groups."""
        batch_of_position = np.empty(len(self), dtype=np.int32)
        for batch, positions in enumerate(self.positions(batch_size)):
            batch_of_position[positions] = batch
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        first = np.full(len(sizes), len(self), dtype=np.int32)
        last = np.full(len(sizes), -1, dtype=np.int32)
        np.minimum.at(first, group, batch_of_position)
        np.maximum.at(last, group, batch_of_position)
        several = sizes >= 2
        return float((first == last)[several].mean()) if several.any() else None

    def save(self, path: Path | str) -> None:
        """Save the plan as an .npz file."""
        arrays: dict[str, Any] = {"order": self.order, "groups": self.groups}
        arrays |= {"keep_groups": np.array(self.keep_groups), "facts": np.array(json.dumps(self.facts))}
        if self.conflicts is not None:
            arrays |= {f"conflict_{name}": getattr(self.conflicts, key) for name, key in CONFLICT_ARRAYS.items()}
        if self.centroids is not None:
            arrays["centroids"] = self.centroids
        arrays["batch_order"] = np.array(json.dumps(asdict(replace(self.batch_order, source=None))))
        if self.batch_order.source is not None:
            arrays["source"] = self.batch_order.source
        save_arrays(Path(path), arrays)

    @classmethod
    def load(cls, path: Path | str, dataset: PairDataset | None = None) -> BatchPlan:
        """Load a plan written by `save`.

        Args:
            path: The file.
            dataset: The rows of the plan; if given, the plan must have each of them once.

        Raises:
            PathError: The file is missing.
            FileFormatError: The file is not a plan, or not one of these rows.
        """
        path = Path(path)
        if not path.is_file():
            raise PathError(f"{path}: no such batch plan; build it again")
        try:
            check_arrays(path, MAX_BYTES)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                if any(arrays[name].nbytes > MAX_DOCUMENT_BYTES for name in ("facts", "batch_order") if name in arrays):
                    raise ValueError("its facts or its order are too long")
                order, groups, keep_groups = arrays["order"], arrays["groups"], bool(arrays["keep_groups"])
                facts = _FACTS.validate_json(str(arrays["facts"])) if "facts" in arrays else {}
                conflicts = None
                if "conflict_own" in arrays:
                    conflicts = Conflicts(*(arrays[f"conflict_{name}"] for name in CONFLICT_ARRAYS))
                centroids = arrays.get("centroids")
                stored = json.loads(str(arrays["batch_order"])) if "batch_order" in arrays else {}
                batch_order = BatchOrder(**stored | {"source": arrays.get("source")})
            plan = cls(order, groups, keep_groups, facts, conflicts, centroids, batch_order)
            if dataset is not None:
                _check_rows(plan, dataset)
        except UNREADABLE as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else error
            raise FileFormatError(f"{path}: not a batch plan ({reason}); build it again") from error
        return plan


def _check_rows(plan: BatchPlan, dataset: PairDataset) -> None:
    """Raise InputError unless a plan has each row once, and its other arrays belong to these rows and texts."""
    rows, texts, source, conflicts = len(dataset), len(dataset.texts), plan.batch_order.source, plan.conflicts
    if len(plan.order) != rows or not np.array_equal(np.sort(plan.order), np.arange(rows)):
        raise InputError(f"it does not have each of the {rows:,} rows once")
    if source is not None and (source.shape != plan.order.shape or source.dtype.kind not in "iu"):
        raise InputError("its sources are not those of its rows")
    if conflicts is not None and not conflicts.matches(rows, texts):
        raise InputError("its conflicts are not those of its rows")


def _check_columns(order: Ids, groups: Ids) -> None:
    if order.ndim != 1 or order.shape != groups.shape:
        raise InputError(f"order is {order.shape} and groups {groups.shape}; a plan has one group id for each row")
    if order.dtype.kind not in "iu" or groups.dtype.kind not in "iu":
        raise InputError(f"order is {order.dtype} and groups {groups.dtype}; both must be integers")


STRATEGIES: dict[str, Strategy] = {
    "sequential": sequential,
    "random": random,
    "words": words,
    "clusters": clusters,
    "neighbors": neighbors,
    "nearest": nearest,
    "premises": premises,
    "communities": communities,
    "cuthill_mckee": cuthill_mckee,
}
NEED_VECTORS = ("clusters", "neighbors", "nearest", "communities", "cuthill_mckee")
"""Strategies that need embeddings."""
COMPARE_SIDES = ("communities", "cuthill_mckee")
"""Strategies that compare queries with documents; the others compare the texts of the side `group_by`."""


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
    """Build the plan of one epoch, with every row of the dataset exactly once.

    The same seed, epoch, embeddings and previous plan give the same plan.

    Args:
        config: Strategy and settings.
        dataset: The rows.
        embeddings: float32 (U, D), row t for text t of dataset.texts; required by the strategies in NEED_VECTORS.
        seed: Seed of the run.
        epoch: Epoch of the plan.
        previous: Plan of the previous epoch, with the centroids where `clusters` starts.
        progress: Called with (done, total).

    Raises:
        InputError: Embeddings are required and missing, do not match the texts, or are not finite.
    """
    if embeddings is not None and (embeddings.ndim != 2 or len(embeddings) != len(dataset.texts)):
        raise InputError(
            f"embeddings are {embeddings.shape} for {len(dataset.texts)} distinct texts; give one row for each text"
        )
    centroids = None if previous is None else previous.centroids
    inputs = StrategyInput(config, dataset, embeddings, seed, epoch, progress, centroids)
    strategy, source = STRATEGIES[config.strategy], None
    if config.single_source and has_several_sources(inputs):
        result, source = by_source(strategy, inputs)
    else:
        result = strategy(inputs)
    return BatchPlan(
        result.order,
        result.groups,
        keep_groups=config.keep_groups or config.strategy == "premises",
        facts=result.facts,
        conflicts=_conflicts(config, dataset),
        centroids=result.centroids,
        batch_order=BatchOrder(seed, epoch, result.shuffle_batches, source, config.mixing, config.mixing_temperature),
    )


def compared_texts(config: BatchingConfig, dataset: PairDataset) -> Ids:
    """Return the ids of the texts whose vectors a strategy of NEED_VECTORS compares, ascending."""
    if config.strategy in COMPARE_SIDES:
        return np.unique(np.concatenate([dataset.query, dataset.document]))
    return np.unique(dataset.query if config.group_by == "query" else dataset.document)


def _conflicts(config: BatchingConfig, dataset: PairDataset) -> Conflicts | None:
    """Return all conflicts with no_duplicates, otherwise those of marked false negatives."""
    if config.no_duplicates:
        return Conflicts.of_dataset(dataset)
    return Conflicts.of_marked(dataset) if len(dataset.marked_pairs) else None

"""What is odd about a run, as measured on its data, texts and batches and on this machine."""

# U distinct texts

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching import plan_collisions, plan_notes
from bsc_core.batching.arrays import Ids
from bsc_core.config import BatchingConfig, RunConfig
from bsc_core.data import ExperimentData
from bsc_core.data.pairs import PairDataset
from bsc_core.runs import RunStore

CUT_SHARE = 0.05
COLLISION_SHARE = 0.01
REJECTED_SHARE = 0.01
GIB = 2.0**30


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found. lengths: (U,) tokens of each text after cutting. Sizes in bytes."""

    config: RunConfig
    data: ExperimentData
    train: PairDataset
    lengths: NDArray[np.int64]
    batches: tuple[Ids, ...]
    memory_bytes: int
    memory_free_bytes: int
    disk_bytes: int
    disk_free_bytes: int


def oddities(found: Measured, store: RunStore) -> list[str]:
    """One sentence for each thing that one would look at twice; empty for most runs."""
    said = [*_of_room(found), *_of_texts(found), *_of_batches(found), *_of_rows(found)]
    going = [run.id for run in store.list() if run.status().state in ("running", "stopping")]
    if going:
        said.append(f"Run {going[0]} went on meanwhile, so alone this run is faster than told here.")
    chosen = BatchingConfig(**found.config.batching.model_dump(exclude_defaults=True))  # a default asks for nothing
    return said + [f"{note[0].upper()}{note[1:]}." for note in plan_notes(chosen, found.train)]


def _of_room(found: Measured) -> list[str]:
    said = []
    if found.memory_bytes > 0.9 * found.memory_free_bytes:
        said.append(
            f"It takes {_gib(found.memory_bytes)} of memory and {_gib(found.memory_free_bytes)} are free: lower "
            "training.activation_memory or encoder.max_length, or free some."
        )
    if found.disk_bytes > 0.9 * found.disk_free_bytes:
        said.append(
            f"It takes {_gib(found.disk_bytes)} of disk and {_gib(found.disk_free_bytes)} are free: lower "
            "training.keep_checkpoints, or delete runs."
        )
    return said


def _of_texts(found: Measured) -> list[str]:
    longest = found.config.encoder.max_length
    cut = float((found.lengths >= longest).mean())
    if cut <= CUT_SHARE:
        return []
    return [f"{cut:.0%} of the texts reach {longest} tokens, where they are cut; encoder.max_length sets it."]


def _of_batches(found: Measured) -> list[str]:
    crossed, collisions = plan_collisions(found.train, found.batches)
    if crossed == 0 or collisions / crossed <= COLLISION_SHARE:
        return []
    return [
        f"{collisions / crossed:.1%} of the pairs that random batches cross are in truth positive: "
        "batching.forbid_collisions keeps them apart."
    ]


def _of_rows(found: Measured) -> list[str]:
    return [
        f"{report.source}: {len(report.rejected):,} of {report.rows_read:,} rows are rejected; the Data page says why."
        for report in found.data.reports
        if len(report.rejected) > REJECTED_SHARE * report.rows_read
    ]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"

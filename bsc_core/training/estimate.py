"""What a run will cost, told from the runs this machine has already done with the same encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core.config import RunConfig
from bsc_core.data import ExperimentData
from bsc_core.errors import BscError
from bsc_core.runs import RunStore, chain_of

SPEEDS = ("train_characters_per_second", "encode_characters_per_second")


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a run. Each number is None where no earlier run tells it; `source` says where they come from."""

    seconds: float | None
    memory_bytes: int | None
    disk_bytes: int | None
    source: str


def characters(data: ExperimentData) -> tuple[int, int]:
    """Characters one epoch reads, both sides of every training pair, and those of all distinct texts."""
    lengths = np.fromiter(map(len, data.texts.texts), dtype=np.int64, count=len(data.texts))
    train = data.train
    return int(lengths[train.query].sum() + lengths[train.document].sum()), int(lengths.sum())


def measured_speed(summary: dict[str, Any], data: ExperimentData, folder: Path) -> dict[str, Any]:
    """What a finished run tells about the next: characters a second in training and in encoding, and fixed costs.

    summary: what `Journal.summary` returned. folder: the run's folder, for the space it takes.
    """
    seconds, (per_epoch, distinct) = summary["seconds"], characters(data)
    training = seconds.get("train", 0.0) + seconds.get("plan", 0.0) + seconds.get("checkpoint", 0.0)
    encoding = seconds.get("encode", 0.0)
    trained = per_epoch * summary["pairs"] / len(data.train)
    encoded = distinct * summary["texts_encoded"] / len(data.texts)
    return {
        "train_characters_per_second": trained / training if training else None,
        "encode_characters_per_second": encoded / encoding if encoding else None,
        "startup_seconds": max(0.0, seconds["total"] - training - encoding),
        "disk_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


def estimate(config: RunConfig, data: ExperimentData, store: RunStore) -> Estimate:
    """The cost of a run from the newest finished run whose steps cost the same: see `_of_one_cost`."""
    speed = _latest_speed(config, store)
    if speed is None:
        return Estimate(None, None, None, "not measured yet: the first run with this encoder measures it")
    run_id, result = speed
    per_epoch, distinct = characters(data)
    epochs = config.training.epochs
    if config.training.steps:
        pairs = config.training.steps * config.training.batch_size * config.training.accumulation
        epochs = max(1, round(pairs / len(data.train)))
    evaluations = 1 + (epochs if config.evaluation.each_epoch else 1)
    seconds = (
        result["startup_seconds"]
        + epochs * per_epoch / result["train_characters_per_second"]
        + evaluations * distinct / result["encode_characters_per_second"]
    )
    return Estimate(seconds, result["peak_memory_bytes"], result["disk_bytes"], f"measured here in run {run_id}")


def _latest_speed(config: RunConfig, store: RunStore) -> tuple[str, dict[str, Any]] | None:
    wanted = _of_one_cost(config, store)
    for run in store.list():
        try:
            result, other = run.read_json("result"), run.config()
        except BscError:  # written by a version with other fields
            continue
        if not result or not all(result.get(name) for name in SPEEDS):
            continue
        if _of_one_cost(other, store) == wanted:
            return run.id, result
    return None


def _of_one_cost(config: RunConfig, store: RunStore) -> tuple[object, ...]:
    """What runs share whose steps cost the same: the encoder at the start of their chain, and how it is computed."""
    encoder, seen = config.encoder.name, set()
    while (run_id := chain_of(encoder)) is not None and run_id not in seen:
        seen.add(run_id)
        try:
            encoder = store.get(run_id).config().encoder.name
        except BscError:  # that run is gone
            break
    training = config.training
    return encoder, config.encoder.lora is None, training.precision, training.gradient_cache == "always"

"""Expected cost of a run, from finished runs of this machine with the same encoder."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bsc_core.config import RunConfig
from bsc_core.data import DatasetSplits
from bsc_core.errors import BscError
from bsc_core.files import folder_bytes
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESULT
from bsc_core.runs.ids import parent_run_id

SPEEDS = ("train_characters_per_second", "encode_characters_per_second")


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a run, None without a comparable run; `source` is that run, else why there is none."""

    seconds: float | None
    memory_bytes: int | None
    disk_bytes: int | None
    source: str


def characters(data: DatasetSplits) -> tuple[int, int]:
    """Return the characters of both sides of all training pairs, and those of all distinct texts."""
    lengths = np.fromiter(map(len, data.texts.texts), dtype=np.int64, count=len(data.texts))
    train = data.train
    return int(lengths[train.query].sum() + lengths[train.document].sum()), int(lengths.sum())


def measured_speed(summary: dict[str, Any], data: DatasetSplits, run: Run) -> dict[str, Any]:
    """Return the speed of a finished run in characters per second, its startup time, and the size of its files.

    Args:
        summary: Result of `RunLogger.summary`.
        data: Data of the run.
        run: The run.
    """
    from bsc_core.training.checkpoint import checkpoints  # imports torch, which the New run page does without

    seconds, (per_epoch, distinct) = summary["seconds"], characters(data)
    training = seconds.get("train", 0.0) + seconds.get("plan", 0.0) + seconds.get("checkpoint", 0.0)
    encoding = seconds.get("encode", 0.0)
    trained = per_epoch * summary["pairs"] / len(data.train)
    encoded = distinct * summary["texts_encoded"] / len(data.texts)
    saved = checkpoints(run.checkpoints_folder)
    return {
        "train_characters_per_second": trained / training if training else None,
        "encode_characters_per_second": encoded / encoding if encoding else None,
        "startup_seconds": max(0.0, seconds["total"] - training - encoding - seconds.get("build", 0.0)),
        "disk_bytes": folder_bytes(run.folder),
        "checkpoints": len(saved),
        "checkpoint_bytes": folder_bytes(saved[-1]) if saved else None,
    }


def estimate(config: RunConfig, data: DatasetSplits, store: RunStore) -> Estimate:
    """Estimate the cost of a run from the newest finished run whose steps cost the same; see `_speed`."""
    speed = _speed(config, store)
    if speed is None:
        return Estimate(None, None, None, "No estimate yet. Run a preflight, or launch a first run with this encoder.")
    run_id, result = speed
    per_epoch, distinct = characters(data)
    epochs = config.training.epochs
    if config.training.max_steps:
        pairs = config.training.max_steps * config.training.batch_size * config.training.gradient_accumulation_steps
        epochs = max(1, round(pairs / len(data.train)))
    evaluations = 1 + (epochs if config.evaluation.each_epoch else 1)
    seconds = (
        result["startup_seconds"]
        + epochs * per_epoch / result["train_characters_per_second"]
        + evaluations * distinct / result["encode_characters_per_second"]
    )
    disk = result["disk_bytes"]
    if disk and result.get("checkpoint_bytes"):  # an earlier version did not measure them
        kept = min(config.training.save_total_limit, epochs)
        disk += int((kept - (result.get("checkpoints") or 0)) * result["checkpoint_bytes"])
    return Estimate(seconds, result["peak_memory_bytes"], disk, run_id)


def _speed(config: RunConfig, store: RunStore) -> tuple[str, dict[str, Any]] | None:
    """Return id and result of the newest comparable run, preferably a complete one, and one on the same data."""
    wanted = _cost_key(config, store)
    found: dict[tuple[bool, bool], tuple[str, dict[str, Any]]] = {}
    for run in store.list():
        try:
            result, other, state = run.read_json(RESULT), run.config(), run.status().state
        except BscError:  # written by a version with other fields
            continue
        if not result or not all(result.get(name) for name in SPEEDS) or _cost_key(other, store) != wanted:
            continue
        rank = (state != "done", other.data.train != config.data.train)  # a stopped run has fewer files
        found.setdefault(rank, (run.id, result))
        if not any(rank):
            break
    return found[min(found)] if found else None


def _cost_key(config: RunConfig, store: RunStore) -> tuple[object, ...]:
    """Return a key that is equal for runs whose steps cost the same.

    It has the initial encoder, LoRA, frozen layers, precision and caching.
    """
    encoder, seen = config.encoder.name, set()
    while (run_id := parent_run_id(encoder)) is not None and run_id not in seen:
        seen.add(run_id)
        try:
            encoder = store.get(run_id).config().encoder.name
        except BscError:  # the run was deleted
            break
    training, lora = config.training, config.encoder.lora is None
    return encoder, lora, config.encoder.freeze_layers, training.precision, training.gradient_cache == "always"

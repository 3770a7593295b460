"""A saved state of a run: written aside, synced and renamed, so that a crash leaves the last good one.

A checkpoint is a folder `step-000120` with the encoder (a plain sentence-transformers folder), and the state of the
loss, optimiser, schedule and random generators; reading it executes no pickled code. Its `progress.json` says where it
stands, and the size and digest of every other file.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from bsc_core.config import RunConfig
from bsc_core.encoders import eval_mode, save_model
from bsc_core.encoders.lora import lora_state
from bsc_core.errors import CheckpointError, TrainingError
from bsc_core.files import sync as _sync
from bsc_core.training.trainer import Start, StepReport, Trainer

PROBED = 8  # texts
KEPT = 2  # the one before stays, in case the newest turns out to be damaged
RESTORED = ("optimizer", "schedule", "random", "cuda_random", "scaler")  # by the trainer
UNREADABLE = (
    *(OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError),
    *(SafetensorError, pickle.UnpicklingError),
)
PROGRESS = "progress.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was read.

    start: where training goes on. best, best_epoch: the dev metric of the kept model and its epoch, None and 0 before
    there is one. ends_epoch: whether the epoch's last step was done. loss, memory, lora: state of the loss, the vectors
    that the steps left, (U, D), or None, and the low-rank matrices with the weights they are added to, or None. data:
    digest of the rows that the run read, empty where it was not told.
    """

    folder: Path
    start: Start
    ends_epoch: bool
    best: float | None
    best_epoch: int
    loss: dict[str, Any]
    memory: np.ndarray[Any, Any] | None
    lora: dict[str, Any] | None
    data: str = ""

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"


def save_checkpoint(
    folder: Path,
    trainer: Trainer,
    report: StepReport,
    *,
    keep: int = KEPT,
    best: tuple[float | None, int] = (None, 0),
    made_by: str = "",
    data: str = "",
) -> Path:
    """Write the state after a step under `folder` and drop all but the newest `keep`. Returns its folder.

    best: the best dev metric so far and its epoch. made_by, data: of `fingerprint` and `digest_of`, what the checkpoint
    is told by later.
    """
    model, loss = trainer.accelerator.unwrap_model(trainer.model), trainer.accelerator.unwrap_model(trainer.loss)
    target = folder / f"step-{report.step:06d}"
    with _aside(target) as aside:
        save_model(model, aside / "model", card=f"Checkpoint of a BSC Lab run after step {report.step}.")
        state = {
            **trainer.state(),
            "loss": loss.state_dict(),
            "memory": None if trainer.memory is None else torch.from_numpy(trainer.memory),
            "lora": lora_state(model),
        }
        torch.save(state, aside / "state.pt")
        names = ("step", "steps", "epoch", "position", "ends_epoch", "last")
        progress = {
            **{name: getattr(report, name) for name in names},
            "best": best[0],
            "best_epoch": best[1],
            "made_by": made_by,
            "data": data,
            "files": _files_of(aside),
        }
        (aside / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")
    earlier = [path for path in checkpoints(folder) if _step_of(path) <= report.step]  # a later one was not readable
    for old in earlier[:-keep]:
        shutil.rmtree(old)
    return target


def fingerprint(config: RunConfig) -> str:
    """What tells the checkpoints of a run with this config from those of another, in hexadecimal."""
    chosen = config.model_dump_json(exclude={"name"}, exclude_defaults=True)
    return hashlib.sha256(chosen.encode()).hexdigest()[:16]


def _files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 (hex) of each file of a checkpoint, by its name under the folder, but progress.json."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / PROGRESS:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    return found


def _check_files(folder: Path, told: dict[str, dict[str, Any]]) -> None:
    """Raises ValueError, naming the file, where one of those told is not there or not as it was written."""
    found = _files_of(folder)
    for name, facts in told.items():
        if name not in found:
            raise ValueError(f"{name} is missing")
        if found[name] != facts:
            raise ValueError(f"{name} is not as it was written")


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` when it is whole and on the disk; else nothing is left of it."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    for left in target.parent.glob(".step-*"):  # by a process that was killed: a run has one that writes
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for path in (*aside.rglob("*"), aside):
            _sync(path)
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync(target.parent)


def check_finite(trainer: Trainer, report: StepReport) -> None:
    """Refuse a model whose weights, or vectors of some texts, are not finite, before a good state makes way for it.

    Raises TrainingError, naming the step.
    """
    texts = np.arange(min(PROBED, len(trainer.forward.tokens)))
    with eval_mode(trainer.model), torch.no_grad():
        finite = bool(torch.isfinite(trainer.forward.embed(texts)).all())
    if not finite or not all(bool(torch.isfinite(weights).all()) for weights in trainer.model.parameters()):
        raise TrainingError(
            f"step {report.step}: the encoder's numbers are not finite any more; lower learning_rate (what was saved "
            "before is kept)"
        )


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints under `folder`, oldest first."""
    found = (path for path in folder.glob("step-*") if (path / PROGRESS).is_file())
    return sorted(found, key=lambda path: (_step_of(path), path.name))


def _step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name; -1 where it is not one of ours."""
    number = checkpoint.name.removeprefix("step-")
    return int(number) if number.isdecimal() else -1


def last_checkpoint(folder: Path, made_by: str = "") -> Checkpoint | None:
    """The newest checkpoint under `folder` that can be read; one that cannot is named, and the one before is used.

    made_by: see `read_checkpoint`. None where there is none at all. Raises CheckpointError when there are some and none
    can be read.
    """
    found = checkpoints(folder)
    damaged = None
    for path in reversed(found):
        try:
            return read_checkpoint(path, made_by)
        except CheckpointError as error:
            print(f"{error}; the one before it is used", file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
            damaged = error
    if damaged is not None:
        raise CheckpointError(f"{folder}: none of its {len(found)} checkpoint(s) can be read; start the run anew")
    return None


def read_checkpoint(folder: Path, made_by: str = "") -> Checkpoint:
    """The state in a checkpoint's folder. Raises CheckpointError when a file is damaged, or it is of something else.

    made_by: the fingerprint that it must have, where both are known.
    """
    try:
        progress = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        other = progress.get("made_by", "")
        if made_by and other and other != made_by:
            raise CheckpointError(f"{folder}: this checkpoint is of a run with another config")
        if "files" in progress:
            _check_files(folder, progress["files"])
        else:
            _check_weights(folder / "model")
        state = read_state(folder)
        memory = state["memory"]
        start = Start(
            step=progress["step"],
            epoch=progress["epoch"],
            position=progress["position"],
            last=progress["last"],
            state={name: state[name] for name in ("optimizer", "schedule", "random", "cuda_random")}
            | {"scaler": state.get("scaler")},
        )
        return Checkpoint(
            folder=folder,
            start=start,
            ends_epoch=progress["ends_epoch"],
            best=progress["best"],
            best_epoch=progress["best_epoch"],
            loss=state["loss"],
            memory=None if memory is None else memory.numpy(),
            lora=state.get("lora"),
            data=progress.get("data", ""),
        )
    except UNREADABLE as error:
        raise CheckpointError(f"{folder}: this checkpoint cannot be read ({error})") from None


def _check_weights(model: Path) -> None:
    """Look into the weights of a checkpoint that does not tell its files. Raises ValueError, SafetensorError."""
    found = sorted(model.rglob("*.safetensors"))
    if not found:
        raise ValueError("no weights lie in it")
    for path in found:
        with safe_open(str(path), "pt") as weights:
            weights.keys()


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The loss, optimiser, schedule and random state of a checkpoint. Raises CheckpointError when it is truncated."""
    try:
        state: dict[str, Any] = torch.load(checkpoint / "state.pt", map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise CheckpointError(f"{checkpoint}: this checkpoint cannot be read ({error})") from None
    return state

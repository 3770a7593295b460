"""A saved state of a run: written aside, synced and renamed, so that a crash leaves the last good one.

A checkpoint is a folder `step-000120` with the encoder (a plain sentence-transformers folder), the loss and the
optimiser's state; reading it executes no pickled code.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from bsc_core.encoders import save_model
from bsc_core.errors import CheckpointError
from bsc_core.training.trainer import StepReport, Trainer


def save_checkpoint(folder: Path, trainer: Trainer, report: StepReport, *, keep: int = 1) -> Path:
    """Write the state after a step under `folder` and drop all but the newest `keep`. Returns its folder."""
    target = folder / f"step-{report.step:06d}"
    aside = folder / f".{target.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    model, loss = trainer.accelerator.unwrap_model(trainer.model), trainer.accelerator.unwrap_model(trainer.loss)
    save_model(model, aside / "model", card=f"Checkpoint of a BSC Lab run after step {report.step}.")
    state = {
        "loss": loss.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    torch.save(state, aside / "state.pt")
    progress = {"step": report.step, "steps": report.steps, "epoch": report.epoch, "ends_epoch": report.ends_epoch}
    (aside / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
    for path in (path for path in aside.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints under `folder`, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "progress.json").is_file())


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The loss, optimiser and random state of a checkpoint. Raises CheckpointError when it is truncated."""
    try:
        state: dict[str, Any] = torch.load(checkpoint / "state.pt", map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"{checkpoint}: this checkpoint cannot be read ({error}); use an older one") from None
    return state

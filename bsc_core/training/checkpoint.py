"""Checkpoints of a run, and resuming from them; written atomically, so that a crash leaves the last good one.

A checkpoint is a folder `step-000120` with the encoder (a plain sentence-transformers folder), and the state of the
loss, optimizer, schedule and random generators; reading it executes no pickled code. Its `progress.json` has the
position in training, and the size and digest of every other file.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import pickletools
import re
import shutil
import sys
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, NonNegativeInt, ValidationError
from safetensors import SafetensorError, safe_open

from bsc_core.config import RunConfig
from bsc_core.config.messages import first_problem
from bsc_core.config.section import json_with_previous_names
from bsc_core.encoders import save_model
from bsc_core.encoders.lora import lora_state
from bsc_core.errors import CheckpointError, DataError
from bsc_core.files import archive_entries, atomic_folder, check_arrays, check_regular, check_safetensors, read_regular
from bsc_core.formatting import printable
from bsc_core.training.loop.trainer import StepReport, Trainer, TrainerState

if TYPE_CHECKING:
    from bsc_core.runs import Run
    from bsc_core.training.data import TrainingData

SAVED = 2  # also the previous checkpoint, in case the newest is damaged
UNREADABLE = (
    *(OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError),
    *(SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile),
)
MAX_PICKLE_BYTES, MAX_CALLS = 2**20, 50_000  # of a state without its tensors: its size, and calls that build them
MAX_TRIED = 10  # damaged checkpoints that are read until one is not
TENSORS_AND_DICTS = re.compile(r"torch \w+Storage|torch\._utils _rebuild_(tensor_v2|parameter)|collections OrderedDict")
PARTS_OF_STATE = re.compile(
    r"[^/]+/(data\.pkl|data/\d+|version|byteorder|\.format_version|\.storage_alignment|\.data/\w+)"
)
PROGRESS = "progress.json"
PREVIOUS_FINGERPRINT = "made_by"  # name of `config_fingerprint` in checkpoints of earlier versions


class _Position(BaseModel):
    """Types of the values in progress.json."""

    step: NonNegativeInt
    epoch: NonNegativeInt
    position: NonNegativeInt
    ends_epoch: bool
    last: bool
    best: float | None
    best_epoch: NonNegativeInt


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint(TrainerState):
    """A checkpoint that was read."""

    folder: Path  # its folder
    loss: dict[str, Any]  # state of the loss
    lora: dict[str, Any] | None  # low-rank matrices with the weights they are added to, or None
    data: str = ""  # digest of the rows that the run read; empty where unknown

    @property
    def model_folder(self) -> Path:
        """The encoder as a sentence-transformers folder."""
        return self.folder / "model"


def save_checkpoint(
    folder: Path,
    trainer: Trainer,
    report: StepReport,
    *,
    keep: int = SAVED,
    best: tuple[float | None, int] = (None, 0),
    config_fingerprint: str = "",
    data: str = "",
) -> Path:
    """Write the state after a step into a new folder in `folder`, and delete all but the newest `keep` checkpoints.

    Args:
        folder: Where checkpoints are written.
        trainer: The trainer after the step.
        report: Of the step.
        keep: Number of checkpoints to keep.
        best: Best dev metric so far, and its epoch.
        config_fingerprint: See `fingerprint`.
        data: See `TrainingData.digest`.
    """
    model, loss = trainer.accelerator.unwrap_model(trainer.model), trainer.accelerator.unwrap_model(trainer.loss)
    target, vectors = folder / f"step-{report.step:06d}", trainer.sampler.step_vectors
    for unfinished in folder.glob(".step-*"):  # of a killed process; only one process of a run writes
        shutil.rmtree(unfinished, ignore_errors=True)
    with atomic_folder(target) as draft:
        save_model(model, draft / "model", card=f"Checkpoint of a BSC Lab run after step {report.step}.")
        state = {
            **trainer.state(),
            "loss": loss.state_dict(),
            "memory": None if vectors is None else torch.from_numpy(vectors),
            "lora": lora_state(model),
        }
        torch.save(state, draft / "state.pt")
        names = ("step", "steps", "epoch", "position", "ends_epoch", "last")
        progress = {
            **{name: getattr(report, name) for name in names},
            "best": best[0],
            "best_epoch": best[1],
            "config_fingerprint": config_fingerprint,
            "data": data,
            "files": _list_files(draft),
        }
        (draft / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")
    earlier = [path for path in checkpoints(folder) if _step_of(path) <= report.step]  # later ones are damaged
    for old in earlier[:-keep]:
        shutil.rmtree(old)
    return target


def fingerprint(config: RunConfig) -> str:
    """Return a digest of the config, in hexadecimal, which is stored in the checkpoints of a run."""
    return known_fingerprints(config)[0]


def known_fingerprints(config: RunConfig) -> tuple[str, str]:
    """Return the digests of the config under the present and under the previous names of its keys."""
    present = config.model_dump_json(exclude={"name"}, exclude_defaults=True)
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (present, json_with_previous_names(present))]
    return digests[0], digests[1]


def _list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return bytes and SHA-256 (hex) of each file of a checkpoint except progress.json, by its relative path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / PROGRESS:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    return files


def _check_files(folder: Path, expected: dict[str, dict[str, Any]]) -> None:
    """Raise ValueError with the name of a file that is missing or has changed."""
    files = _list_files(folder)
    for name, facts in expected.items():
        if name not in files:
            raise ValueError(f"{name} is missing")
        if files[name] != facts:
            raise ValueError(f"{name} is damaged")


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints under `folder`, oldest first."""
    complete = (path for path in folder.glob("step-*") if (path / PROGRESS).is_file())
    return sorted(complete, key=lambda path: (_step_of(path), path.name))


def _step_of(checkpoint: Path) -> int:
    """Return the step in a checkpoint's name; -1 where the name has another form."""
    number = checkpoint.name.removeprefix("step-")
    return int(number) if number.isdecimal() else -1


def last_checkpoint(folder: Path, fingerprints: Collection[str] = ()) -> Checkpoint | None:
    """Return the newest readable checkpoint under `folder`; None if there is no checkpoint.

    Unreadable ones are reported on standard error and skipped.

    Args:
        folder: Folder of the run's checkpoints.
        fingerprints: Accepted fingerprints of the config, see `read_checkpoint`.

    Raises:
        CheckpointError: There are checkpoints and none can be read.
    """
    paths = checkpoints(folder)
    for path in paths[: -MAX_TRIED - 1 : -1]:
        try:
            return read_checkpoint(path, fingerprints)
        except CheckpointError as error:
            print(printable(f"{error}; using the previous one"), file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
    if paths:
        raise CheckpointError(f"{folder}: none of its {len(paths)} checkpoint(s) can be read; launch the run again")
    return None


def read_checkpoint(folder: Path, fingerprints: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint.

    Args:
        folder: Folder of the checkpoint.
        fingerprints: Accepted fingerprints of the config; not checked if empty, or if the checkpoint has none.

    Raises:
        CheckpointError: A file is damaged, or the checkpoint is of another config.
    """
    try:
        progress = json.loads(read_regular(folder / PROGRESS))
        _Position.model_validate(progress, strict=True)
        stored = progress.get("config_fingerprint", progress.get(PREVIOUS_FINGERPRINT, ""))
        if fingerprints and stored not in ("", *fingerprints):
            raise CheckpointError(
                f"{folder}: this checkpoint belongs to a run with another config; resume with the config of that run, "
                "or launch the run again"
            )
        if "files" in progress:
            _check_files(folder, progress["files"])
        else:
            _check_weights(folder / "model")
            check_regular(folder / "state.pt")
        check_arrays(folder / "state.pt")
        _check_pickle(folder / "state.pt")
        state: dict[str, Any] = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
        _check_tensors(state)
        vectors = state["memory"]
        return Checkpoint(
            folder=folder,
            step=progress["step"],
            epoch=progress["epoch"],
            position=progress["position"],
            last=progress["last"],
            ends_epoch=progress["ends_epoch"],
            state={name: state[name] for name in ("optimizer", "schedule", "random", "cuda_random")}
            | {"scaler": state.get("scaler")},
            best=progress["best"],
            best_epoch=progress["best_epoch"],
            loss=state["loss"],
            step_vectors=None if vectors is None else vectors.numpy(),
            lora=state.get("lora"),
            data=progress.get("data", ""),
        )
    except UNREADABLE as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else error
        raise CheckpointError(f"{folder}: this checkpoint cannot be read ({reason})") from None


def _check_pickle(path: Path) -> None:
    """Raise ValueError for a state that names anything but tensors and dicts, such as a constructor of zeros.

    torch reads a file of another format if it does not begin as an archive, and ignores the case of the names in it.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise ValueError("not an archive")
    entries = archive_entries(path)
    names = [entry.filename for entry in entries]
    if len(set(map(str.lower, names))) < len(names) or not all(map(PARTS_OF_STATE.fullmatch, names)):
        raise ValueError("it has other parts than a state")
    structures = [entry for entry in entries if entry.filename.endswith("data.pkl")]
    if len(structures) != 1 or structures[0].file_size > MAX_PICKLE_BYTES:
        raise ValueError(f"it has several structures, or one of more than {MAX_PICKLE_BYTES // 2**20} MiB")
    with zipfile.ZipFile(path) as archive:
        calls = 0
        for opcode, name, _ in pickletools.genops(archive.read(structures[0])):
            calls += opcode.name == "REDUCE"
            if "GLOBAL" in opcode.name and not TENSORS_AND_DICTS.fullmatch(str(name)):
                raise ValueError(f"it contains {printable(str(name))}, which no state has")
        if calls > MAX_CALLS:
            raise ValueError("it has more tensors than a state")


def _check_tensors(state: dict[str, Any]) -> None:
    """Raise ValueError for a tensor that repeats its data, and so needs more memory than the file has."""
    parts: list[Any] = [state]
    seen: set[int] = set()  # a list may contain itself
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor) and part.numel() * part.element_size() > part.untyped_storage().nbytes():
            raise ValueError("a tensor is larger than its data")
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part


def _check_weights(model: Path) -> None:
    """Open the weights of a checkpoint that does not list its files. Raises ValueError, SafetensorError."""
    paths = sorted(model.rglob("*.safetensors"))
    if not paths:
        raise ValueError("it has no weights")
    for path in paths:
        check_safetensors(path)
        with safe_open(str(path), "pt") as weights:
            weights.keys()


def load_resume_state(run: Run, config: RunConfig, data: TrainingData) -> Checkpoint | None:
    """Return the newest readable checkpoint of a run; None for a fresh run.

    Raises:
        CheckpointError: There are checkpoints and none can be read.
        DataError: The rows differ from those that the checkpoint was trained on.
    """
    checkpoint = last_checkpoint(run.checkpoints_folder, known_fingerprints(config))
    if checkpoint is None or not checkpoint.data or checkpoint.data == data.digest:
        return checkpoint
    generated = config.data.examples is not None or config.data.negatives is not None
    where = ", on the kind of device that it started on" if generated else ""  # rows depend on its vectors
    raise DataError(
        f"{config.data.train}: the rows differ from those that this run trained on until step {checkpoint.step:,}; "
        f"restore its data files and resume it again{where}, or launch it again"
    )

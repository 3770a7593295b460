"""A run is a folder: config, status, metrics, log, evaluations and arrays, written so that no reader sees half a file.

The only module that knows the names of files inside a run. Which state may follow which: `bsc_core.jobs.states`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from bsc_core.config import EncoderConfig, RunConfig, make_config
from bsc_core.errors import ModelError, RunError, RunNotFoundError
from bsc_core.files import as_json, write_whole
from bsc_core.status import FINISHED, RunStatus, State, status_from_json

__all__ = ["DRAFT", "FINISHED", "Run", "RunStatus", "RunStore", "State", "chain_of", "new_run_id"]

_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
DRAFT = ".new-"  # how the folder of a run begins that is being made, which no one sees
_UPLOADS = "uploads"
_CHAIN = "run:"
_LOCK_SECONDS = 10.0
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Run:
    """One run folder. Every write is whole or not there; `clock` gives the times that are written."""

    folder: Path
    clock: Callable[[], float] = time.time

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def exists(self) -> bool:
        """False when there is no run in the folder, or none any more."""
        return (self.folder / "config.json").is_file()

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    @property
    def checkpoints_folder(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def plans_folder(self) -> Path:
        return self.folder / "plans"

    @property
    def log_file(self) -> Path:
        return self.folder / "log.txt"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def _stop_file(self) -> Path:
        return self.folder / "stop"

    def config(self) -> RunConfig:
        """The config the run was made from. Raises ConfigError when it was written by a version with other fields."""
        values = self.read_json("config")
        if values is None:
            raise RunError(f"run {self.id}: config.json is missing from {self.folder}")
        return make_config(values, source=f"run {self.id}")

    def status(self) -> RunStatus:
        """The status as last written; a status file that cannot be read shows as lost, saying so in `error`."""
        try:
            return status_from_json((self.folder / "status.json").read_bytes())
        except (OSError, ValueError) as error:
            return RunStatus(state="lost", error=f"run {self.id}: status.json cannot be read ({error})")

    def update_status(self, **changes: Any) -> RunStatus:
        """Set these fields of the status, and `updated` to now; the others keep their value. Returns the new status."""
        return self.change_status(lambda status: replace(status, **changes))

    def change_status(self, change: Callable[[RunStatus], RunStatus]) -> RunStatus:
        """Replace the status by `change(status)` while no one else can write it; the same object changes nothing.

        Raises RunNotFoundError when the folder was deleted, RunError when another process holds the status for long.
        """
        self._check_folder()
        try:
            with FileLock(self.folder / ".status.lock", timeout=_LOCK_SECONDS, poll_interval=0.005):
                before = self.status()
                after = change(before)
                if after is before:
                    return before
                after = replace(after, updated=self.clock())
                write_whole(self.folder / "status.json", as_json(asdict(after)))
                return after
        except Timeout:
            raise RunError(f"run {self.id}: another process holds its status for {_LOCK_SECONDS:.0f} s") from None

    def append_metrics(self, values: dict[str, Any]) -> None:
        """Add one line to the metrics; a number that is not finite is written as null."""
        with self.metrics_file.open("ab") as file:
            file.write(as_json(values) + b"\n")

    def metrics(self, start_byte: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Metrics lines from `start_byte` on, and the byte to go on from; a half-written line is left for then."""
        if not self.metrics_file.exists():
            return [], start_byte
        with self.metrics_file.open("rb") as file:
            file.seek(start_byte)
            whole, _, _ = file.read().rpartition(b"\n")
        if not whole:
            return [], start_byte
        try:
            return [json.loads(line) for line in whole.split(b"\n")], start_byte + len(whole) + 1
        except ValueError as error:
            raise RunError(f"run {self.id}: metrics.jsonl is damaged after byte {start_byte} ({error})") from None

    def rewind_metrics(self, *, step: int, epoch: int, ends_epoch: bool) -> None:
        """Leave out the lines of what came after a step, which will come again, and those that cannot be read.

        epoch: the one the step is of; ends_epoch: whether it is that epoch's last.
        """
        last = {"step": step, "evaluation": epoch - (not ends_epoch), "plan": epoch}

        def is_kept(line: bytes) -> bool:
            try:
                values = json.loads(line)
                return bool(values["step" if values["kind"] == "step" else "epoch"] <= last[values["kind"]])
            except (ValueError, KeyError, TypeError):
                return False

        lines = self.metrics_file.read_bytes().splitlines(keepends=True) if self.metrics_file.exists() else []
        kept = [line for line in lines if line.endswith(b"\n") and is_kept(line)]
        if len(kept) < len(lines):
            write_whole(self.metrics_file, b"".join(kept))

    def request_stop(self) -> None:
        """Ask the run to stop after its current step."""
        self._stop_file.touch()

    def stop_requested(self) -> bool:
        return self._stop_file.exists()

    def log_tail(self, lines: int = 50) -> list[str]:
        """The last lines of the output, oldest first, without line ends; of a progress bar its last state."""
        if not self.log_file.exists():
            return []
        with self.log_file.open("rb") as file:
            file.seek(max(0, self.log_file.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
        kept = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        return [line for line in kept if line.strip()][-lines:]

    def write_json(self, name: str, value: Any) -> None:
        """Write a value under a name such as `result` or `evaluation/before` (`.json` is added if not there)."""
        self._check_folder()
        write_whole(self._inside(name, ".json"), as_json(value, indent=1))

    def read_json(self, name: str) -> Any:
        """What `write_json` wrote under the name; None when the run has not written it."""
        path = self._inside(name, ".json")
        try:
            return json.loads(path.read_bytes()) if path.exists() else None
        except ValueError as error:
            raise RunError(f"run {self.id}: {path.name} is damaged ({error})") from None

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array under a name such as `embeddings_after` (`.npy` is added if not there)."""
        self._check_folder()
        path = self._inside(name, ".npy")
        write_whole(path, lambda file: np.save(file, array, allow_pickle=False))

    def array(self, name: str) -> NDArray[Any] | None:
        """The array of that name, mapped from disk and read-only; None when the run has not written it.

        Raises RunError where the file is damaged, such as one that was cut off.
        """
        path = self._inside(name, ".npy")
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None
        except (ValueError, EOFError):
            raise RunError(f"run {self.id}: {path.name} is damaged; launch the run again") from None

    def _check_folder(self) -> None:
        if not self.folder.is_dir():  # writing into it would make it anew
            raise RunNotFoundError(f"run {self.id}: its folder {self.folder} was deleted or moved")

    def _inside(self, name: str, suffix: str) -> Path:
        path = self.folder / (name if name.endswith(suffix) else name + suffix)
        if ".." in path.parts or not path.is_relative_to(self.folder):
            raise RunError(f"run {self.id}: {name} would lie outside its folder")
        return path


class RunStore:
    """The folder that holds the runs: `root`, else the environment's BSC_RUNS, else `runs` in the working folder."""

    def __init__(self, root: Path | str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.root = Path(root or os.environ.get("BSC_RUNS") or "runs").expanduser().resolve()
        self._clock = clock

    @property
    def uploads_folder(self) -> Path:
        """Where the app keeps files that users uploaded; not made until it is needed."""
        return self.root / _UPLOADS

    def create(self, config: RunConfig, run_id: str | None = None, fill: Callable[[Run], object] | None = None) -> Run:
        """Make the folder of a run, in state queued; a run that has this id already is returned as it is.

        fill: puts more into it before anyone sees it; what that raises leaves no run.
        """
        run = self._run(run_id or new_run_id(config, now=self._clock()))
        if run.folder.exists():
            return run
        draft = self.root / f"{DRAFT}{run.id}-{secrets.token_hex(4)}"
        draft.mkdir(parents=True)
        now = self._clock()
        try:
            write_whole(draft / "config.json", as_json(config.model_dump(mode="json"), indent=1))
            write_whole(draft / "status.json", as_json(asdict(RunStatus(created=now, updated=now))))
            if fill is not None:
                fill(Run(draft, self._clock))
            draft.rename(run.folder)
        except BaseException as error:  # another process made it meanwhile, or the disk refused
            shutil.rmtree(draft, ignore_errors=True)
            if not (isinstance(error, OSError) and run.folder.exists()):
                raise
        return run

    def get(self, run_id: str) -> Run:
        """The run of that id. Raises RunNotFoundError."""
        run = self._run(run_id)
        if not run.exists:
            known = ", ".join(other.id for other in self.list()[:3])
            raise RunNotFoundError(f"run {run_id}: not in {self.root}" + (f" (latest: {known})" if known else ""))
        return run

    def list(self) -> list[Run]:
        """All runs, newest first."""
        if not self.root.is_dir():
            return []
        runs = [run for path in self.root.iterdir() if _is_run_id(path.name) and (run := Run(path, self._clock)).exists]
        return sorted(runs, key=lambda run: (run.status().created, run.id), reverse=True)

    def encoder(self, config: EncoderConfig) -> EncoderConfig:
        """The encoder with a run's model folder in place of `run:ID`; any other as it is.

        Raises RunNotFoundError, and ModelError where that run has not ended, failed, was lost or left no model.
        """
        run_id = chain_of(config.name)
        if run_id is None:
            return config
        run = self.get(run_id)
        status = run.status()
        if not status.is_finished:
            raise ModelError(
                f"{config.name}: that run is {status.state}, so its model is not there yet; wait for its end"
            )
        if status.state not in ("done", "stopped") or not run.model_folder.is_dir():
            what = f"is {status.state}" if status.state in ("failed", "lost") else "left no model"
            raise ModelError(f"{config.name}: that run {what}; start from a run that is done, or resume that one first")
        return config.model_copy(update={"name": str(run.model_folder)})

    def _run(self, run_id: str) -> Run:
        if not _is_run_id(run_id):
            raise RunNotFoundError(f"run {run_id!r}: a name has letters, digits, '.', '_' and '-' only, at most 100")
        return Run(self.root / run_id, self._clock)


def chain_of(encoder: str) -> str | None:
    """The id of the run whose model an encoder's name `run:ID` means; None for any other name."""
    return encoder.removeprefix(_CHAIN).strip() if encoder.startswith(_CHAIN) else None


def new_run_id(config: RunConfig, *, now: float | None = None) -> str:
    """A new id that sorts by time and can be read: UTC date and time, the run's name, four random characters."""
    stamp = datetime.fromtimestamp(time.time() if now is None else now, UTC).strftime("%Y%m%d-%H%M%S")
    words = config.name or f"{config.loss.name}-{config.batching.strategy}"
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:40].strip("-") or "run"
    return f"{stamp}-{slug}-{secrets.token_hex(2)}"


def _is_run_id(name: str) -> bool:
    return _RUN_ID.fullmatch(name) is not None and name != _UPLOADS

"""Run folders: config, status, metrics, log, evaluations and arrays. Apart from appended lines, writes are atomic.

The names and types of JSON documents are in `bsc_core.runs.documents`. The allowed state transitions are in
`bsc_core.jobs.states`.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from filelock import Timeout
from numpy.typing import NDArray
from pydantic import TypeAdapter

from bsc_core.config import DataConfig, EncoderConfig, RunConfig, make_config
from bsc_core.config.section import ignore_deprecations
from bsc_core.errors import ConfigError, ModelError, RunError, RunNotFoundError
from bsc_core.files import (
    FileStamp,
    as_json,
    atomic_write,
    check_regular,
    file_lock,
    file_stamp,
    map_array,
    read_regular,
    sync,
)
from bsc_core.paths import expand
from bsc_core.runs.documents import (
    EVALUATION,
    GROUP,
    METRICS,
    OBJECT,
    PREVIOUS_NAMES,
    RESUMED,
    SCHEMAS,
    TEXTS,
    RunStatus,
    parse_json,
    status_from_json,
)
from bsc_core.runs.ids import UPLOADS, is_run_id, new_run_id, parent_run_id
from bsc_core.runs.signatures import signed, verified
from bsc_core.types import MAX_DIMENSIONS

_STEP_LINE = re.compile(rb'\{"kind": ?"step"')
TRASH = ".trash"  # folder of deleted runs
DRAFT = ".new-"  # prefix of the hidden folder of a run that is being created

# Names of arrays
EPOCH_TEXTS = "vectors/texts"  # ids of the texts whose vectors are saved after each epoch
_MARKED = ("false_negatives", "marks")  # folder of marked false negatives, and its name in earlier versions
_LOCK_SECONDS = 10.0
_TAIL_BYTES = 64 * 1024
_ROWS_AT_ONCE = 16_384
_MAX_LINES, _MAX_LINE_BYTES = 3_000_000, 1_000_000  # of the metrics
_MAX_OTHER_LINES, _MAX_OTHER_BYTES = 100_000, 16 * 2**20  # of the metrics, that are not steps
_MAX_OTHER_VALUES = 500_000
_MAX_STEP_VALUES, _MAX_STEP_NAMES = 100, 200  # of a step, and of all steps
_MAX_VALUES, _MAX_STEP_BYTES = 3_000_000, 64 * 2**20  # of the steps that are read together
_CHECKED_ROWS, _CHECKED_VALUES = 65_536, 2**22  # of vectors
_FLOATS = tuple(map(np.dtype, ("f2", "f4", "f8")))  # of vectors
_MAX_TEXTS, _MAX_EPOCHS = 100_000_000, 300  # of vectors


def _present(parent: Path, folder: str, previous: str, name: str) -> Path:
    """Return the path of a file in a folder, or in its previous folder if it is there."""
    earlier = parent / previous / name
    return earlier if earlier.is_file() else parent / folder / name


class _Path:
    """Path inside a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, owner: type[Run]) -> Path:
        path = run.folder / self.name
        if path.is_symlink():  # such as one to a folder elsewhere, in which files would be written
            raise RunError(f"run {run.id}: {self.name} is a link; replace it by what it leads to")
        return path


@dataclass(frozen=True)
class Run:
    """A run folder."""

    folder: Path
    clock: Callable[[], float] = time.time  # source of the timestamps

    checkpoints_folder = _Path("checkpoints")
    log_file = _Path("log.txt")
    merged_folder = _Path("merged")  # models merged with the start
    loss_folder = _Path("loss")  # learned loss parameters of the saved model
    metrics_file = _Path("metrics.jsonl")  # metrics of steps, epochs and plans, one JSON object per line
    model_folder = _Path("model")  # the best model
    plans_folder = _Path("plans")
    trackers_folder = _Path("trackers")  # files of experiment trackers
    _stop_file = _Path("stop")

    @property
    def id(self) -> str:
        """Run id, the name of the folder."""
        return self.folder.name

    @property
    def store(self) -> RunStore:
        """The runs of the same folder."""
        return RunStore(self.folder.parent)

    @property
    def exists(self) -> bool:
        """Whether the folder contains a run."""
        return (self.folder / "config.json").is_file()

    def false_negatives_file(self, source: str) -> Path:
        """Return the path of the run's copy of a file of marked false negatives, written when the run starts."""
        return _present(self.folder, *_MARKED, Path(source).name)

    def data_config(self, config: DataConfig) -> DataConfig:
        """Return the data config with the run's copy of the marked false negatives, where it has one."""
        source = config.false_negatives
        if source is None or not self.false_negatives_file(source).is_file():
            return config
        return config.model_copy(update={"false_negatives": str(self.false_negatives_file(source))})

    def plan_file(self, epoch: int) -> Path:
        """Return the path of the batch plan of an epoch, counted from 1."""
        return self.plans_folder / f"{epoch_name(epoch)}.npz"

    def write_mined_negatives(self, epoch: int, negatives: NDArray[np.int32]) -> None:
        """Store the negatives that were mined before an epoch, counted from 1; (N,) text ids as in `row_negatives`."""
        self.write_array(f"plans/negatives-{epoch:03d}", negatives)

    def mined_negatives(self, epoch: int) -> NDArray[np.int32] | None:
        """Return the negatives that an epoch trains on, counted from 1; None for those of the data.

        Raises:
            RunError: The file is damaged.
        """
        earlier = [path.stem for path, number in self.numbered_plans("negatives-*.npy").items() if number <= epoch]
        negatives = self.array(f"plans/{earlier[-1]}") if earlier else None
        if negatives is not None and (negatives.ndim != 1 or negatives.dtype.kind not in "iu"):
            raise self._damaged(f"{earlier[-1]}.npy")
        return negatives

    def numbered_plans(self, pattern: str) -> dict[Path, int]:
        """Return the epoch at the end of the name of each of these files of the plans folder, ascending."""
        numbers = {path: path.stem.rpartition("-")[2] for path in self.plans_folder.glob(pattern)}
        known = {path: int(number) for path, number in numbers.items() if number.isascii() and number.isdecimal()}
        return dict(sorted(known.items(), key=lambda one: one[1]))

    def config(self) -> RunConfig:
        """Return the config of the run.

        Raises:
            RunError: The config is missing or damaged.
            ConfigError: The config has fields that this version does not know.
        """
        values = self.read_json("config")
        if values is None:
            raise RunError(f"run {self.id}: config.json is missing from {self.folder}; restore it, or delete the run")
        with ignore_deprecations():
            return make_config(values, source=f"run {self.id}")

    def status(self) -> RunStatus:
        """Return the last written status; an unreadable status is returned as lost, with the reason in `error`."""
        try:
            return status_from_json(read_regular(self.folder / "status.json"))
        except (OSError, ValueError) as error:
            return RunStatus(state="lost", error=f"run {self.id}: status.json cannot be read ({error})")

    def update_status(self, **changes: Any) -> RunStatus:
        """Set fields of the status, and `updated` to the current time; return the new status."""
        return self.change_status(lambda status: replace(status, **changes))

    def change_status(self, change: Callable[[RunStatus], RunStatus]) -> RunStatus:
        """Replace the status by `change(status)` under a lock; if that is the same object, nothing is written.

        Raises:
            RunNotFoundError: The run folder was deleted.
            RunError: Another process holds the lock for too long, or `.status.lock` is no file.
        """
        self._check_folder()
        lock = self.folder / ".status.lock"
        if lock.is_symlink() or lock.is_dir():
            raise RunError(f"run {self.id}: .status.lock is no file; delete it")
        try:
            with file_lock(lock, _LOCK_SECONDS):
                before = self.status()
                after = change(before)
                if after is before:
                    return before
                after = replace(after, updated=self.clock())
                atomic_write(self.folder / "status.json", as_json(asdict(after)))
                return after
        except Timeout:
            raise RunError(
                f"run {self.id}: another process has locked its status for {_LOCK_SECONDS:.0f} s; try again"
            ) from None

    def append_metrics(self, values: dict[str, Any]) -> None:
        """Append a line to the metrics; non-finite numbers are written as null."""
        with self.metrics_file.open("ab") as file:
            file.write(as_json(values) + b"\n")

    def sync_metrics(self) -> None:
        """Flush the metrics to the disk."""
        if self.metrics_file.exists():
            sync(self.metrics_file)

    def metrics(self, start_byte: int = 0, *, max_steps: int | None = None) -> tuple[list[dict[str, Any]], int]:
        """Read metrics from a byte offset; an incomplete last line is read by the next call.

        Args:
            start_byte: Offset of the first line.
            max_steps: If there are more lines, return those of evaluations and plans, and at most this many evenly
                spaced steps.

        Returns:
            The lines, and the offset for the next call.

        Raises:
            RunError: A line is not valid.
        """
        if not self.metrics_file.exists():
            return [], start_byte
        self._check_metrics(start_byte)
        lines, end_byte = self._metrics_lines(start_byte, max_steps)
        try:
            rows = [parse_json(line, METRICS) for line in lines]
        except ValueError as error:
            raise RunError(
                f"run {self.id}: metrics.jsonl is damaged after byte {start_byte} ({error}); restore it, or launch the "
                "run again"
            ) from None
        if len({name for row in rows if row.get("kind") == "step" for name in row}) > _MAX_STEP_NAMES:
            raise self._damaged("metrics.jsonl")
        return rows, end_byte

    def _metrics_lines(self, start_byte: int, max_steps: int | None) -> tuple[list[bytes], int]:
        """Return the complete lines from a byte on, of which at most `max_steps` are steps, and where they end."""
        with self.metrics_file.open("rb") as file:
            file.seek(start_byte)
            read_line = partial(file.readline, _MAX_LINE_BYTES)
            count, end_byte, line = 0, start_byte, b""
            for line in iter(read_line, b""):
                if not line.endswith(b"\n"):
                    break
                count, end_byte = count + 1, end_byte + len(line)
            stride = 1 if max_steps is None else max(1, -(-count // max(1, max_steps)))
            file.seek(start_byte)
            lines = [
                line
                for number, line in zip(range(count), iter(read_line, b""), strict=False)
                if (max_steps != 0 and number % stride == 0) or not _STEP_LINE.match(line)
            ]
        steps = [(len(line), line.count(b":")) for line in lines if _STEP_LINE.match(line)]
        others = [(len(line), line.count(b":")) for line in lines if not _STEP_LINE.match(line)]
        is_long = len(line) == _MAX_LINE_BYTES or sum(size for size, _ in steps) > _MAX_STEP_BYTES
        is_long |= len(others) > _MAX_OTHER_LINES or sum(size for size, _ in others) > _MAX_OTHER_BYTES
        is_long |= sum(count for _, count in others) > _MAX_OTHER_VALUES
        values = [count for _, count in steps]
        if count > _MAX_LINES or is_long or max(values, default=0) > _MAX_STEP_VALUES or sum(values) > _MAX_VALUES:
            raise RunError(
                f"run {self.id}: metrics.jsonl is damaged ({count:,} lines, more than a run writes, or longer ones); "
                "restore it, or launch the run again"
            )
        return lines, end_byte

    def rewind_metrics(self, *, step: int, epoch: int, ends_epoch: bool) -> None:
        """Remove the metrics after a step, which a resumed run writes again, and unreadable lines.

        Args:
            step: Last step whose metrics are not removed.
            epoch: Epoch of the step.
            ends_epoch: Whether it is the last step of the epoch.
        """
        last = {"step": step, "evaluation": epoch - (not ends_epoch), "plan": epoch}

        def is_valid(line: bytes) -> bool:
            try:  # most lines are steps, which are checked when the metrics are read
                values = json.loads(line) if _STEP_LINE.match(line) else parse_json(line, METRICS)
                return bool(values["step" if values["kind"] == "step" else "epoch"] <= last[values["kind"]])
            except (ValueError, KeyError, TypeError, RecursionError):
                return False

        def write_valid(file: BinaryIO) -> None:
            with self.metrics_file.open("rb") as metrics:
                for count, line in enumerate(iter(partial(metrics.readline, _MAX_LINE_BYTES), b"")):
                    if count >= _MAX_LINES:
                        raise self._damaged("metrics.jsonl")
                    if line.endswith(b"\n") and is_valid(line):
                        file.write(line)

        if self.metrics_file.exists():
            self._check_metrics()
            atomic_write(self.metrics_file, write_valid)

    def _check_metrics(self, start_byte: int = 0) -> None:
        """Raise RunError if the metrics are not a regular file of a usual size."""
        try:
            check_regular(self.metrics_file, start_byte)
        except ValueError as error:
            raise RunError(
                f"run {self.id}: metrics.jsonl cannot be read ({error}); restore it, or launch the run again"
            ) from None

    def request_stop(self) -> None:
        """Request the run to stop after its current step."""
        self._stop_file.touch()

    def stop_requested(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop_file.exists()

    def log_tail(self, lines: int = 50) -> list[str]:
        """Return the last non-empty lines of the log, oldest first; a progress bar is one line, with its last state."""
        path = self.folder / "log.txt"
        if not path.is_file() or path.is_symlink():
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
        last_states = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        return [line for line in last_states if line.strip()][-lines:]

    def write_json(self, name: str, value: Any) -> None:
        """Write a value under a name such as `result` or `evaluation/before`; the `.json` suffix is optional."""
        self._check_folder()
        atomic_write(self._inside(name, ".json"), as_json(value, indent=1))

    def read_json(self, name: str) -> Any:
        """Return the object that `write_json` wrote under a name, or a previous version; None if there is none.

        Raises:
            RunError: The file is damaged or its values have other types.
        """
        return self._read_json(name, SCHEMAS.get(name, OBJECT))

    def _read_json(self, name: str, schema: TypeAdapter[Any]) -> Any:
        path = self._inside(name, ".json")
        if not path.exists() and name in PREVIOUS_NAMES:
            path = self._inside(PREVIOUS_NAMES[name], ".json")
        try:
            return parse_json(read_regular(path), schema) if path.exists() else None
        except ValueError as error:
            raise RunError(
                f"run {self.id}: {path.name} is damaged ({error}); restore it, or launch the run again"
            ) from None

    def write_signed(self, name: str, values: Mapping[str, Any]) -> None:
        """Write values under a name with their signature, see `signed`.

        A run folder that was copied from elsewhere therefore sets no environment variables, which could execute code,
        names no cluster, is not started without being launched, and is shared with nobody.
        """
        self.write_json(name, signed(self._root, self._signed_name(name), values))

    def read_signed(self, name: str) -> dict[str, Any] | None:
        """Return the values that `write_signed` wrote in this runs folder; None if there are none, or damaged ones."""
        with suppress(RunError):
            return verified(self._root, self._signed_name(name), self.read_json(name) or {})
        return None

    @property
    def resumed_run(self) -> str | None:
        """Id of the run that this one resumes; None also for a run folder from elsewhere, whose status may name any."""
        parent = self.status().resumed_from
        return parent if parent and self.read_signed(RESUMED) == {"from": parent} else None

    def evaluation(self, name: str) -> dict[str, Any]:
        """Return the metrics by split of an evaluation: `before`, `after` or an epoch; {} if there is none."""
        return self._read_json(f"evaluation/{name}", EVALUATION) or {}

    def write_evaluation(self, name: str, metrics: dict[str, Any]) -> None:
        """Write the metrics by split of an evaluation."""
        self.write_json(f"evaluation/{name}", metrics)

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array under a name such as `embeddings_after`; the `.npy` suffix is optional."""
        self._check_folder()
        path = self._inside(name, ".npy")
        atomic_write(path, lambda file: np.save(file, array, allow_pickle=False))

    def array(self, name: str) -> NDArray[Any] | None:
        """Return an array that `write_array` wrote, memory-mapped and read-only; None if it does not exist.

        Raises:
            RunError: The file is damaged.
        """
        path = self._inside(name, ".npy")
        if not path.exists():
            return None
        try:
            check_regular(path, path.stat().st_size)  # a mapped file may be larger than the memory
            return map_array(path)
        except (ValueError, EOFError, OverflowError, SyntaxError, TokenError, MemoryError):
            raise self._damaged(path.name) from None

    def embeddings(self, name: str) -> NDArray[Any] | None:
        """Return the (U, D) vectors of all texts `before` or `after` training; None if they do not exist.

        Raises:
            RunError: The file is damaged, has vectors of another number of texts, or values that are not finite.
        """
        vectors = self.array(f"embeddings_{name}")
        if vectors is not None:
            texts = self.read_json(TEXTS)
            if texts is None:
                raise self._damaged(f"{TEXTS}.json")
            self._check_vectors(f"embeddings_{name}", vectors, texts["count"])
        return vectors

    def epoch_vectors(self, epoch: int) -> NDArray[Any] | None:
        """Return the (T, D) vectors saved after an epoch, counted from 1; None if there are none.

        Raises:
            RunError: The file is damaged, is not of the (T,) texts in EPOCH_TEXTS, or has values that are not finite.
        """
        vectors, ids = self.array(epoch_array(epoch)), self.array(EPOCH_TEXTS)
        if vectors is None or ids is None:
            return None
        has_ids = ids.ndim == 1 and ids.dtype.kind in "iu" and len(ids) <= _MAX_TEXTS
        if not has_ids or (ids[1:] <= ids[:-1]).any() or (ids[:1] < 0).any():
            raise self._damaged(f"{EPOCH_TEXTS}.npy")
        texts = self.read_json(TEXTS)
        if texts is not None and (ids[-1:] >= texts["count"]).any():
            raise self._damaged(f"{EPOCH_TEXTS}.npy")
        self._check_vectors(epoch_array(epoch), vectors, len(ids))
        return vectors

    def _check_vectors(self, name: str, vectors: NDArray[Any], count: int) -> None:
        """Raise RunError unless an array has that number of vectors, with finite values."""
        has_vectors = vectors.ndim == 2 and vectors.dtype in _FLOATS and len(vectors) == count
        if not has_vectors or not 0 < vectors.shape[1] <= MAX_DIMENSIONS:
            raise self._damaged(f"{name}.npy")
        path = self._inside(name, ".npy")
        if not _is_finite(path, file_stamp(path)):
            raise RunError(f"run {self.id}: {path.name} has a value that is not finite; train again")

    def write_embeddings(self, name: str, vectors: NDArray[Any]) -> None:
        """Write the (U, D) vectors of all texts `before` or `after` training."""
        self.write_array(f"embeddings_{name}", vectors)

    def _signed_name(self, name: str) -> str:
        """Return what is signed with the values of a document: its name and the run, which may be unfinished."""
        run_id = self.id.removeprefix(DRAFT).rpartition("-")[0] if self.id.startswith(DRAFT) else self.id
        return f"{run_id}/{name}"

    @property
    def _root(self) -> Path:
        """The runs folder, also of a deleted run."""
        root = self.folder.parent
        return root.parent if root.name == TRASH else root

    def _damaged(self, name: str) -> RunError:
        return RunError(f"run {self.id}: {name} is damaged; launch the run again")

    def _check_folder(self) -> None:
        if not self.folder.is_dir():  # writing would create it again
            raise RunNotFoundError(f"run {self.id}: its folder {self.folder} was deleted or moved")

    def _inside(self, name: str, suffix: str) -> Path:
        path = self.folder / (name if name.endswith(suffix) else name + suffix)
        try:
            is_inside = ".." not in path.parts and path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError):  # a link that leads to itself
            is_inside = False
        if not is_inside:
            raise RunError(f"run {self.id}: {name} is a path outside its folder")
        return path


class RunStore:
    """Folder of all runs: `root`, else the environment variable BSC_RUNS, else `runs` in the working directory."""

    def __init__(self, root: Path | str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.root = expand(root or os.environ.get("BSC_RUNS") or "runs").resolve()
        self._clock = clock

    @property
    def uploads_folder(self) -> Path:
        """Folder of uploaded files; created on first use."""
        return self.root / UPLOADS

    def false_negatives_file(self, dataset_key: str) -> Path:
        """File of the pairs of a dataset that the Batches page marks as false negatives; each run copies it."""
        return _present(self.root, *_MARKED, f"{dataset_key}.tsv")

    def false_negatives_of_user(self, user: str) -> list[Path]:
        """Files of the pairs that a user marks as false negatives in datasets of others."""
        return [file for folder in _MARKED for file in (self.root / folder / user).glob("*.tsv")]

    def create(self, config: RunConfig, run_id: str | None = None, fill: Callable[[Run], object] | None = None) -> Run:
        """Create the folder of a queued run; an existing run with this id is returned unchanged.

        Args:
            config: config of the run.
            run_id: id of the run, by default a new one.
            fill: function that adds files before the run becomes visible; if it raises, no run is created.
        """
        run = self._run(run_id or new_run_id(config, now=self._clock()))
        if run.folder.exists():
            return run
        draft = self.root / f"{DRAFT}{run.id}-{secrets.token_hex(4)}"
        draft.mkdir(parents=True)
        now = self._clock()
        try:
            atomic_write(draft / "config.json", as_json(config.model_dump(mode="json"), indent=1))
            atomic_write(draft / "status.json", as_json(asdict(RunStatus(created=now, updated=now))))
            if fill is not None:
                fill(Run(draft, self._clock))
            draft.rename(run.folder)
            sync(self.root)
        except BaseException as error:  # another process created it at the same time, or writing failed
            shutil.rmtree(draft, ignore_errors=True)
            if not (isinstance(error, OSError) and run.folder.exists()):
                raise
        return run

    def get(self, run_id: str) -> Run:
        """Return the run with an id.

        Raises:
            RunNotFoundError: There is no such run.
        """
        run = self._run(run_id)
        if not run.exists:
            raise RunNotFoundError(f"run {run_id}: not in {self.root}; list the ids with `bsc runs`")
        return run

    def list(self) -> list[Run]:
        """Return all runs, newest first."""
        if not self.root.is_dir():
            return []
        runs = [run for path in self.root.iterdir() if is_run_id(path.name) and (run := Run(path, self._clock)).exists]
        return sorted(runs, key=lambda run: (run.status().created, run.id), reverse=True)

    def resolve_encoder(self, config: EncoderConfig) -> EncoderConfig:
        """Resolve an encoder `run:ID` to the model folder of that run; other encoders are returned unchanged.

        Raises:
            RunNotFoundError: The run does not exist.
            ModelError: The run has not finished, failed, was lost or has no model.
        """
        run_id = parent_run_id(config.name)
        if run_id is None:
            return config
        run = self.get(run_id)
        status = run.status()
        if not status.is_finished:
            raise ModelError(f"{config.name}: that run is {status.state} and has no model yet; wait until it is done")
        if status.state not in ("done", "stopped") or not run.model_folder.is_dir():
            what = f"is {status.state}" if status.state in ("failed", "lost") else "has no model"
            raise ModelError(f"{config.name}: that run {what}; start from a run that is done, or resume that one first")
        return config.model_copy(update={"name": str(run.model_folder)})

    def awaited_run(self, config: EncoderConfig) -> Run | None:
        """Return the unfinished run of an encoder `run:ID`; None if the encoder is available.

        Raises as `resolve_encoder`.
        """
        run_id = parent_run_id(config.name)
        if run_id is not None and not (run := self.get(run_id)).status().is_finished:
            return run
        self.resolve_encoder(config)
        return None

    def available_encoder(self, config: EncoderConfig) -> tuple[EncoderConfig, tuple[str, ...]]:
        """Return an encoder that can be loaded now to estimate the cost of a run, with notes.

        For `run:ID` of an unfinished run, this is the encoder that it starts from, which has the same cost.

        Raises:
            RunNotFoundError: One of the runs does not exist.
            ModelError: One of the runs has no model, or starts from itself.
        """
        notes: tuple[str, ...] = ()
        seen: set[str] = set()
        while (run_id := parent_run_id(config.name)) is not None:
            if run_id in seen:
                raise ModelError(f"run {run_id} starts from its own model; launch it again from another encoder")
            seen.add(run_id)
            run = self.get(run_id)
            if run.status().is_finished:
                return self.resolve_encoder(config), notes
            notes = (f"Run {run_id} has not finished; the encoder that it starts from was used for the estimate.",)
            config = config.model_copy(update={"name": run.config().encoder.name})
        return config, notes

    def _run(self, run_id: str) -> Run:
        if not is_run_id(run_id):
            raise RunNotFoundError(
                f"run {run_id!r}: an id has letters, digits, '.', '_' and '-' only, at most 100; list the ids with "
                "`bsc runs`"
            )
        return Run(self.root / run_id, self._clock)


def epoch_name(epoch: int) -> str:
    """Return the name of the files of an epoch (from 1)."""
    return f"epoch-{epoch:03d}"


def epoch_array(epoch: int) -> str:
    """Return the name of the array of the vectors of an epoch (from 1)."""
    return f"vectors/{epoch_name(epoch)}"


def saved_epochs(run: Run) -> list[int]:
    """Return the first epochs, ascending, whose vectors the run has saved, up to its current epoch."""
    last = run.status().epoch or 0
    names = [path.stem for path in run.folder.glob("vectors/epoch-*.npy")]  # files of `epoch_array`
    epochs = sorted(int(match[1]) for name in names if (match := re.fullmatch("epoch-([0-9]{3,9})", name)))
    return [epoch for epoch in epochs[:_MAX_EPOCHS] if epoch <= last and run.epoch_vectors(epoch) is not None]


@lru_cache(maxsize=1024)  # a page opens the vectors many times
def _is_finite(path: Path, stamp: FileStamp) -> bool:
    """Return whether the vectors of a file are finite; of many, _CHECKED_ROWS rows or _CHECKED_VALUES are checked."""
    array = map_array(path)
    if hasattr(mmap, "MADV_RANDOM"):  # rows between those that are checked are not read ahead, also of a sparse file
        array.base.madvise(mmap.MADV_RANDOM)  # type: ignore[union-attr]
    count = max(1, min(_CHECKED_ROWS, _CHECKED_VALUES // array.shape[1]))
    rows = array[:: max(1, len(array) // count)]
    return all(np.isfinite(rows[row : row + _ROWS_AT_ONCE]).all() for row in range(0, len(rows), _ROWS_AT_ONCE))


def without_resumed(runs: Iterable[Run]) -> list[Run]:
    """Return the runs in order, without those that another one of them, with the same config, resumes."""
    by_id = {run.id: run for run in runs}
    resumed = {
        parent.id
        for run in by_id.values()
        if (parent := by_id.get(run.resumed_run or "")) is not None and _have_equal_settings(run, parent)
    }
    return [run for run in by_id.values() if run.id not in resumed]


def _have_equal_settings(run: Run, other: Run) -> bool:
    """Return whether two runs have the same config and setting of a group; a damaged run has those of no other."""
    with suppress(RunError, ConfigError):
        return run.config() == other.config() and run.read_json(GROUP) == other.read_json(GROUP)
    return False

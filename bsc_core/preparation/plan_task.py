"""Batch plans built in a background task: `python -m bsc_core.preparation.plan_task FOLDER/requests/REQUEST`.

FOLDER holds rows.npz and the finished plans; requests on the same rows share them.
"""

# N rows, U distinct texts

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.background_task import run_task, write_progress
from bsc_core.batching import BatchPlan, PlanStats, build_plan, plan_stats
from bsc_core.config import BatchingConfig, EncoderConfig
from bsc_core.data import PairDataset, ReadReport
from bsc_core.data.dataset import TextTable
from bsc_core.errors import InputError
from bsc_core.files import map_array, save_arrays
from bsc_core.formatting import duration

PROGRESS_SECONDS = 0.3  # between two writes


@dataclass(frozen=True)
class PlanItem:
    """One plan to build from a config, or to read from the file `saved`.

    Attributes:
        name: Name of the plan's file.
        vectors: Path of a saved (U, D) array; None for the vectors of the request's encoder.
    """

    name: str
    batch_size: int
    batching: dict[str, Any] | None = None
    seed: int = 0
    epoch: int = 0
    saved: str | None = None
    vectors: str | None = None


def plan_file(folder: Path, name: str) -> Path:
    """Return the path of a finished plan."""
    return folder / f"{name}.npz"


def refused_file(request: Path, name: str) -> Path:
    """Return the path of the error message of a plan that cannot be built."""
    return request / f"{name}.refused.txt"


def save_rows(dataset: PairDataset, path: Path) -> None:
    """Save the columns of a dataset that plans read."""
    columns = {field.name: getattr(dataset, field.name) for field in fields(dataset)}
    arrays: dict[str, NDArray[Any]] = {name: value for name, value in columns.items() if isinstance(value, np.ndarray)}
    raw = [text.encode("utf-8") for text in dataset.texts]
    arrays["text_bytes"] = np.frombuffer(b"".join(raw), dtype=np.uint8)
    arrays["text_ends"] = np.cumsum([len(one) for one in raw], dtype=np.int64)
    arrays["threshold"] = np.array(dataset.threshold)
    save_arrays(path, arrays)


def load_rows(path: Path) -> PairDataset:
    """Load rows saved by `save_rows`."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {"false_negatives" if name == "marks" else name: archive[name] for name in archive.files}
    raw, ends = arrays.pop("text_bytes").tobytes(), arrays.pop("text_ends").tolist()
    texts = TextTable(tuple(raw[start:end].decode("utf-8") for start, end in zip([0, *ends], ends, strict=False)))
    report = ReadReport.complete(str(path), len(arrays["query"]))
    threshold = float(arrays.pop("threshold"))
    return PairDataset(texts=texts, threshold=threshold, report=report, **arrays)


def request_folder(folder: Path, key: str) -> Path:
    """Return the folder of a request on the rows in `folder`."""
    return folder / "requests" / key


def build_plans(task_folder: Path, request: Any) -> None:
    """Build the plans of a request, `{"encoder": {...} or None, "items": [fields of PlanItem]}`, that do not exist."""
    folder = task_folder.parents[1]
    items = [PlanItem(**item) for item in request["items"]]
    items = [item for item in items if not plan_file(folder, item.name).is_file()]
    stages = len(items) + 2
    write_progress(task_folder, 0, stages, "reading the rows")
    dataset = load_rows(folder / "rows.npz")
    shared = _encode(request["encoder"], dataset, StageProgress(task_folder, 0, stages, "encoding the texts"))
    for number, item in enumerate(items, 1):
        vectors = shared if item.vectors is None else map_array(Path(item.vectors))
        what = item.batching["strategy"] if item.batching else "the saved plan"
        progress = StageProgress(task_folder, number, stages, f"epoch {item.epoch + 1} of {what}")
        progress(0, 1)
        try:
            _build(item, dataset, vectors, progress).save(plan_file(folder, item.name))
        except InputError as error:  # the data do not suit this plan; the others are still built
            refused_file(task_folder, item.name).write_text(str(error), encoding="utf-8")
    write_progress(task_folder, stages, stages, "done")


def _encode(encoder: dict[str, Any] | None, dataset: PairDataset, progress: Callable[[int, int], None]) -> Any:
    if encoder is None:
        return None
    progress(0, len(dataset.texts))
    from bsc_core.encoders import embed

    return embed(EncoderConfig.model_validate(encoder), dataset.texts, progress=progress)


def _build(item: PlanItem, dataset: PairDataset, vectors: Any, progress: Callable[[int, int], None]) -> PlanStats:
    if item.saved is not None:
        return plan_stats(partial(BatchPlan.load, item.saved, dataset), dataset, vectors, item.batch_size)
    config = BatchingConfig.model_validate(item.batching)
    build = partial(build_plan, config, dataset, vectors, seed=item.seed, epoch=item.epoch, progress=progress)
    return plan_stats(build, dataset, vectors, item.batch_size)


class StageProgress:
    """Progress within one stage with an estimate of its remaining time, written at most a few times a second."""

    def __init__(self, folder: Path, stage: int, stages: int, doing: str) -> None:
        self.folder, self.stage, self.stages, self.doing = folder, stage, stages, doing
        self.last, self.start = 0.0, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Report `done` of `total` units of the stage."""
        now = time.monotonic()
        if now - self.last >= PROGRESS_SECONDS:
            self.last = now
            percent = int(100 * done / max(1, total))
            counted = f", {done:,} of {total:,}" if total > 1 else ""
            if 0 < done < total:
                counted += f", about {duration((now - self.start) * (total - done) / done)} left"
            write_progress(self.folder, 100 * self.stage + percent, 100 * self.stages, self.doing + counted)


def main(arguments: Sequence[str]) -> int:
    """Perform the request in the folder given as the only argument; see `run_task`."""
    return run_task(build_plans, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

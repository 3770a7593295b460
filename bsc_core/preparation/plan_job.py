"""Plans that take seconds or minutes, made and measured by a child process: `python -m bsc_core.preparation.plan_job`.

A folder holds rows.npz and, for each request, a folder with request.json, progress.json and log.txt; each plan appears
whole beside them under its own name, so that a later request finds what an earlier one has made.
"""

# N rows, U distinct texts

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching import BatchPlan, MeasuredPlan, build_plan, measure_plan
from bsc_core.config import BatchingConfig, Columns, EncoderConfig
from bsc_core.data import PairDataset, ReadReport
from bsc_core.data.texts import TextTable
from bsc_core.errors import InputError
from bsc_core.projection import say

SECONDS_BETWEEN = 0.3  # two reports of progress


@dataclass(frozen=True)
class PlanItem:
    """One plan to be made: built from a config, or read from the file `saved`.

    name: of its file. vectors: path of a saved (U, D) array; None for those of the request's encoder.
    """

    name: str
    batch_size: int
    batching: dict[str, Any] | None = None
    seed: int = 0
    epoch: int = 0
    saved: str | None = None
    vectors: str | None = None


def plan_file(folder: Path, name: str) -> Path:
    """Where the plan of that name stands, once it is made."""
    return folder / f"{name}.npz"


def refused_file(request: Path, name: str) -> Path:
    """Where a request says in one sentence why the plan of that name cannot be made."""
    return request / f"{name}.refused.txt"


def save_rows(dataset: PairDataset, path: Path) -> None:
    """Write all that plans read of a dataset, whole or not at all."""
    columns = {field.name: getattr(dataset, field.name) for field in fields(dataset)}
    arrays: dict[str, NDArray[Any]] = {name: value for name, value in columns.items() if isinstance(value, np.ndarray)}
    raw = [text.encode("utf-8") for text in dataset.texts]
    arrays["text_bytes"] = np.frombuffer(b"".join(raw), dtype=np.uint8)
    arrays["text_ends"] = np.cumsum([len(one) for one in raw], dtype=np.int64)
    arrays["threshold"] = np.array(dataset.threshold)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub reads every keyword as allow_pickle
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_rows(path: Path) -> PairDataset:
    """Read what `save_rows` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    raw, ends = arrays.pop("text_bytes").tobytes(), arrays.pop("text_ends").tolist()
    texts = TextTable(tuple(raw[start:end].decode("utf-8") for start, end in zip([0, *ends], ends, strict=False)))
    rows = len(arrays["query"])
    report = ReadReport(str(path), rows, rows, (), Columns(query="query", document="document"), False, "row")
    absent = {name: None for name in ("label", "document_key", "split") if name not in arrays}
    threshold = float(arrays.pop("threshold"))
    return PairDataset(texts=texts, threshold=threshold, report=report, **absent, **arrays)  # type: ignore[arg-type]


def make_plans(folder: Path, request: Path) -> None:
    """Make the plans that request/request.json asks for, those that stand already left out.

    The request: {"encoder": {...} or None, "items": [fields of PlanItem]}.
    """
    wanted = json.loads((request / "request.json").read_text(encoding="utf-8"))
    items = [PlanItem(**item) for item in wanted["items"]]
    items = [item for item in items if not plan_file(folder, item.name).is_file()]
    stages = len(items) + 2
    say(request, 0, stages, "reading the rows")
    dataset = load_rows(folder / "rows.npz")
    vectors = _encoded(wanted["encoder"], dataset, _Teller(request, 0, stages, "encoding the texts"))
    for number, item in enumerate(items, 1):
        own = vectors if item.vectors is None else np.load(item.vectors, mmap_mode="r", allow_pickle=False)
        what = item.batching["strategy"] if item.batching else "the saved plan"
        tell = _Teller(request, number, stages, f"epoch {item.epoch + 1} of {what}")
        tell(0, 1)
        try:
            _made(item, dataset, own, tell).save(plan_file(folder, item.name))
        except InputError as refusal:  # the data do not suit this plan; the others go on
            refused_file(request, item.name).write_text(str(refusal), encoding="utf-8")
    say(request, stages, stages, "done")


def _encoded(encoder: dict[str, Any] | None, dataset: PairDataset, tell: Callable[[int, int], None]) -> Any:
    if encoder is None:
        return None
    tell(0, len(dataset.texts))
    from bsc_core.encoders import embed

    return embed(EncoderConfig.model_validate(encoder), dataset.texts, progress=tell)


def _made(item: PlanItem, dataset: PairDataset, vectors: Any, tell: Callable[[int, int], None]) -> MeasuredPlan:
    if item.saved is not None:
        return measure_plan(partial(BatchPlan.load, item.saved), dataset, vectors, item.batch_size)
    config = BatchingConfig.model_validate(item.batching)
    build = partial(build_plan, config, dataset, vectors, seed=item.seed, epoch=item.epoch, progress=tell)
    return measure_plan(build, dataset, vectors, item.batch_size)


class _Teller:
    """Progress inside one stage, written at most a few times a second."""

    def __init__(self, request: Path, stage: int, stages: int, doing: str) -> None:
        self.request, self.stage, self.stages, self.doing = request, stage, stages, doing
        self.last = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN:
            self.last = now
            part = int(100 * done / max(1, of))
            counted = f", {done:,} of {of:,}" if of > 1 else ""
            say(self.request, 100 * self.stage + part, 100 * self.stages, self.doing + counted)


def main(arguments: Sequence[str]) -> int:
    """FOLDER REQUEST: the folder of rows.npz and plans, and the request's own folder."""
    folder, request = Path(arguments[0]), Path(arguments[1])
    try:
        make_plans(folder, request)
    except Exception as error:  # the page reads the reason; the log beside it has the trace
        say(request, 0, 1, "stopped", error=f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

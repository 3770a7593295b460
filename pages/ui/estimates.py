"""What a run takes and brings: measured on this machine where it has been done before, else as measured beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.data.places import sample_data_folder
from bsc_core.errors import BscError
from bsc_core.runs import Run, RunStore

RUNS_LOOKED_AT = 50


@dataclass(frozen=True)
class Measured:
    """A run that was done: its seconds, the main metric on dev before and after, and whether it ran in this store."""

    seconds: float
    metric: str
    before: float | None
    after: float | None
    here: bool


@cache
def thumbnails() -> dict[str, Any]:
    """What the start page shows of the sample data: made by `python -m bsc_core.recipes.thumbnails`."""
    found: dict[str, Any] = json.loads((sample_data_folder() / "thumbnails.json").read_text(encoding="utf-8"))
    return found


def measured(store: RunStore, config: RunConfig) -> Measured | None:
    """What a run with these settings took and brought, the latest one here if there is one; None when not measured."""
    for run in store.list()[:RUNS_LOOKED_AT]:
        status = run.status()
        if status.state == "done" and status.started and status.finished and _same(run, config):
            before = ((run.read_json("evaluation/before") or {}).get("dev") or {}).get(status.metric_name)
            seconds = status.finished - status.started
            return Measured(seconds, status.metric_name or "", before, status.metric_best, here=True)
    known = thumbnails().get("run")
    return Measured(**known, here=False) if known else None


def _same(run: Run, config: RunConfig) -> bool:
    try:
        return run.config().model_copy(update={"name": ""}) == config
    except BscError:  # written by a version with other fields
        return False

"""Read every run of a folder and write the outcome of each as JSON: python read_runs.py FOLDER."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from bsc_core.batching import BatchPlan
from bsc_core.jobs.actions.resuming import _checkpoint_position
from bsc_core.runs import Run, RunStore
from bsc_core.runs.store import saved_epochs
from bsc_core.training.checkpoint import last_checkpoint
from bsc_core.users.access import run_access
from tests.hostile.outcomes import outcome, write_outcomes

READERS: dict[str, Callable[[Run], object]] = {
    "status": lambda run: (status := run.status()).error or status.state,
    "config": lambda run: run.config().data.train,
    "metrics": lambda run: f"{len(run.metrics(max_steps=1000)[0])} lines",
    "log": lambda run: f"{len(run.log_tail())} lines",
    "result": lambda run: sorted(run.read_json("result") or {}),
    "group": lambda run: sorted(run.read_json("group") or {}),
    "after": lambda run: sorted(run.evaluation("after")),
    "vectors": lambda run: None if (vectors := run.embeddings("after")) is None else vectors.shape,
    "plan": lambda run: len(BatchPlan.load(run.plan_file(1)).order),
    "epochs": saved_epochs,
    "checkpoint": lambda run: (state := last_checkpoint(run.checkpoints_folder)) and state.step,
    "negatives": lambda run: None if (rows := run.mined_negatives(1)) is None else rows.shape,
    "resuming": _checkpoint_position,
    "access": run_access,
}


@cache
def listed(root: Path) -> frozenset[str]:
    """Return the ids of the runs of a folder."""
    return frozenset(run.id for run in RunStore(root).list())


def parts(folder: Path) -> dict[str, str]:
    """Return whether a run is listed, and the outcome of reading each part; what was read follows "read: "."""
    run = Run(folder)
    read = {name: outcome(lambda part=part: f"read: {part(run)}") for name, part in READERS.items()}
    return {"listed": str(folder.name in listed(folder.parent)), **read}


if __name__ == "__main__":
    write_outcomes(parts)

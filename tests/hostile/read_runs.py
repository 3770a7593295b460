"""Read every run of a folder and write the outcome of each as JSON: python read_runs.py FOLDER."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bsc_core.batching import BatchPlan
from bsc_core.errors import BscError
from bsc_core.jobs.actions.resuming import _checkpoint_position
from bsc_core.runs import Run, RunStore, saved_epochs
from bsc_core.training.checkpoint import last_checkpoint
from bsc_core.users import run_access
from tests.hostile.read_files import peak_bytes

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


def outcome(read: Callable[[Run], object], run: Run) -> str:
    """Return the error of reading a part of a run, or what was read after "read: "."""
    try:
        return f"read: {read(run)}"
    except BscError as error:
        return str(error)
    except BaseException:
        return traceback.format_exc()


def main() -> None:
    root = Path(sys.argv[1])
    start = peak_bytes()
    listed, results, seconds = {run.id for run in RunStore(root).list()}, {}, {}
    for path in sorted(root.iterdir()):
        before, run = time.process_time(), Run(path)
        results[path.name] = {"listed": str(path.name in listed)}
        results[path.name] |= {name: outcome(read, run) for name, read in READERS.items()}
        seconds[path.name] = time.process_time() - before
        sys.stderr.write(f"{path}: {peak_bytes() - start:,} bytes\n")
    sys.stdout.write(json.dumps({"outcomes": results, "bytes": peak_bytes() - start, "seconds": seconds}))


if __name__ == "__main__":
    main()

"""Preflight in a background task: `python -m bsc_core.preflight.task FOLDER`.

Request: `{"config": {...}, "runs": folder}`. The report is written to result.json.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from bsc_core.background_task import run_task, write_progress, write_result
from bsc_core.config import make_config
from bsc_core.preflight import preflight
from bsc_core.runs import RunStore


def perform(folder: Path, request: Any) -> None:
    """Run the preflight of a request and write the report."""
    write_progress(folder, 0, 1, "loading the libraries")
    store, config = RunStore(request["runs"]), make_config(request["config"])
    report = preflight(config, store=store, on_progress=partial(write_progress, folder))
    write_result(folder, report.as_report())


if __name__ == "__main__":
    sys.exit(run_task(perform, sys.argv[1:]))

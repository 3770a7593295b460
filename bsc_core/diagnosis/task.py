"""Diagnosis in a background task: `python -m bsc_core.diagnosis.task FOLDER`.

Request: `{"run": folder}`. The report is written to result.json.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from bsc_core.background_task import run_task, write_progress, write_result
from bsc_core.diagnosis import diagnose
from bsc_core.runs import Run


def perform(folder: Path, request: Any) -> None:
    """Diagnose the run of a request and write the report."""
    diagnosis = diagnose(Run(Path(request["run"])), on_progress=partial(write_progress, folder))
    write_result(folder, diagnosis.as_report())


if __name__ == "__main__":
    sys.exit(run_task(perform, sys.argv[1:]))

"""Processes on this machine that outlive the one that starts them: workers, supervisors and ladders."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bsc_core
from bsc_core.errors import JobError
from bsc_core.runs import Run, RunStore

# Threads that wait for each other by spinning make two busy processes an order of magnitude slower than either alone.
CALM_PROCESS = {"TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
ROOTS = "BSC_ROOTS"  # what may be read is the launcher's to say, not the supervisor's, which another may have started
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package. `-P`: files in the working folder shadow no module."""
    return [sys.executable, "-P", "-m", f"bsc_core.jobs.{module}", *arguments]


def worker_environment(threads: int | None) -> dict[str, str]:
    """What has to be set before torch and its BLAS are loaded. threads: of each library; None leaves it to them."""
    return CALM_PROCESS | (dict.fromkeys(_THREAD_VARIABLES, str(threads)) if threads else {})


def start_supervisor(store: RunStore) -> None:
    """Start a detached supervisor; one that finds another at work ends at once."""
    _reap(start_detached(module_command("supervisor", str(store.root)), store.root / "supervisor.log", {}))


def start_ladder(run: Run, *, grace_seconds: float, terminate_seconds: float) -> None:
    """Start the detached process that sees to it that a run stops."""
    command = module_command("ladder", str(run.folder), str(grace_seconds), str(terminate_seconds))
    _reap(start_detached(command, run.log_file, {}))


def start_detached(command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: neither Ctrl-C nor the end of the caller reaches it.

    Its output is added to a file, never a pipe, so that it cannot block on a reader who has gone. Raises JobError.
    """
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", **_import_path(), **environment}
    try:
        with log_file.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=variables, **_detached()
            )
    except OSError as error:
        raise JobError(f"{Path(command[0]).name} could not be started ({error}); free memory or disk space") from error


def _detached() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _import_path() -> dict[str, str]:
    """Lets a child of a checkout that is not installed find this package too."""
    parent = str(Path(bsc_core.__file__).parents[1])
    if "site-packages" in Path(parent).parts:
        return {}
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([parent, others]) if others else parent}


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Collect the child's exit status whenever it ends, so that it is no zombie while the caller lives."""
    threading.Thread(target=child.wait, name=f"reap {child.pid}", daemon=True).start()

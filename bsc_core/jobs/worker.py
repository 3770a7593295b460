"""Worker: the process that executes one run; `python -m bsc_core.jobs.worker RUN_FOLDER`.

It records its identity, writes a heartbeat every few seconds, turns signals into a stop, and writes the final state and
exit status itself, since the exit status of a detached process cannot be read later.
"""

import _thread
import errno
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.errors import BscError, InputError, RunError, RunNotFoundError
from bsc_core.jobs.local.processes import (
    current_process,
    lower_priority,
    signal_handlers,
    wait_until,
    worker_environment,
)
from bsc_core.jobs.recovery import OUT_OF_MEMORY
from bsc_core.jobs.states import advance, move, stopped_message
from bsc_core.jobs.worker_ranks import follow, launched_rank
from bsc_core.runs import Run, RunStatus, State
from bsc_core.runs.documents import ENDED, RESULT, WORKER

Experiment = Callable[[RunConfig, Run], dict[str, Any]]
HEARTBEAT_SECONDS = 2.0
OUTCOME_SECONDS = 120.0
DISK_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# Messages of safetensors and torch, whose errors carry no error number.
_DISK_FULL_MESSAGES = ("No space left on device", "Disk quota exceeded", "file write failed", "unexpected pos")


@dataclass(frozen=True)
class Outcome:
    """Final state of a run; `exit_code` is 0 for done, 1 for failed or stopped, 2 for invalid input."""

    state: State
    exit_code: int
    message: str = ""
    error: str | None = None


def run_pipeline(config: RunConfig, run: Run) -> dict[str, Any]:
    """Execute the experiment; torch is imported here, after the environment is set."""
    run.update_status(message="Loading the libraries")  # which takes several seconds
    from bsc_core.pipeline import run_experiment

    return run_experiment(config, run)


def main(folder: Path | str, experiment: Experiment = run_pipeline) -> int:
    """Execute the run in `folder` and return the exit status."""
    faulthandler.enable()
    return perform(Run(Path(folder).resolve()), experiment)


def perform(run: Run, experiment: Experiment, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> int:
    """Execute `experiment(config, run)` in this process with states, a heartbeat and signal handling.

    Of several processes of a distributed run, only the main one does this; see `follow` for the others.

    Returns:
        The exit status; 1 without executing the run if it was stopped before or belongs to another process.
    """
    if launched_rank():
        return follow(run, experiment)
    if not _claim(run):
        return 1
    initial = run.status()
    with stop_on_signals(run), heartbeat(run, heartbeat_seconds):
        outcome = attempt(run, experiment)
    wait_until(lambda: _write_outcome(run, outcome, initial), OUTCOME_SECONDS, poll_seconds=1.0)
    return outcome.exit_code


def attempt(run: Run, experiment: Experiment) -> Outcome:
    """Execute the experiment and return its outcome; raises nothing."""
    try:
        config = run.config()
        os.environ.update(worker_environment(config.training.threads))
        result = experiment(config, run)
        run.sync_metrics()  # a power cut after the final state loses none
        run.write_json(RESULT, result)
        state: State = result.get("state", "done")
        return Outcome("done", 0) if state == "done" else Outcome(state, 1, message=stopped_message(run))
    except KeyboardInterrupt:
        return Outcome("stopped", 1, message=stopped_message(run))
    except InputError as error:
        return Outcome("failed", 2, error=str(error))
    except BscError as error:
        return Outcome("failed", 1, error=str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome("failed", 1, error=_cause(error))


def stop_on_signals(run: Run) -> AbstractContextManager[None]:
    """Make Ctrl-C stop the run after its current step; a second Ctrl-C and SIGTERM interrupt it."""

    def request_stop(number: int, frame: FrameType | None) -> None:
        run.request_stop()
        sys.stderr.write("stopping after this step; press Ctrl-C again to interrupt it\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return signal_handlers({signal.SIGINT: request_stop, signal.SIGTERM: signal.default_int_handler})


@contextmanager
def heartbeat(run: Run, seconds: float) -> Iterator[None]:
    """Write a heartbeat every `seconds` while the body runs, also during a long step."""
    ended = threading.Event()

    def beat() -> None:
        known = run.status()
        while not ended.wait(seconds):
            try:
                if not run.exists:
                    raise RunNotFoundError(f"run {run.id}: its folder was deleted")
                known = run.change_status(partial(_with_heartbeat, known=known, now=run.clock()))
            except RunNotFoundError as error:  # its results would be lost
                sys.stderr.write(f"{error}; the run ends\n")
                _thread.interrupt_main(signal.SIGTERM)
                return
            except (OSError, RunError) as error:  # such as a full disk; training may still continue
                sys.stderr.write(f"the heartbeat could not be written: {error}\n")
            if known.pid is not None and known.pid != os.getpid():
                sys.stderr.write(f"process {known.pid} executes this run now; this one ends\n")
                _thread.interrupt_main(signal.SIGTERM)
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _claim(run: Run) -> bool:
    """Claim the run for this process. Returns False if it was stopped before it started."""
    identity = current_process()

    def claim(status: RunStatus) -> RunStatus:
        if status.state not in ("queued", "starting"):
            return status
        return move(status, "running", now=run.clock(), pulse=time.monotonic(), **identity)

    status = run.change_status(claim)
    if status.state == "stopping":
        status = advance(run, "stopped", message="stopped before it started")
    if status.state != "running" or status.pid != identity["pid"]:
        return False
    write = run.write_signed if status.backend == "local" else run.write_json  # only local processes get signals
    write(WORKER, identity)
    return True


def _write_outcome(run: Run, outcome: Outcome, initial: RunStatus) -> bool:
    """Write the outcome of the run. Returns False if that failed, as on a full disk.

    A damaged status is rebuilt from `initial`, the status at the start.
    """
    try:
        if run.status().pid not in (None, os.getpid()):
            return True  # another process executes it
        run.change_status(partial(_with_heartbeat, known=initial, now=run.clock()))
        run.write_json(ENDED, asdict(outcome))
        advance(run, **asdict(outcome))
    except RunNotFoundError:
        return True
    except (OSError, RunError) as error:
        sys.stderr.write(f"the final state could not be written: {error}\n")
        return False
    return True


def _with_heartbeat(status: RunStatus, *, known: RunStatus, now: float) -> RunStatus:
    """Return the status with a new heartbeat; a run marked lost, say during a laptop's sleep, is running again.

    A damaged status is rebuilt from `known`, the last one that this process read.
    """
    if not status.is_readable or (status.pid is None and status.state in ("lost", "queued", "starting")):
        status = replace(known, **current_process())
    if status.pid != os.getpid():
        return status
    if status.state == "lost":
        status = move(status, "running", now=now, finished=None, error=None)
    return replace(status, pulse=time.monotonic())


def _cause(error: Exception) -> str:
    """Return the cause of an unexpected error, and what to do about a full disk or memory."""
    is_os_error = isinstance(error, OSError) and (
        error.errno in DISK_FULL or "written" in str(error)
    )  # NumPy's message
    if is_os_error or any(message in str(error) for message in _DISK_FULL_MESSAGES):
        return f"the disk is full ({error}); free some space, then resume the run"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and "allocate memory" in str(error):
        return OUT_OF_MEMORY
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    lower_priority()
    raise SystemExit(main(sys.argv[1]))

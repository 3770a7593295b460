"""The process that performs one run: `python -m bsc_core.jobs.worker RUN_FOLDER`.

It says who it is, gives a sign of life every few seconds, turns signals into a stop, and writes the final state and the
exit status itself, since nobody can read the exit status of a detached process later.
"""

from __future__ import annotations

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
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.errors import BscError, InputError, RunError, RunNotFoundError
from bsc_core.jobs.identity import own_identity, wait_until
from bsc_core.jobs.local import worker_environment
from bsc_core.jobs.ranks import follow, launched_rank
from bsc_core.jobs.reconciling import ENDED, OUT_OF_MEMORY, WORKER
from bsc_core.jobs.states import advance, move
from bsc_core.runs import Run, RunStatus, State

Experiment = Callable[[RunConfig, Run], dict[str, Any]]
HEARTBEAT_SECONDS = 2.0
CONCLUDE_SECONDS = 120.0
NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# As safetensors and torch say it, whose errors are none of the system's.
_NO_ROOM_WORDS = ("No space left on device", "Disk quota exceeded", "file write failed", "unexpected pos")
_STOPPED = "stopped; what was saved by then is kept"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. exit_code: 0 done, 1 failed or stopped, 2 its input was refused."""

    state: State
    exit_code: int
    message: str = ""
    error: str | None = None


def run_pipeline(config: RunConfig, run: Run) -> dict[str, Any]:
    """The experiment that workers perform; torch is imported here, after the environment is set."""
    from bsc_core.pipeline import run_experiment

    return run_experiment(config, run)


def main(folder: Path | str, experiment: Experiment = run_pipeline) -> int:
    """Perform the run in `folder` and return the exit status."""
    faulthandler.enable()
    return perform(Run(Path(folder).resolve()), experiment)


def perform(run: Run, experiment: Experiment, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> int:
    """Perform a queued run in this process: states, heartbeat and signals around `experiment(config, run)`.

    Of several processes that a launcher started for it, only the main one does this; the others follow it.

    Returns the exit status; 1 without performing anything when the run was stopped before, or is another process's.
    """
    if launched_rank():
        return follow(run, experiment)
    if not _begin(run):
        return 1
    begun = run.status()
    with stop_on_signals(run), heartbeat(run, heartbeat_seconds):
        outcome = attempt(run, experiment)
    wait_until(lambda: _concluded(run, outcome, begun), CONCLUDE_SECONDS, poll_seconds=1.0)
    return outcome.exit_code


def attempt(run: Run, experiment: Experiment) -> Outcome:
    """Perform the experiment and say how it ended; no exception leaves this function."""
    try:
        config = run.config()
        os.environ.update(worker_environment(config.training.threads))
        result = experiment(config, run)
        run.write_json("result", result)
        state: State = result.get("state", "done")
        return Outcome("done", 0) if state == "done" else Outcome(state, 1, message=_STOPPED)
    except KeyboardInterrupt:
        return Outcome("stopped", 1, message=_STOPPED)
    except InputError as error:
        return Outcome("failed", 2, error=str(error))
    except BscError as error:
        return Outcome("failed", 1, error=str(error))
    except Exception as error:
        traceback.print_exc()
        cause = OUT_OF_MEMORY if _is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        if _is_full_disk(error):
            cause = f"the disk took no more ({error}); free some space, then resume the run"
        return Outcome("failed", 1, error=cause)


@contextmanager
def stop_on_signals(run: Run) -> Iterator[None]:
    """Ctrl-C asks the run to stop after its step, and breaks it off when pressed again; SIGTERM breaks it off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        run.request_stop()
        sys.stderr.write("stopping after this step; press Ctrl-C again to break it off\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, ask),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heartbeat(run: Run, seconds: float) -> Iterator[None]:
    """Write a sign of life every few seconds while the body runs, also through a long step."""
    ended = threading.Event()

    def beat() -> None:
        known = run.status()
        while not ended.wait(seconds):
            try:
                if not run.exists:
                    raise RunNotFoundError(f"run {run.id}: its folder was deleted")
                known = run.change_status(partial(_living, known=known, now=run.clock()))
            except RunNotFoundError as error:  # nobody can see what it does any more
                sys.stderr.write(f"{error}; the run ends\n")
                _thread.interrupt_main(signal.SIGTERM)
                return
            except (OSError, RunError) as error:  # a full disk: training may still go on
                sys.stderr.write(f"no sign of life could be written: {error}\n")
            if known.pid is not None and known.pid != os.getpid():
                sys.stderr.write(f"process {known.pid} performs this run now; this one ends\n")
                _thread.interrupt_main(signal.SIGTERM)
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _begin(run: Run) -> bool:
    """Take the run for this process. False when it was stopped before it began."""
    identity = own_identity()

    def take(status: RunStatus) -> RunStatus:
        if status.state not in ("queued", "starting"):
            return status
        return move(status, "running", now=run.clock(), pulse=time.monotonic(), **identity)

    status = run.change_status(take)
    if status.state == "stopping":
        status = advance(run, "stopped", message="stopped before it began")
    if status.state != "running" or status.pid != identity["pid"]:
        return False
    run.write_json(WORKER, identity)
    return True


def _concluded(run: Run, outcome: Outcome, begun: RunStatus) -> bool:
    """Write how the run ended. False when it could not be written now, as on a full disk.

    begun: the status with which it began, from which one that was damaged is written anew.
    """
    try:
        if run.status().pid not in (None, os.getpid()):
            return True  # another process performs it
        run.change_status(partial(_living, known=begun, now=run.clock()))
        run.write_json(ENDED, asdict(outcome))
        advance(run, **asdict(outcome))
    except RunNotFoundError:
        return True
    except (OSError, RunError) as error:
        sys.stderr.write(f"how the run ended could not be written: {error}\n")
        return False
    return True


def _living(status: RunStatus, *, known: RunStatus, now: float) -> RunStatus:
    """The status with a new heartbeat; a run given up for lost, say over a laptop's sleep, is running again.

    known: the status as this process last saw it, from which one that was damaged is written anew.
    """
    if not status.is_readable or (status.pid is None and status.state in ("lost", "queued", "starting")):
        status = replace(known, **own_identity())
    if status.pid != os.getpid():
        return status
    if status.state == "lost":
        status = move(status, "running", now=now, finished=None, error=None)
    return replace(status, pulse=time.monotonic())


def _is_full_disk(error: Exception) -> bool:
    if isinstance(error, OSError) and (error.errno in NO_ROOM or "written" in str(error)):  # NumPy counts bytes
        return True
    return any(word in str(error) for word in _NO_ROOM_WORDS)


def _is_out_of_memory(error: Exception) -> bool:
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))

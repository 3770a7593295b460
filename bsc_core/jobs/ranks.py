"""A run that a launcher started as several processes, one for each device: one performs it, the others follow.

`accelerate launch` and torchrun name each process in its environment. Only the main one, of rank 0, makes the run and
writes into its folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.errors import BscError, InputError
from bsc_core.runs import Run


def launched_rank() -> int:
    """This process among those of its run, counted from 0; 0 without a launcher."""
    return int(os.environ.get("RANK", "0")) if is_together() else 0


def shared_run(make: Callable[[], Run]) -> Run:
    """The run that the main process makes, in all of them. Raises what `make` raises, in each."""
    if not is_together():
        return make()
    from bsc_core.training.ranks import start_ranks

    ranks = start_ranks()
    made: Run | BscError | None = None
    if ranks.is_main:
        try:
            made = make()
        except BscError as error:
            made = error
    told = ranks.share(made)
    if isinstance(told, Run):
        return told
    assert told is not None  # the main process gave one of both
    raise told


def follow(run: Run, experiment: Callable[[RunConfig, Run], dict[str, Any]]) -> int:
    """Do this process's part of a run that the main one performs. Returns the exit status: 0, 1 failed, 2 refused.

    Ctrl-C reaches every process; this one leaves it to the main one, whose stop ends them all after the same step.
    """
    from bsc_core.training.ranks import leave_ranks

    try:
        with _without_ctrl_c():
            experiment(run.config(), run)
        leave_ranks()
    except BscError as error:
        sys.stderr.write(f"process {launched_rank()}: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_together() -> bool:
    """True for one of several processes that a launcher started for one run."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1

"""Processes of a distributed run, one per device, as `accelerate launch` and torchrun start them.

The launcher sets each process's rank in its environment. Only rank 0 creates the run and writes into its folder.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.errors import BscError, InputError
from bsc_core.jobs.local.processes import signal_handlers
from bsc_core.runs import Run


def launched_rank() -> int:
    """Return the rank of this process; 0 without a launcher."""
    return int(os.environ.get("RANK", "0")) if is_distributed() else 0


def shared_run(create: Callable[[], Run]) -> Run:
    """Create a run in the main process and return it in all of them. Raises in each what `create` raises."""
    if not is_distributed():
        return create()
    from bsc_core.training.loop.distributed import Distributed

    distributed = Distributed.from_environment()
    created: Run | BscError | None = None
    if distributed.is_main:
        try:
            created = create()
        except BscError as error:
            created = error
    received = distributed.broadcast(created)
    if isinstance(received, Run):
        return received
    assert received is not None  # the main process sent a run or an error
    raise received


def follow(run: Run, experiment: Callable[[RunConfig, Run], dict[str, Any]]) -> int:
    """Execute this process's part of a distributed run. Returns the exit status: 0 done, 1 failed, 2 refused.

    Ctrl-C is ignored here: the main process also receives it and stops all of them after the same step.
    """
    from bsc_core.training.loop.distributed import leave_process_group

    try:
        with signal_handlers({signal.SIGINT: lambda number, frame: None}):
            experiment(run.config(), run)
        leave_process_group()
    except BscError as error:
        sys.stderr.write(f"process {launched_rank()}: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def is_distributed() -> bool:
    """Return whether this is one of several processes of a run."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1

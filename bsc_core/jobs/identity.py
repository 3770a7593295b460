"""Who a process is: its pid and the time it was created, since a pid alone is given to another process later."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil

from bsc_core.runs import RunStatus

_CLOCK_DRIFT_SECONDS = 2.0  # creation times are counted from the boot time, which the system's clock corrections move
_POLL_SECONDS = 0.05


def own_identity() -> dict[str, float]:
    """The status fields that name the calling process."""
    return {"pid": os.getpid(), "process_created": psutil.Process().create_time()}


def identity_of(pid: int) -> dict[str, float | None]:
    """The status fields that name a process; its creation time is None when it has ended already."""
    try:
        return {"pid": pid, "process_created": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:
        return {"pid": pid, "process_created": None}


def find_process(status: RunStatus) -> psutil.Process | None:
    """The live process of a run; None when it has ended, is a zombie, or its pid belongs to another process now."""
    if status.pid is None or status.process_created is None:
        return None
    try:
        process = psutil.Process(status.pid)
        same = abs(process.create_time() - status.process_created) < _CLOCK_DRIFT_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def signal_group(status: RunStatus, number: signal.Signals) -> None:
    """Send a signal to the run's process and all that it started; nothing when the process has ended."""
    process = find_process(status)
    if process is None:
        return
    try:
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:  # a run in the foreground shares its group with the shell's other commands
            for member in [*process.children(recursive=True), process]:
                member.send_signal(number)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return  # it ended between the look and the signal, which is what was wanted


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look at a condition until it holds or the time is over. Returns whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True

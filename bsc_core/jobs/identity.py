"""Who a process is: its pid and when it was created, since a pid alone is given to another process later.

Where the system says it (Linux), the time is that of the boot's own counter, which no setting of the clock moves, with
the boot's id, since another machine may read the same runs folder. Elsewhere it is seconds since the epoch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from bsc_core.runs import RunStatus

_CLOCK_DRIFT_SECONDS = 2.0  # creation times are counted from the boot time, which the system's clock corrections move
_POLL_SECONDS = 0.05
_TICKS_FIELD = 19  # of /proc/PID/stat, counted from behind the name, which may hold blanks


def own_identity() -> dict[str, Any]:
    """The status fields that name the calling process."""
    return identity_of(os.getpid())


def identity_of(pid: int) -> dict[str, Any]:
    """The status fields that name a process; all but its pid are None when it has ended already."""
    try:
        return {"pid": pid, "process_created": psutil.Process(pid).create_time(), "process_mark": _mark(pid)}
    except psutil.NoSuchProcess:
        return {"pid": pid, "process_created": None, "process_mark": None}


def find_process(status: RunStatus) -> psutil.Process | None:
    """The live process of a run; None when it has ended, is a zombie, or its pid belongs to another process now."""
    if status.pid is None or status.process_created is None:
        return None
    try:
        process = psutil.Process(status.pid)
        return process if _is_same(status, process) and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def is_of_this_boot(status: RunStatus) -> bool:
    """False for a process of another machine, or of this one before it was started anew; True where nothing says."""
    boot = _boot()
    return boot is None or status.process_mark is None or status.process_mark.startswith(f"{boot}:")


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


def wait_until(condition: Callable[[], bool], seconds: float, *, poll_seconds: float = _POLL_SECONDS) -> bool:
    """Look at a condition until it holds or the time is over. Returns whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


def _is_same(status: RunStatus, process: psutil.Process) -> bool:
    mark = _mark(process.pid)
    if status.process_mark is not None and mark is not None:
        return status.process_mark == mark
    return abs(process.create_time() - (status.process_created or 0.0)) < _CLOCK_DRIFT_SECONDS


def _mark(pid: int) -> str | None:
    """The boot's id and the tick of that boot at which a process was created; None where the system does not say."""
    boot = _boot()
    try:
        behind_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    return f"{boot}:{behind_name.split()[_TICKS_FIELD]}" if boot else None


@lru_cache(maxsize=1)
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None

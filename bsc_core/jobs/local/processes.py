"""Processes on this machine: starting detached ones, identifying them, and signaling them.

A process is identified by its PID and start time, since a PID is reused. On Linux the start time is counted in ticks of
the current boot (`process_mark` in the run status): setting the clock does not change it. The boot's id and the number
of the PID namespace distinguish machines and containers that share a runs folder. Elsewhere it is seconds since the
epoch.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

import bsc_core
from bsc_core.background_task import NICENESS, reap
from bsc_core.errors import JobError
from bsc_core.files import as_json, atomic_write, no_link, read_regular
from bsc_core.runs import Run, RunStatus, RunStore

# Threads that spin while they wait make two busy processes ten times slower than one.
PROCESS_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
ROOTS = "BSC_ROOTS"  # set by the launcher of a run, not by the supervisor, which another user may have started
SESSION_PRIORITY = Path("/proc/self/autogroup")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_STARTING = ".supervisor.starting"  # identity of the supervisor that is being started
_START_TOLERANCE_SECONDS = 2.0  # psutil derives start times from the boot time, which clock corrections change
_POLL_SECONDS = 0.05
_START_TICKS_FIELD = 19  # of /proc/PID/stat, counted after the process name, which may contain blanks


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of `bsc_core.jobs`. `-P`: files in the working folder shadow no module."""
    return [sys.executable, "-P", "-m", f"bsc_core.jobs.{module}", *arguments]


def worker_environment(threads: int | None) -> dict[str, str]:
    """Return the variables to set before torch and BLAS are loaded; `threads` None leaves the number to them."""
    return PROCESS_ENVIRONMENT | (dict.fromkeys(_THREAD_VARIABLES, str(threads)) if threads else {})


def start_supervisor(store: RunStore, command: Sequence[str] = ()) -> None:
    """Start a detached supervisor, unless one is being started; it ends at once if another one is running.

    `command` replaces that of the supervisor.
    """
    starting = store.root / _STARTING
    try:
        if find_process(RunStatus(**json.loads(read_regular(starting)))) is not None:
            return
    except (OSError, ValueError, TypeError):  # there is none, or the file is damaged
        pass
    command = command or module_command("supervisor", str(store.root))
    child = start_detached(command, store.root / "supervisor.log", {})
    with suppress(OSError):  # then others are started as well, and end at once
        atomic_write(starting, as_json(process_fields(child.pid)))


def supervisor_started(root: Path) -> None:
    """Let further supervisors be started; called before this one takes the lock, so that no queued run is missed."""
    with suppress(OSError):
        (root / _STARTING).unlink(missing_ok=True)


def start_escalation(run: Run, *, grace_seconds: float, terminate_seconds: float) -> None:
    """Start the detached process that makes a run stop; see `bsc_core.jobs.actions.escalation`."""
    command = module_command("actions.escalation", str(run.folder), str(grace_seconds), str(terminate_seconds))
    start_detached(command, run.log_file, {})


def start_detached(command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a new session, which neither Ctrl-C nor the end of the caller reaches.

    Its output is appended to a file; a pipe would block once its reader is gone. The process is reaped when it ends.

    Raises:
        JobError: The system cannot start the process.
    """
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", **_import_path(), **environment}
    try:
        with open(log_file, "ab", opener=no_link) as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=variables, **_detached()
            )
    except OSError as error:
        raise JobError(f"{Path(command[0]).name} could not be started ({error}); free memory or disk space") from error
    reap(child)
    return child


def lower_priority() -> None:
    """Let the app go first: lower the priority of this process and of those that it starts."""
    if sys.platform == "win32":
        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        niceness = os.nice(NICENESS)
        if os.getsid(0) == os.getpid():  # Linux may schedule each session as a group, with a priority of its own
            with suppress(OSError):
                SESSION_PRIORITY.write_text(str(niceness))


def current_process() -> dict[str, Any]:
    """Return the status fields that identify the calling process."""
    return process_fields(os.getpid())


def process_fields(pid: int) -> dict[str, Any]:
    """Return the status fields that identify a process; all but its PID are None if it has ended."""
    try:
        return {"pid": pid, "process_created": psutil.Process(pid).create_time(), "process_mark": _start_mark(pid)}
    except psutil.NoSuchProcess:
        return {"pid": pid, "process_created": None, "process_mark": None}


def find_process(status: RunStatus) -> psutil.Process | None:
    """Return the live process of a run; None if it has ended, is a zombie, or its PID was reused."""
    if status.pid is None or status.process_created is None:
        return None
    try:
        process = psutil.Process(status.pid)
        return process if _is_same(status, process) and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, ValueError, OverflowError):  # the number of no process, in a damaged file
        return None


def is_local_process(status: RunStatus) -> bool:
    """Return False for a process of another machine, container or boot; True where the system does not say."""
    here = _namespace()
    return here is None or status.process_mark is None or status.process_mark.startswith(f"{here}:")


def signal_group(status: RunStatus, number: signal.Signals) -> None:
    """Send a signal to the run's process and its children; does nothing if the process has ended."""
    process = find_process(status)
    if process is None:
        return
    try:
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:  # a run in the foreground shares its group with other commands of the shell
            for member in [*process.children(recursive=True), process]:
                member.send_signal(number)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return  # it ended in the meantime


def wait_until(condition: Callable[[], bool], seconds: float, *, poll_seconds: float = _POLL_SECONDS) -> bool:
    """Poll a condition until it is true or the time is over. Returns whether it became true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


@contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Handle signals in the block; does nothing outside the main thread, the only one that may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _detached() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _import_path() -> dict[str, str]:
    """Return the variable that lets a child of an uninstalled checkout import this package."""
    parent = str(Path(bsc_core.__file__).parents[1])
    if "site-packages" in Path(parent).parts:
        return {}
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([parent, others]) if others else parent}


def _is_same(status: RunStatus, process: psutil.Process) -> bool:
    mark = _start_mark(process.pid)
    if status.process_mark is not None and mark is not None:
        return status.process_mark == mark
    return abs(process.create_time() - (status.process_created or 0.0)) < _START_TOLERANCE_SECONDS


def _start_mark(pid: int) -> str | None:
    """Return `BOOT_ID-NAMESPACE:TICKS` at which a process was started; None where the system does not say."""
    here = _namespace()
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    return f"{here}:{after_name.split()[_START_TICKS_FIELD]}" if here else None


@lru_cache(maxsize=1)
def _namespace() -> str | None:
    """Return the id of the boot and the number of the PID namespace, in which a PID has a meaning."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}-{re.sub('[^0-9]', '', str(Path('/proc/self/ns/pid').readlink()))}"
    except OSError:
        return None

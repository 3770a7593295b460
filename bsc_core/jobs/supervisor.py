"""Supervisor: the one process of a runs folder that runs the scheduler; `bsc worker`.

It is detached, ends when no run waits or is active, and is started again by the next launch. Its end does not affect
workers: SIGTERM and Ctrl-C end it between two ticks, and after a kill the next supervisor recovers.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from filelock import Timeout

from bsc_core.errors import BscError, JobError
from bsc_core.jobs.backends import Backend
from bsc_core.jobs.local.processes import signal_handlers, supervisor_started
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.recovery import STALE_SECONDS, requeue
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.runs import RunStore

POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_GIVE_UP_SECONDS = 600.0


def supervise(
    store: RunStore,
    *,
    slots: int | None = None,
    backends: Mapping[str, Backend] | None = None,
    poll_seconds: float = POLL_SECONDS,
    keep: bool = False,
) -> int:
    """Run the scheduler until no run waits or is active, or SIGTERM or Ctrl-C arrives. Returns the runs started.

    Args:
        store: The runs.
        slots: Number of parallel runs; None: the queue's setting.
        backends: Backends by name, instead of the registered ones.
        poll_seconds: Seconds between two ticks.
        keep: Wait for further runs, and for another supervisor to end; otherwise return 0 at once if one is running.
    """
    started = 0
    supervisor_started(store.root)
    with stop_on_signals() as stopped:
        while not stopped.is_set():
            try:
                with supervisor_lock(store.root):
                    started += _run(Scheduler(store, slots, backends), stopped, poll_seconds, keep)
            except Timeout:
                if not keep:
                    return started
                stopped.wait(_RETRY_SECONDS)
            if not keep and not _has_waiting(store):  # a launch may have seen the lock while it was still held
                return started
    return started


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; a second Ctrl-C interrupts. Never set outside the main thread."""
    stopped = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with signal_handlers({signal.SIGINT: request_stop, signal.SIGTERM: request_stop}):
        yield stopped


def _run(scheduler: Scheduler, stopped: threading.Event, poll_seconds: float, keep: bool) -> int:
    """Tick repeatedly; errors of the queue or the disk are retried for up to ten minutes."""
    last_success = last_requeue = time.monotonic()
    reported = ""
    while not stopped.is_set() and scheduler.store.root.is_dir():
        pause = poll_seconds
        try:
            busy = scheduler.tick()
            if time.monotonic() - last_requeue > STALE_SECONDS:
                last_requeue = time.monotonic()
                requeue(scheduler.store)
            last_success, reported = time.monotonic(), ""
        except (OSError, BscError) as error:
            if time.monotonic() - last_success > _GIVE_UP_SECONDS:
                raise
            if str(error) != reported:
                reported = str(error)
                sys.stderr.write(f"{reported}\n")
            busy, pause = True, _RETRY_SECONDS
        if not busy and not keep:
            break
        stopped.wait(pause)
    return scheduler.started


def _has_waiting(store: RunStore) -> bool:
    if not store.root.is_dir():
        return False
    try:
        queued = Queue(store.root).snapshot()
    except JobError:  # the scheduler retries until it can be read
        return True
    return bool(queued.waiting) and not queued.paused


if __name__ == "__main__":
    supervise(RunStore(Path(sys.argv[1])))

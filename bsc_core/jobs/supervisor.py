"""The one process of a runs folder that takes runs from the queue and starts their workers: `bsc worker`.

It is detached, ends when nothing waits or runs, and is started again by the next launch. Its own end touches no worker:
SIGTERM and Ctrl-C end it between two looks at the queue, a kill at any moment leaves what the next one sets right.
"""

from __future__ import annotations

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
from bsc_core.jobs.backend import Backend
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.reconciling import STALE_SECONDS, requeue
from bsc_core.jobs.serving import Serving
from bsc_core.runs import RunStore

POLL_SECONDS = 0.25
_FAULT_SECONDS = 1.0
_GIVE_UP_SECONDS = 600.0


def supervise(
    store: RunStore,
    *,
    slots: int | None = None,
    backends: Mapping[str, Backend] | None = None,
    poll_seconds: float = POLL_SECONDS,
    keep: bool = False,
) -> int:
    """Serve the queue of a store until nothing waits or runs, or SIGTERM or Ctrl-C. Returns the number of runs taken.

    slots: runs at the same time; None: as the queue says. backends: by name, in place of those there are. keep: wait
    for further runs, and for the lock of another supervisor; else 0 is returned at once when another is at work.
    """
    taken = 0
    with stop_on_signals() as stopped:
        while not stopped.is_set():
            try:
                with supervisor_lock(store.root):
                    taken += _serve(Serving(store, slots, backends), stopped, poll_seconds, keep)
            except Timeout:
                if not keep:
                    return taken
                stopped.wait(_FAULT_SECONDS)
            if not keep and not _left(store):  # once more: a launch may have seen the lock while it was still held
                return taken
    return taken


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C breaks off. Other threads get an event that stays clear."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def ask(number: int, frame: FrameType | None) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(serving: Serving, stopped: threading.Event, poll_seconds: float, keep: bool) -> int:
    """Look at the queue again and again; a queue or disk that does not answer is waited for, up to ten minutes."""
    answered = looked_back = time.monotonic()
    told = ""
    while not stopped.is_set() and serving.store.root.is_dir():
        pause = poll_seconds
        try:
            busy = serving.look()
            if time.monotonic() - looked_back > STALE_SECONDS:
                looked_back = time.monotonic()
                requeue(serving.store)
            answered, told = time.monotonic(), ""
        except (OSError, BscError) as error:
            if time.monotonic() - answered > _GIVE_UP_SECONDS:
                raise
            if str(error) != told:
                told = str(error)
                sys.stderr.write(f"{told}\n")
            busy, pause = True, _FAULT_SECONDS
        if not busy and not keep:
            break
        stopped.wait(pause)
    return serving.taken


def _left(store: RunStore) -> bool:
    if not store.root.is_dir():
        return False
    try:
        standing = Queue(store.root).look()
    except JobError:  # whoever serves the queue waits until it answers
        return True
    return bool(standing.waiting) and not standing.paused


if __name__ == "__main__":
    supervise(RunStore(Path(sys.argv[1])))

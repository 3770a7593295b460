"""The one process of a runs folder that takes runs from the queue and starts their workers: `bsc worker`.

It is detached, ends when nothing waits or runs, and is started again by the next launch. Its own end touches no worker.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from filelock import Timeout

from bsc_core.errors import BscError, RunNotFoundError
from bsc_core.jobs.identity import identity_of
from bsc_core.jobs.local import start_worker
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.reconciling import settle, settle_ended
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStatus, RunStore

POLL_SECONDS = 0.25
Starter = Callable[[Run], subprocess.Popen[bytes]]


def supervise(
    store: RunStore, *, slots: int = 1, starter: Starter = start_worker, poll_seconds: float = POLL_SECONDS
) -> int:
    """Serve the queue of a store until nothing waits or runs. Returns the number of runs taken.

    slots: runs at the same time. Returns 0 at once when another supervisor is at work.
    """
    taken = 0
    while True:
        try:
            with supervisor_lock(store.root):
                taken += _serve(_Workers(store, starter), slots, poll_seconds)
        except Timeout:
            return taken
        if not Queue(store.root).waiting():  # once more: a launch may have seen the lock while it was still held
            return taken


@dataclass
class _Workers:
    """The claimed runs of a store, and the processes of those that this supervisor started."""

    store: RunStore
    starter: Starter
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = Queue(self.store.root)

    def recover(self) -> None:
        """Put back what an earlier supervisor claimed but did not live to start."""
        for run in self._claimed():
            if run.status().state == "queued":
                self.queue.release(run.id)

    def going(self) -> int:
        """The number of claimed runs that go on; those that do not are settled and leave the queue."""
        count = 0
        for run in self._claimed():
            if self._status(run).is_finished:
                self.queue.finish(run.id)
            else:
                count += 1
        return count

    def take_next(self) -> bool:
        """Claim the first waiting run and start its worker, unless it was stopped while waiting. False: none waits."""
        run_id = self.queue.claim()
        if run_id is None:
            return False
        run = self._find(run_id)
        if run is not None and advance(run, "starting").state == "starting":
            self._start(run)
        return True

    def _status(self, run: Run) -> RunStatus:
        child = self.children.get(run.id)
        if child is None:
            return settle(run)
        exit_code = child.poll()
        return run.status() if exit_code is None else settle_ended(run, exit_code)

    def _start(self, run: Run) -> None:
        try:
            child = self.starter(run)
        except BscError as error:
            advance(run, "failed", error=str(error))
            return
        self.children[run.id] = child
        run.update_status(**identity_of(child.pid))

    def _claimed(self) -> list[Run]:
        runs = [self._find(run_id) for run_id in self.queue.claimed()]
        return [run for run in runs if run is not None]

    def _find(self, run_id: str) -> Run | None:
        try:
            return self.store.get(run_id)
        except RunNotFoundError:  # its folder was deleted
            self.queue.finish(run_id)
            return None


def _serve(workers: _Workers, slots: int, poll_seconds: float) -> int:
    taken = 0
    workers.recover()
    while True:
        going = workers.going()
        if going < slots and workers.take_next():
            taken += 1
        elif going:
            time.sleep(poll_seconds)
        else:
            return taken


if __name__ == "__main__":
    supervise(RunStore(Path(sys.argv[1])))

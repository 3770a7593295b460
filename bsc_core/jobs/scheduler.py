"""Scheduler: starts waiting runs while slots are free and removes finished runs from the queue."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from bsc_core.errors import BscError, ConfigError, RunError, RunNotFoundError
from bsc_core.jobs.backends import Backend, BackendUnavailableError, get_backend
from bsc_core.jobs.local.devices import VISIBLE, default_slots, least_used, visible_gpus
from bsc_core.jobs.local.processes import worker_environment
from bsc_core.jobs.queue import Queue, QueueState
from bsc_core.jobs.recovery import not_started, refresh_status, repair_status
from bsc_core.jobs.states import advance, claim_start
from bsc_core.runs import Run, RunStatus, RunStore
from bsc_core.runs.documents import LAUNCHED
from bsc_core.runs.ids import parent_run_id
from bsc_core.users.access import check_still_shared

RETRY_SECONDS = 15.0
_DEVICE = "device"


class Scheduler:
    """Schedules the runs of one queue and counts those `started`; holds the backends' processes between ticks."""

    def __init__(
        self, store: RunStore, slots: int | None = None, backends: Mapping[str, Backend] | None = None
    ) -> None:
        """Create a scheduler; `slots` and `backends` (by name) replace those of the queue and the registry."""
        self.store = store
        self.started = 0
        self._queue = Queue(store.root)
        self._slots = slots
        self._backends = dict(backends or {})
        self._gpus = visible_gpus()
        self._retry_at: dict[str, float] = {}
        self._reported: dict[str, str] = {}

    def tick(self) -> bool:
        """Update the active runs and start waiting ones. Returns False if no run is active or can still start."""
        queued = self._queue.snapshot()
        active = self._active_runs(queued)
        waiting = self._start_waiting(queued, active)
        return bool(active) or waiting

    def _active_runs(self, queued: QueueState) -> list[Run]:
        """Return the claimed runs that are active; finished ones leave the queue, others return to waiting."""
        active = []
        for run, status in self._unfinished(queued.claimed):
            if status.state == "queued":
                self._queue.release(run.id)
            else:
                active.append(run)
        return active

    def _unfinished(self, run_ids: Iterable[str]) -> Iterator[tuple[Run, RunStatus]]:
        """Yield the runs that have not ended, with their updated status; the others leave the queue."""
        for run_id in run_ids:
            try:
                run = self.store.get(run_id)
            except RunNotFoundError:  # its folder was deleted, or the id is damaged
                self._queue.finish(run_id)
                continue
            status = self._current_status(run)
            if status.is_finished:
                self._queue.finish(run_id)
            else:
                yield run, status

    def _current_status(self, run: Run) -> RunStatus:
        """Return the updated status of a run; a failure is logged once and does not affect other runs."""
        try:
            return self._update_status(run)
        except (OSError, BscError) as error:
            if self._reported.get(run.id) != str(error):
                self._reported[run.id] = str(error)
                sys.stderr.write(f"run {run.id}: its state could not be updated ({error})\n")
            return replace(run.status(), state="running")

    def _update_status(self, run: Run) -> RunStatus:
        if not run.status().is_readable:
            status = repair_status(run)
            return status if status.is_readable else replace(status, state="running")  # its process may replace it
        try:
            backend = self._backend(run)
        except ConfigError as error:
            return advance(run, "failed", error=str(error))
        status = refresh_status(run, backend)
        if status.state == "starting" and not_started(status, backend.inspect(run)):
            return advance(run, "queued")  # an earlier supervisor ended before it started the run
        return status

    def _start_waiting(self, queued: QueueState, active: list[Run]) -> bool:
        """Start runs in order while slots are free and add them to `active`. Returns whether any still waits."""
        if queued.paused:
            return False
        slots = self._slots or queued.slots or default_slots(self._gpus)
        free = slots - sum(self._backend(run).takes_slot for run in active)
        still_waiting = False
        for run, status in self._unfinished(queued.waiting):
            if status.state != "queued":  # its worker outlived an earlier supervisor
                self._queue.claim(run.id)
                active.append(run)
            elif (free <= 0 and self._backend(run).takes_slot) or not self._is_ready(run, status):
                still_waiting = True
            elif self._queue.claim(run.id) is not None and self._start(run, active):
                active.append(run)
                free -= self._backend(run).takes_slot
            else:
                still_waiting = True
        return still_waiting

    def _is_ready(self, run: Run, status: RunStatus) -> bool:
        """Return whether a waiting run may start now; one that never can is set to failed or lost."""
        if time.monotonic() < self._retry_at.get(status.backend, 0.0):
            return False
        if run.read_signed(LAUNCHED) is None:  # the queue is from elsewhere, too
            advance(run, "lost", error="it was not launched in this runs folder; launch it again")
            return False
        try:
            if waits_for(self.store, run) is not None:
                return False
            check_still_shared(self.store, run)
            return True
        except BscError as error:
            advance(run, "failed", error=str(error))
            return False

    def _start(self, run: Run, active: list[Run]) -> bool:
        """Start a claimed run. Returns False if it has been stopped, failed to start, or has to wait again."""
        if not claim_start(run):
            return False
        self.started += 1
        backend = self._backend(run)
        try:
            backend.start(run, self._environment(run, backend, active))
        except BackendUnavailableError as error:
            self._retry_at[run.status().backend] = time.monotonic() + RETRY_SECONDS
            self.started -= 1
            advance(run, "queued", message=str(error))
            self._queue.release(run.id)
            return False
        except BscError as error:
            advance(run, "failed", error=str(error))
            return False
        return True

    def _environment(self, run: Run, backend: Backend, active: list[Run]) -> dict[str, str]:
        launched = run.read_signed(LAUNCHED) or {}
        own = {name: value for name, value in launched.items() if name.startswith("BSC_")}
        environment = worker_environment(run.config().training.threads) | own
        if not (self._gpus and backend.takes_slot):
            return environment
        gpu = least_used(self._gpus, [(other.read_json(_DEVICE) or {}).get(VISIBLE, "") for other in active])
        run.write_json(_DEVICE, {VISIBLE: gpu})
        return environment | {VISIBLE: gpu}

    def _backend(self, run: Run) -> Backend:
        name = run.status().backend
        if name not in self._backends:
            self._backends[name] = get_backend(name)
        return self._backends[name]


def slots(store: RunStore) -> int:
    """Return the number of parallel runs: the queue's setting, else one, or one per GPU."""
    return Queue(store.root).snapshot().slots or default_slots(visible_gpus())


def waits_for(store: RunStore, run: Run) -> str | None:
    """Return the id of the run that a queued run waits for, since it starts from its model; None if it may start.

    Raises:
        BscError: It can never start: that run is unknown, left no model, or waits for this one.
    """
    if run.status().resumed_from:  # it starts from its checkpoint
        return None
    parent = store.awaited_run(run.config().encoder)
    if parent is None:
        return None
    _check_no_cycle(store, run)
    return parent.id


def _check_no_cycle(store: RunStore, run: Run) -> None:
    seen = [run.id]
    while True:
        try:
            last = store.get(seen[-1])
            parent = parent_run_id(last.config().encoder.name)
        except BscError:  # reported for that run itself
            return
        if parent is None or last.status().resumed_from:
            return
        if parent in seen:
            raise RunError(f"run {run.id} waits for itself ({' for '.join([*seen, parent])}); name another run")
        seen.append(parent)

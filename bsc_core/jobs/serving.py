"""One look of a supervisor at its queue: runs that have ended leave it, and those that may start are started."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from bsc_core.errors import BscError, ConfigError, RunNotFoundError
from bsc_core.jobs.backend import AwayError, Backend
from bsc_core.jobs.backends import backend_named
from bsc_core.jobs.chains import waits_for
from bsc_core.jobs.devices import VISIBLE, default_slots, least_used, visible_gpus
from bsc_core.jobs.local import worker_environment
from bsc_core.jobs.queue import LAUNCHED, Queue, Standing
from bsc_core.jobs.reconciling import is_unborn, mend, settle
from bsc_core.jobs.states import advance, started
from bsc_core.runs import Run, RunStatus, RunStore

AWAY_SECONDS = 15.0
_DEVICE = "device"


class Serving:
    """What one supervisor knows between its looks: the backends with their processes, and the number of runs taken."""

    def __init__(
        self, store: RunStore, slots: int | None = None, backends: Mapping[str, Backend] | None = None
    ) -> None:
        self.store = store
        self.taken = 0
        self._queue = Queue(store.root)
        self._slots = slots
        self._backends = dict(backends or {})
        self._gpus = visible_gpus()
        self._away_until: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def look(self) -> bool:
        """Settle what has ended and start what may start. False when nothing goes on and nothing waits for its turn."""
        standing = self._queue.look()
        going = self._going(standing)
        waiting = self._start_waiting(standing, going)
        return bool(going) or waiting

    def _going(self, standing: Standing) -> list[Run]:
        """The claimed runs that go on; those that have ended leave the queue, those never started wait again."""
        going = []
        for run_id in standing.claimed:
            run = self._find(run_id)
            status = self._settled(run) if run is not None else None
            if run is None or status is None or status.is_finished:
                self._queue.finish(run_id)
            elif status.state == "queued":
                self._queue.release(run_id)
            else:
                going.append(run)
        return going

    def _settled(self, run: Run) -> RunStatus:
        """The run's status, brought up to date where that can be done; what one run lacks keeps no other waiting."""
        try:
            return self._brought_up_to_date(run)
        except (OSError, BscError) as error:
            if self._told.get(run.id) != str(error):
                self._told[run.id] = str(error)
                sys.stderr.write(f"run {run.id}: its state could not be brought up to date ({error})\n")
            return replace(run.status(), state="running")

    def _brought_up_to_date(self, run: Run) -> RunStatus:
        if not run.status().is_readable:
            status = mend(run)
            return status if status.is_readable else replace(status, state="running")  # young: its process may mend it
        try:
            backend = self._backend(run)
        except ConfigError as error:
            return advance(run, "failed", error=str(error))
        status = settle(run, backend)
        if status.state == "starting" and is_unborn(status, backend.look(run)):
            return advance(run, "queued")  # an earlier supervisor did not live to start it
        return status

    def _start_waiting(self, standing: Standing, going: list[Run]) -> bool:
        """Start runs in their order while slots are free; `going` gains them. Returns whether any still waits."""
        if standing.paused:
            return False
        slots = self._slots or standing.slots or default_slots(self._gpus)
        free = slots - sum(self._backend(run).takes_slot for run in going)
        left = False
        for run_id in standing.waiting:
            run = self._find(run_id)
            status = self._settled(run) if run is not None else None
            if run is None or status is None or status.is_finished:
                self._queue.finish(run_id)
            elif status.state != "queued":  # it goes on though it should wait: a worker outlived its supervisor
                self._queue.claim(run_id)
                going.append(run)
            elif (free <= 0 and self._backend(run).takes_slot) or not self._is_ready(run, status):
                left = True
            elif self._queue.claim(run_id) is not None and self._start(run, going):
                going.append(run)
                free -= self._backend(run).takes_slot
            else:
                left = True
        return left

    def _is_ready(self, run: Run, status: RunStatus) -> bool:
        """Whether a waiting run may start now; one that never can fails here."""
        if time.monotonic() < self._away_until.get(status.backend, 0.0):
            return False
        try:
            return waits_for(self.store, run) is None
        except BscError as error:
            advance(run, "failed", error=str(error))
            return False

    def _start(self, run: Run, going: list[Run]) -> bool:
        """Start a claimed run. False when it was stopped meanwhile, could not be started, or has to wait again."""
        if not started(run):
            return False
        self.taken += 1
        backend = self._backend(run)
        try:
            backend.start(run, self._environment(run, backend, going))
        except AwayError as error:
            self._away_until[run.status().backend] = time.monotonic() + AWAY_SECONDS
            self.taken -= 1
            advance(run, "queued", message=str(error))
            self._queue.release(run.id)
            return False
        except BscError as error:
            advance(run, "failed", error=str(error))
            return False
        return True

    def _environment(self, run: Run, backend: Backend, going: list[Run]) -> dict[str, str]:
        environment = worker_environment(run.config().training.threads) | (run.read_json(LAUNCHED) or {})
        if not (self._gpus and backend.takes_slot):
            return environment
        gpu = least_used(self._gpus, [(other.read_json(_DEVICE) or {}).get(VISIBLE, "") for other in going])
        run.write_json(_DEVICE, {VISIBLE: gpu})
        return environment | {VISIBLE: gpu}

    def _backend(self, run: Run) -> Backend:
        name = run.status().backend
        if name not in self._backends:
            self._backends[name] = backend_named(name)
        return self._backends[name]

    def _find(self, run_id: str) -> Run | None:
        try:
            return self.store.get(run_id)
        except RunNotFoundError:  # its folder was deleted, or the name is damaged
            return None

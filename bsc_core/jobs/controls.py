"""The queue as a whole: how many runs go on at the same time, and whether further ones are started."""

from __future__ import annotations

from bsc_core.jobs.devices import default_slots, visible_gpus
from bsc_core.jobs.launching import Start, ensure_supervisor
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import Queue
from bsc_core.runs import RunStore


def pause(store: RunStore) -> None:
    """Start no further run until `unpause`; those that go on are not touched. Raises JobError."""
    Queue(store.root).pause()


def unpause(store: RunStore, *, start: Start = start_supervisor) -> None:
    """Start waiting runs again. Raises JobError."""
    Queue(store.root).unpause()
    ensure_supervisor(store, start=start)


def slots(store: RunStore) -> int:
    """Runs at the same time: what is set for the queue, else one, or one for each GPU. Raises JobError."""
    return Queue(store.root).slots or default_slots(visible_gpus())


def set_slots(store: RunStore, number: int | None) -> None:
    """Set the runs at the same time; None: one, or one for each GPU. Raises InputError below 1, JobError."""
    Queue(store.root).set_slots(number)

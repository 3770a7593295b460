"""Runs whose process has gone are found and given a final state, with the last line they wrote."""

from __future__ import annotations

from collections.abc import Callable

from bsc_core.jobs.identity import find_process
from bsc_core.jobs.launching import ensure_supervisor
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStatus, RunStore

STALE_SECONDS = 60.0
OUT_OF_MEMORY = "out of memory: lower the batch size, the tokens at once or the longest text, or close other programs"
_KILLED = (-9, 137)  # as Python and as a shell report SIGKILL


def reconcile(
    store: RunStore,
    *,
    stale_seconds: float = STALE_SECONDS,
    start: Callable[[RunStore], None] = start_supervisor,
) -> list[Run]:
    """Bring the states of all runs in line with what their processes do, and see to it that waiting runs are served.

    stale_seconds: a heartbeat older than this is none. Returns the runs that were found to have ended.
    """
    open_runs = [run for run in store.list() if not run.status().is_finished]
    for run in open_runs:
        _settle_unqueued(store, run, stale_seconds)
        settle(run, stale_seconds=stale_seconds)
    ensure_supervisor(store, start=start)
    return [run for run in open_runs if run.status().is_finished]


def settle(run: Run, *, stale_seconds: float = STALE_SECONDS) -> RunStatus:
    """Give a run that is said to go on, but whose process or heartbeat has gone, its final state; returns it."""
    status = run.status()
    if status.is_finished or status.state == "queued":
        return status
    age = run.clock() - status.updated
    if status.pid is None and age < stale_seconds:
        return status  # its process is being started
    if find_process(status) is None:
        return settle_ended(run)
    if age >= stale_seconds:
        return advance(run, "lost", error=_with_last_line(run, f"no sign of life for {age:.0f} s"))
    return status


def settle_ended(run: Run, exit_code: int | None = None) -> RunStatus:
    """Give a run whose process has ended its final state, unless it did so itself. exit_code: where it is known."""
    status = run.status()
    if status.state == "stopping":
        return advance(run, "stopped", exit_code=exit_code, message="stopped; what was saved by then is kept")
    if exit_code in _KILLED:
        cause = f"its process was killed, most likely {OUT_OF_MEMORY}"
    elif exit_code is None or exit_code < 0:
        cause = "its process ended without a word" + ("" if exit_code is None else f" (signal {-exit_code})")
    else:
        cause = f"its process ended with exit status {exit_code}"
        return advance(run, "failed", exit_code=exit_code, error=_with_last_line(run, cause))
    return advance(run, "lost", exit_code=exit_code, error=_with_last_line(run, cause))


def _settle_unqueued(store: RunStore, run: Run, stale_seconds: float) -> None:
    status = run.status()
    waited_long = status.state == "queued" and run.clock() - status.updated >= stale_seconds
    if waited_long and not Queue(store.root).holds(run.id):
        advance(run, "lost", error="its launch was cut off before it was queued; launch it again")


def _with_last_line(run: Run, cause: str) -> str:
    last = run.log_tail(1)
    return f"{cause}; last line of its log: {last[0]}" if last else f"{cause}; it wrote no log"

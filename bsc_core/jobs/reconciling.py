"""Runs whose process has gone are found and given a final state, with the last line they wrote."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bsc_core.errors import BscError, JobError, RunError
from bsc_core.jobs.backend import Backend, Look
from bsc_core.jobs.backends import backend_of
from bsc_core.jobs.launching import BACKEND, ensure_supervisor
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import LAUNCHED, Queue
from bsc_core.jobs.states import RESUMED, advance, move
from bsc_core.jobs.trash import KEPT_SECONDS, empty_trash
from bsc_core.runs import FINISHED, Run, RunStatus, RunStore

STALE_SECONDS = 60.0
MEND_SECONDS = 10.0
WORKER = "worker"
"""What a worker writes into the folder of the run that it has begun: who it is."""
ENDED = "ended"
"""What a worker writes just before it sets the final state: that state, with exit code, message and error."""
OUT_OF_MEMORY = "out of memory: lower the batch size, the tokens at once or the longest text, or close other programs"
_KILLED = (-9, 137)  # as Python and as a shell report SIGKILL
_KEPT = "stopped; what was saved by then is kept"


def reconcile(
    store: RunStore,
    *,
    stale_seconds: float = STALE_SECONDS,
    start: Callable[[RunStore], None] = start_supervisor,
) -> list[Run]:
    """Bring the states of all runs in line with what their processes do, and see to it that waiting runs are served.

    stale_seconds: a heartbeat older than this is none. Returns the runs that were found to have ended. Raises JobError
    when a state cannot be written or the queue does not answer, after all that could be done was done.
    """
    ended: list[Run] = []
    fault: Exception | None = None
    for run in reversed(store.list()):  # the oldest is queued again first
        try:
            if not run.status().is_readable:
                mend(run)
            if not run.status().is_finished:
                _requeue(store, run, stale_seconds)
                ended += [run] if settle(run, stale_seconds=stale_seconds).is_finished else []
        except (OSError, BscError) as error:
            fault = JobError(f"run {run.id}: its state could not be brought up to date ({error})")
    ensure_supervisor(store, start=start)
    empty_trash(store, older_than_seconds=KEPT_SECONDS)
    if fault is not None:
        raise fault
    return ended


def requeue(store: RunStore, *, stale_seconds: float = STALE_SECONDS) -> None:
    """Queue again what waits and is in no queue, as after damage to its file. Raises JobError as `reconcile` does."""
    for run in reversed(store.list()):
        if run.status().state in ("queued", "starting"):
            _requeue(store, run, stale_seconds)


def settle(run: Run, backend: Backend | None = None, *, stale_seconds: float = STALE_SECONDS) -> RunStatus:
    """Give a run that is said to go on, but whose process or heartbeat has gone, its final state; returns it.

    A run that is being started is left to its supervisor. backend: the run's, where the caller holds it.
    """
    before = run.status()
    if before.is_finished or before.state == "queued":
        return before
    look = (backend or backend_of(run)).look(run)
    status = run.status()  # a look may have brought news
    if status.is_finished or look.state == "unknown" or status.pid != before.pid:
        return status  # begun since the look, which tells nothing of that process
    if look.state == "ended":
        return status if is_unborn(status, look) else settle_ended(run, look)
    if look.silent_seconds >= stale_seconds:
        return advance(run, "lost", error=_with_last_line(run, f"no sign of life for {look.silent_seconds:.0f} s"))
    return status


def is_unborn(status: RunStatus, look: Look) -> bool:
    """True for a run that was taken from the queue and for which no process was started yet, as far as is known."""
    return status.state == "starting" and status.pid is None and look == Look("ended")


def settle_ended(run: Run, look: Look) -> RunStatus:
    """Give a run whose process has ended its final state, unless it did so itself."""
    exit_code = look.exit_code
    told = _told_end(run)
    if told is None and run.status().state == "stopping":
        told = {"state": "stopped", "message": _KEPT}
    if told is not None:
        return advance(run, **({"exit_code": exit_code} | told))
    cause = look.cause or _cause(exit_code)
    said = exit_code is not None and exit_code >= 0 and exit_code not in _KILLED
    return advance(run, "failed" if said else "lost", exit_code=exit_code, error=_with_last_line(run, cause))


def mend(run: Run) -> RunStatus:
    """Tell the state of a run whose status cannot be read from what else stands in its folder, and write it.

    Without a worker's note it is left alone while the file is young, since a worker that begins now may write it anew.
    """
    path, worker = run.folder / "status.json", _note(run, WORKER)
    if not worker and path.exists() and abs(time.time() - path.stat().st_mtime) < MEND_SECONDS:
        return run.status()
    made = (run.folder / "config.json").stat().st_mtime
    group = (_note(run, "group") or {}).get("group")
    launched = _note(run, LAUNCHED)
    parent = (_note(run, RESUMED) or {}).get("from")
    where = (launched or {}).get(BACKEND, "local")
    fresh = RunStatus(created=made, group=group, backend=where, resumed_from=parent)

    def told(status: RunStatus) -> RunStatus:
        if status.is_readable:
            return status
        end = _told_end(run)
        if end is not None:
            return move(fresh, now=run.clock(), **end)
        if worker is not None or (run.folder / f"{WORKER}.json").exists():  # whether it lives is looked up next
            return move(fresh, "running", now=run.clock(), **((worker or {}) if fresh.backend == "local" else {}))
        if run.stop_requested():
            return move(fresh, "stopped", now=run.clock(), message="stopped before it began")
        if launched is not None:
            return fresh
        return move(fresh, "lost", now=run.clock(), error="its status was damaged before it began; launch it again")

    return run.change_status(told)


def _told_end(run: Run) -> dict[str, Any] | None:
    """How the run ended by its own word: what its worker wrote of it, or its result, which is written before that."""
    ended, result = _note(run, ENDED) or {}, _note(run, "result")
    if ended.get("state") in FINISHED:
        return {name: ended.get(name) for name in ("state", "exit_code", "message", "error")}
    state = result.get("state", "done") if result is not None else None
    return {"state": state, "message": _KEPT if state == "stopped" else ""} if state in ("done", "stopped") else None


def _note(run: Run, name: str) -> dict[str, Any] | None:
    """What stands in a file of the run; None where it is not there or damaged, which keeps no run from its end."""
    try:
        value = run.read_json(name)
    except RunError:
        return None
    return value if isinstance(value, dict) else None


def _cause(exit_code: int | None) -> str:
    if exit_code in _KILLED:
        return f"its process was killed, most likely {OUT_OF_MEMORY}"
    if exit_code is None:
        return "its process ended without a word"
    if exit_code < 0:
        return f"its process ended without a word (signal {-exit_code})"
    return f"its process ended with exit status {exit_code}"


def _requeue(store: RunStore, run: Run, stale_seconds: float) -> None:
    """A run that waits but is not in the queue: its launch was cut off, or the queue's file was damaged."""
    status = run.status()
    waits = status.state == "queued" or (status.state == "starting" and status.pid is None)
    if not waits or run.clock() - status.updated < stale_seconds or Queue(store.root).serves(run.id):
        return
    if (run.folder / f"{LAUNCHED}.json").is_file():
        Queue(store.root).add_again(run.id)
    else:
        advance(run, "lost", error="its launch was cut off before it was queued; launch it again")


def _with_last_line(run: Run, cause: str) -> str:
    last = run.log_tail(1)
    return f"{cause}; last line of its log: {last[0]}" if last else f"{cause}; it wrote no log"

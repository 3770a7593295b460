"""Recovery of runs whose process ended without a final state, of unreadable statuses, and of unqueued runs."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bsc_core.errors import BscError, JobError, RunError
from bsc_core.files import as_json
from bsc_core.jobs.actions.launching import BACKEND, ensure_supervisor
from bsc_core.jobs.actions.trash import TRASH_SECONDS, empty_trash
from bsc_core.jobs.backends import Backend, ProcessInfo, backend_of
from bsc_core.jobs.local.processes import start_supervisor
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance, move, stopped_message
from bsc_core.runs import FINISHED, Run, RunStatus, RunStore
from bsc_core.runs.documents import ENDED, GROUP, LAUNCHED, RESULT, RESUMED, WORKER, status_from_json
from bsc_core.runs.signatures import is_trusted
from bsc_core.users.accounts import SHARED

STALE_SECONDS = 60.0
REPAIR_SECONDS = 10.0
IDENTITY = ("pid", "process_created", "process_mark")  # what `process_fields` returns
OUT_OF_MEMORY = (
    "out of memory: lower training.batch_size, training.micro_tokens or encoder.max_seq_length, or close other programs"
)
NOT_TRUSTED = "waits: you have not used this runs folder before; start its runs with `bsc queue resume`"
_KILLED = (-9, 137)  # SIGKILL as reported by Python and by a shell


def _explain_waiting(store: RunStore) -> None:
    """Say in the status of waiting runs why they do not start."""
    for run_id in Queue(store.root).snapshot().waiting:
        with suppress(BscError):
            run = store.get(run_id)
            if run.status().state == "queued" and run.status().message != NOT_TRUSTED:
                run.update_status(message=NOT_TRUSTED)


def reconcile(
    store: RunStore, *, stale_seconds: float = STALE_SECONDS, start: Callable[[RunStore], None] = start_supervisor
) -> list[Run]:
    """Update the states of all runs from their processes, and start a supervisor if runs wait.

    Waiting runs of the runs folder of the working folder are started only if this user created or used it before.
    A heartbeat older than `stale_seconds` is stale.

    Returns:
        The runs whose processes have ended.

    Raises:
        JobError: A state cannot be written or the queue cannot be read; raised after all other runs are updated.
    """
    ended: list[Run] = []
    failure: Exception | None = None
    # The working folder, and the runs folder in it, may be of others.
    trusted = store.root != Path("runs").resolve() or SHARED in os.environ or is_trusted(store.root)
    for run in reversed(store.list()):  # requeued oldest first
        if not trusted and run.status().backend != "local":  # it can name a cluster of others
            continue
        try:
            if not run.status().is_readable:
                repair_status(run)
            if not run.status().is_finished:
                _requeue(store, run, stale_seconds)
                ended += [run] if refresh_status(run, stale_seconds=stale_seconds).is_finished else []
        except Exception as error:  # whatever the files of a damaged run contain, the other runs are updated
            failure = JobError(f"run {run.id}: its state could not be updated ({error})")
    if trusted:
        ensure_supervisor(store, start=start)
    else:
        _explain_waiting(store)
    empty_trash(store, older_than_seconds=TRASH_SECONDS)
    if failure is not None:
        raise failure
    return ended


def requeue(store: RunStore, *, stale_seconds: float = STALE_SECONDS) -> None:
    """Queue the waiting runs that are in no queue, as after damage to its file.

    Raises:
        JobError: The queue fails.
    """
    for run in reversed(store.list()):
        if run.status().state in ("queued", "starting"):
            _requeue(store, run, stale_seconds)


def refresh_status(run: Run, backend: Backend | None = None, *, stale_seconds: float = STALE_SECONDS) -> RunStatus:
    """Give an active run its final state if its process has ended or its heartbeat is stale.

    A run that is being started is left to its supervisor.

    Args:
        run: The run to update.
        backend: Backend of the run; None to create it.
        stale_seconds: Seconds after which a heartbeat is stale.

    Returns:
        The status of the run, updated or not.
    """
    before = run.status()
    if before.is_finished or before.state == "queued":
        return before
    process = (backend or backend_of(run)).inspect(run)
    status = run.status()  # the inspection may have copied a newer one
    if status.is_finished or process.state == "unknown" or status.pid != before.pid:
        return status  # another process has started since the inspection
    if process.state == "ended":
        return status if not_started(status, process) else finalize_status(run, process)
    if status.state != "starting" and process.heartbeat_age >= stale_seconds:  # the first one may take minutes
        return advance(run, "lost", error=_with_last_line(run, f"no heartbeat for {process.heartbeat_age:.0f} s"))
    return status


def not_started(status: RunStatus, process: ProcessInfo) -> bool:
    """Return whether a run was claimed but, as far as is known, no process was started for it."""
    return status.state == "starting" and status.pid is None and process == ProcessInfo("ended")


def finalize_status(run: Run, process: ProcessInfo) -> RunStatus:
    """Give a run whose process has ended its final state, unless it has one."""
    exit_code = process.exit_code
    outcome = _reported_outcome(run)
    if outcome is None and run.status().state == "stopping":
        outcome = {"state": "stopped", "message": stopped_message(run)}
    if outcome is not None:
        return advance(run, **({"exit_code": exit_code} | outcome))
    cause = process.cause or _cause(exit_code)
    has_exited = exit_code is not None and exit_code >= 0 and exit_code not in _KILLED
    return advance(run, "failed" if has_exited else "lost", exit_code=exit_code, error=_with_last_line(run, cause))


def repair_status(run: Run) -> RunStatus:
    """Rebuild an unreadable status from the other files of the run.

    A recent status without a worker's file is not changed, since a starting worker may replace it.
    """
    path, worker = run.folder / "status.json", _read(run, WORKER)
    if not worker and path.exists() and abs(time.time() - path.stat().st_mtime) < REPAIR_SECONDS:
        return run.status()
    created = (run.folder / "config.json").stat().st_mtime
    group = (_read(run, GROUP) or {}).get("group")
    launched = run.read_signed(LAUNCHED)
    parent = (_read(run, RESUMED) or {}).get("from")
    backend = (launched or {}).get(BACKEND, "local")
    new = RunStatus(created=created, group=group, backend=backend, resumed_from=parent)
    identity = {name: value for name, value in (worker or {}).items() if name in IDENTITY}

    def rebuild(status: RunStatus) -> RunStatus:
        if status.is_readable:
            return status
        rebuilt = rebuild_from_files()
        try:
            status_from_json(as_json(asdict(rebuilt)))
        except ValueError:
            error = "its status and the files to rebuild it are damaged; launch it again"
            return move(RunStatus(created=created), "lost", now=run.clock(), error=error)
        return rebuilt

    def rebuild_from_files() -> RunStatus:
        outcome = _reported_outcome(run)
        if outcome is not None:
            return move(new, now=run.clock(), **outcome)
        if worker is not None or (run.folder / f"{WORKER}.json").exists():  # whether it is alive is checked next
            return move(new, "running", now=run.clock(), **(identity if new.backend == "local" else {}))
        if run.stop_requested():
            return move(new, "stopped", now=run.clock(), message="stopped before it started")
        if launched is not None:
            return new
        return move(new, "lost", now=run.clock(), error="its status was damaged before it started; launch it again")

    return run.change_status(rebuild)


def _reported_outcome(run: Run) -> dict[str, Any] | None:
    """Return the final state that the worker wrote, else the state in the result, which is written earlier."""
    ended, result = _read(run, ENDED) or {}, _read(run, RESULT)
    if ended.get("state") in FINISHED:
        return {name: ended.get(name) for name in ("state", "exit_code", "message", "error")}
    state = None if result is None else result.get("state", "done")
    messages = {"done": "", "stopped": stopped_message(run)}
    return {"state": state, "message": messages[state]} if state in messages else None


def _read(run: Run, name: str) -> dict[str, Any] | None:
    """Return the content of a file of the run; None if it is missing or damaged."""
    try:
        value = run.read_json(name)
    except RunError:
        return None
    return value if isinstance(value, dict) else None


def _cause(exit_code: int | None) -> str:
    if exit_code in _KILLED:
        killed = "its process was killed by signal 9"
        return f"{killed}, possibly {OUT_OF_MEMORY}" if memory_kills() else killed
    if exit_code is None:
        return "its process ended without a message"
    if exit_code < 0:
        return f"its process ended without a message (signal {-exit_code})"
    return f"its process ended with exit status {exit_code}"


def memory_kills() -> int:
    """Return how many processes Linux has killed for lack of memory since it started; 0 if that is not known."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _requeue(store: RunStore, run: Run, stale_seconds: float) -> None:
    """Queue a waiting run that is not in the queue: its launch was interrupted, or the queue's file was damaged."""
    status = run.status()
    waits = status.state == "queued" or (status.state == "starting" and status.pid is None)
    if not waits or abs(run.clock() - status.updated) < stale_seconds or Queue(store.root).contains(run.id):
        return
    if run.read_signed(LAUNCHED) is not None:
        Queue(store.root).requeue(run.id)
    else:
        advance(run, "lost", error="its launch was interrupted before it was queued; launch it again")


def _with_last_line(run: Run, cause: str) -> str:
    last = run.log_tail(1)
    return f"{cause}; " + (f"last line of its log: {last[0]}" if last else "it wrote no log")

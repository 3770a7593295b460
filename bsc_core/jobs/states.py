"""Which state of a run may follow which: a table, and the one function that moves a run along it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bsc_core.runs import FINISHED, Run, RunStatus, State

RESUMED = "resumed"
"""What is written into the folder of a run that goes on with another: which one, should its status be damaged."""
TRANSITIONS: dict[State, frozenset[State]] = {
    "queued": frozenset({"starting", "running", "stopped", "failed", "lost"}),
    "starting": frozenset({"running", "stopping", "stopped", "failed", "lost", "queued"}),  # no process was started
    "running": frozenset({"stopping", "done", "stopped", "failed", "lost"}),
    "stopping": frozenset({"done", "stopped", "failed", "lost"}),
    "done": frozenset(),
    "failed": frozenset(),
    "stopped": frozenset(),
    "lost": frozenset({"running", "stopped"}),  # its own process proves that it lives, or is found hanging and ended
}


def may_follow(state: State, following: State) -> bool:
    """True when a run in `state` may go on to `following`."""
    return following in TRANSITIONS[state]


def advance(run: Run, state: State, **changes: Any) -> RunStatus:
    """Move a run to a state, with other changes to its status.

    A move that the table refuses changes nothing, since another process was first. Returns the status after the call:
    its `state` says whether the move was made.
    """

    def change(status: RunStatus) -> RunStatus:
        return move(status, state, now=run.clock(), **changes) if may_follow(status.state, state) else status

    return run.change_status(change)


def started(run: Run) -> bool:
    """Take a queued run for starting. True for one caller only, whatever the queue says."""
    moved = False

    def change(status: RunStatus) -> RunStatus:
        nonlocal moved
        moved = status.state == "queued"
        return replace(status, state="starting") if moved else status

    run.change_status(change)
    return moved


def move(status: RunStatus, state: State, *, now: float, **changes: Any) -> RunStatus:
    """The status in its new state: a run that starts has `started`, one that ends has `finished` and no time to go."""
    if state == "running" and status.started is None:
        changes.setdefault("started", now)
    if state in FINISHED:
        changes = {"finished": now, "eta_seconds": None, **changes}
    return replace(status, state=state, **changes)

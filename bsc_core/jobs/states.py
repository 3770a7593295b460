"""Transitions between run states, and the functions that perform them."""

from dataclasses import replace
from typing import Any

from bsc_core.runs import FINISHED, Run, RunStatus, State

TRANSITIONS: dict[State, frozenset[State]] = {
    "queued": frozenset({"starting", "running", "stopped", "failed", "lost"}),
    "starting": frozenset({"running", "stopping", "stopped", "failed", "lost", "queued"}),  # queued: nothing started
    "running": frozenset({"stopping", "done", "stopped", "failed", "lost"}),
    "stopping": frozenset({"done", "stopped", "failed", "lost"}),
    "done": frozenset(),
    "failed": frozenset(),
    "stopped": frozenset(),
    "lost": frozenset({"running", "stopped"}),  # its process turned out to be alive, or to hang and was ended
}


def stopped_message(run: Run) -> str:
    """Return what a run that was stopped has saved."""
    has_checkpoint, has_model = any(run.checkpoints_folder.glob("step-*")), run.model_folder.is_dir()
    if not (has_checkpoint or has_model):
        return "stopped before a checkpoint or a model was saved"
    saved = ["checkpoints"] * has_checkpoint + ["the best model so far"] * has_model
    return f"stopped; {' and '.join(saved)} {'are' if has_checkpoint else 'is'} saved"


def may_follow(state: State, following: State) -> bool:
    """Return whether a run in `state` may move to `following`."""
    return following in TRANSITIONS[state]


def advance(run: Run, state: State, **changes: Any) -> RunStatus:
    """Move a run to a state and make other changes to its status.

    A forbidden transition changes nothing, since another process was first. Returns the resulting status.
    """

    def change(status: RunStatus) -> RunStatus:
        return move(status, state, now=run.clock(), **changes) if may_follow(status.state, state) else status

    return run.change_status(change)


def claim_start(run: Run) -> bool:
    """Move a queued run to `starting`. Returns True for exactly one caller."""
    claimed = False

    def change(status: RunStatus) -> RunStatus:
        nonlocal claimed
        claimed = status.state == "queued"
        return replace(status, state="starting") if claimed else status

    run.change_status(change)
    return claimed


def move(status: RunStatus, state: State, *, now: float, **changes: Any) -> RunStatus:
    """Return the status in a new state, with `started` or `finished` set and the remaining time cleared at the end."""
    if state == "running" and status.started is None:
        changes.setdefault("started", now)
    if state in FINISHED:
        changes = {"finished": now, "eta_seconds": None, **changes}
    return replace(status, state=state, **changes)

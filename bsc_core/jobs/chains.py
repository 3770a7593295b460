"""Chains: a run that starts from another run's model waits in the queue until that one has ended."""

from __future__ import annotations

from bsc_core.errors import BscError, RunError, RunNotFoundError
from bsc_core.runs import Run, RunStore, chain_of


def waits_for(store: RunStore, run: Run) -> str | None:
    """The run that a queued run waits for; None when it may start.

    Raises BscError in one sentence when it can never start: that run is unknown, left no model, or waits for this one.
    """
    parent = _parent(run)
    if parent is None:
        return None
    try:
        going = not store.get(parent).status().is_finished
    except RunNotFoundError:
        going = False
    if not going:
        store.encoder(run.config().encoder)
        return None
    _refuse_circle(store, run)
    return parent


def _parent(run: Run) -> str | None:
    """The run whose model a run is to start from; one that is resumed starts from its checkpoint."""
    return None if run.status().resumed_from else chain_of(run.config().encoder.name)


def _refuse_circle(store: RunStore, run: Run) -> None:
    seen = [run.id]
    while True:
        try:
            following = _parent(store.get(seen[-1]))
        except BscError:  # what that one lacks will be said of it
            return
        if following is None:
            return
        if following in seen:
            raise RunError(f"run {run.id}: it waits for itself ({' for '.join([*seen, following])}); name another run")
        seen.append(following)

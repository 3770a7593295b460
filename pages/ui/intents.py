"""The id of what a click is to launch: made once and kept until it was launched, so that no click launches it twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from bsc_core.config import RunConfig
from bsc_core.errors import InputError
from bsc_core.runs import RunStore, new_run_id


@contextmanager
def launching(key: str, plan: str, config: RunConfig, runs: RunStore) -> Iterator[str]:
    """Give the id to launch a plan with: the one of the click before, where that was refused or is of the same look.

    key: where the session keeps it. plan: what is to be launched, as text; another plan has another id. A refusal of
    the input forgets the id, since nothing was made; one of the queue, the disk or a process keeps it, since the run
    may have been made and queues itself later.
    """
    kept = st.session_state.get(key)
    if kept is None or kept["plan"] != plan or (kept["owed"] and _has_ended(runs, kept["id"])):
        kept = {"plan": plan, "id": new_run_id(config)}
    st.session_state[key] = {**kept, "owed": True}
    try:
        yield kept["id"]
    except InputError:
        del st.session_state[key]
        raise
    st.session_state[key] = {**kept, "owed": False}


def come_back(key: str) -> None:
    """A look at the page without a click: what was launched is forgotten, so that the next click launches another."""
    kept = st.session_state.get(key)
    if kept is not None and not kept["owed"]:
        del st.session_state[key]


def _has_ended(runs: RunStore, run_id: str) -> bool:
    """Whether a run that was refused at first was performed since, or given up for lost."""
    if not (runs.root / run_id).exists():
        return False
    status = runs.get(run_id).status()
    return status.is_readable and status.is_finished

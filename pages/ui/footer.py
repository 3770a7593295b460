"""The foot of the sidebar: the jobs that run now, live, each with a link to its run."""

from __future__ import annotations

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from bsc_core.figures import theme
from pages.ui import store

OPEN = "open"  # names a run in a link to the Runs page
ACTIVE = ("queued", "starting", "running", "stopping")


def draw() -> None:
    """Draw the running jobs in the sidebar; looked up again every 2 seconds while there are any."""
    with st.sidebar:
        every = "2s" if _active() else None
        st.fragment(_jobs, run_every=every)()


def _active() -> list[tuple[str, object]]:
    runs = [(run, run.status()) for run in store.run_store().list()[:30]]
    return [(run, status) for run, status in runs if status.state in ACTIVE]


def _jobs() -> None:
    active = _active()
    if not active:
        st.caption("No run is active.")
    for run, status in active:
        done = f"{100 * status.step // status.steps}%" if status.steps else status.state
        left = f", {theme.duration(status.eta_seconds)} left" if status.eta_seconds else ""
        try:
            st.page_link(
                "pages/runs.py",
                label=f"{done} · {_short(run.id)}{left}",
                icon=":material/progress_activity:",
                query_params={OPEN: run.id},
            )
        except StreamlitPageNotFoundError:
            st.text(f"{done} · {_short(run.id)}{left}")


def _short(run_id: str) -> str:
    """The id without the date and time that it begins with."""
    return run_id.split("-", 2)[-1]

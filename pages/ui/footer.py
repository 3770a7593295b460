"""The foot of the sidebar: the jobs that run now, live, each with a link to its run."""

from __future__ import annotations

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from bsc_core.figures import theme
from bsc_core.runs import Run, RunStatus
from pages.ui import store

OPEN = "open"  # names a run in a link to the Runs page
ACTIVE = ("running", "stopping", "starting", "queued")  # the order in which they stand
SHOWN = 5
WIDE = 18  # characters of a link that the sidebar shows whole


def draw() -> None:
    """Draw the running jobs in the sidebar; looked up again every 2 seconds while there are any."""
    with st.sidebar:
        going = bool(_active())
        st.fragment(_jobs, run_every="2s" if going else None)(going)


def _active() -> list[tuple[Run, RunStatus]]:
    """The runs that go on or wait, those that run first."""
    runs = [(run, run.status()) for run in store.run_store().list()]
    active = [(run, status) for run, status in runs if status.state in ACTIVE]
    return sorted(active, key=lambda one: (ACTIVE.index(one[1].state), one[1].created))


def _jobs(going: bool) -> None:
    active = _active()
    if going and not active:
        st.rerun(scope="app")  # once, so that nothing is looked up any more
    if not active:
        st.caption("No run is active.")
    for run, status in active[:SHOWN]:
        done = f"{100 * status.step // status.steps}%" if status.steps else status.state
        left = f", {theme.duration(status.eta_seconds)} left" if status.eta_seconds else ""
        waits = status.state == "queued"
        try:
            st.page_link(
                "pages/runs.py",
                label=label(done, run.id),
                icon=":material/schedule:" if waits else ":material/progress_activity:",
                query_params={OPEN: run.id},
                help=f"{store.short_id(run.id)}: {status.state}{left}",
            )
        except StreamlitPageNotFoundError:
            st.text(f"{done} · {store.short_id(run.id)}{left}")
    if len(active) > SHOWN:
        st.caption(f"and {theme.many(len(active) - SHOWN, 'more run')}")


def label(done: str, run_id: str) -> str:
    """`30% · 9907-001`: as much of the end of a run's id as fits, since the runs of a sweep begin alike."""
    parts = store.short_id(run_id).split("-")
    while len(parts) > 1 and len(f"{done} · {'-'.join(parts)}") > WIDE:
        parts = parts[1:]
    return f"{done} · {'-'.join(parts)}"

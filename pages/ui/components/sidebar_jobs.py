"""Active jobs at the end of the sidebar, each with a link to its run."""

import time
from pathlib import Path

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from bsc_core import formatting
from bsc_core.runs import Run, RunStatus
from bsc_core.runs.ids import short_id
from pages.ui.components import data_cache, turns, users

ACTIVE = ("running", "stopping", "starting", "queued")  # in display order
SHOWN = 5
UPDATE_INTERVAL, INTERVAL_OF_RUNS = "5s", "2s"  # every page of every session updates
MAX_AGE = 1.0  # seconds after which an update reads the runs again
WIDE = 20  # characters of a link that fit into the sidebar


def draw() -> None:
    """Draw the active jobs in the sidebar, updated while there are any, on the Runs page as often as its table."""
    with st.sidebar:
        refreshing = bool(_active())
        interval = INTERVAL_OF_RUNS if st.context.url and "/runs" in st.context.url else UPDATE_INTERVAL
        turns.fragment(_jobs, run_every=interval if refreshing else None)(refreshing)


def _active(max_age: float = 0.0) -> list[tuple[Run, RunStatus]]:
    """Return the active runs that the user sees, running ones first; all sessions of a user share the list.

    max_age: age in seconds up to which a list is not read again.
    """
    store, read, now = data_cache.run_store(), _latest(), time.monotonic()
    key = store.root, users.current_user().name
    if key not in read or now - read[key][0] >= max_age:
        runs = [(run, run.status()) for run in store.list()]
        active = [(run, status) for run, status in runs if status.state in ACTIVE]
        read[key] = now, sorted(active, key=lambda job: (ACTIVE.index(job[1].state), job[1].created))
    return read[key][1]


@st.cache_resource
def _latest() -> dict[tuple[Path, str], tuple[float, list[tuple[Run, RunStatus]]]]:
    """Return the active runs by runs folder and user, with the time at which they were read."""
    return {}


def _jobs(refreshing: bool) -> None:
    active = _active(MAX_AGE)
    if refreshing and not active:
        st.rerun(scope="app")  # ends the refresh
    if not active:
        st.caption("No run is active.")
    for run, status in active[:SHOWN]:
        done = f"{status.percent}%" if status.steps else status.state
        left = f", {formatting.duration(status.eta_seconds)} left" if status.eta_seconds else ""
        icon = ":material/schedule:" if status.state == "queued" else ":material/progress_activity:"
        about = f"{short_id(run.id)}: {status.state}{left}"
        try:
            st.page_link(
                "pages/runs.py", label=label(done, run.id), icon=icon, query_params={"run": run.id}, help=about
            )
        except StreamlitPageNotFoundError:
            st.text(f"{done} · {short_id(run.id)}{left}")
    if len(active) > SHOWN:
        st.caption(f"and {formatting.plural(len(active) - SHOWN, 'more run')}")


def label(done: str, run_id: str) -> str:
    """Return `30% · warmup 001` for a run of a group, and otherwise as much of the end of the run id as fits."""
    name, *member = short_id(run_id).split(" ")
    if member:
        left = WIDE - len(f"{done} ·  {member[0]}")
        return f"{done} · {formatting.shorten(name[:-5] or name, left)} {member[0]}"
    text = f"{done} · {name}"
    parts = name.split("-")[1:]
    while parts and len(text) > WIDE:
        text = f"{done} · …{'-'.join(parts)}"
        parts = parts[1:]
    return text

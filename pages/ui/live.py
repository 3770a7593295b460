"""One run as it goes: a status line, its progress and its parts, looked up again every 2 seconds until it ends."""

from __future__ import annotations

import streamlit as st

from bsc_core.figures import theme
from bsc_core.runs import Run, RunStatus
from pages.ui import queue_panel, run_actions, run_detail, run_list


def watch(run: Run) -> None:
    """Draw the run's state and curves; live while it goes on, and the whole page once more when it ends."""
    run_list.watched(lambda: _watch(run), [run])


def _watch(run: Run) -> None:
    status = run.status()
    head(run, status)
    run_detail.draw(run, status)


def head(run: Run, status: RunStatus) -> None:
    """One status line with what can be done, a progress bar, and the error where there is one."""
    look = run_list.STATES[status.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(status.state, icon=look.icon, color=look.colour)  # type: ignore[arg-type]
        st.text(status_line(status))
    run_actions.draw(run, status)
    if not status.is_finished:
        st.progress(status.progress, text=_doing(run, status))
    if status.error:
        with st.container(border=True):
            st.markdown(f":material/error: **{look.meaning}**")
            st.text(status.error)
            way_out = "resume the run or launch another" if run_actions.can_go_on(run) else "duplicate the run"
            st.caption(f"The end of the log is below; mend the cause, then {way_out}.")


def _doing(run: Run, status: RunStatus) -> str:
    """What the run does now, or what it waits for."""
    if status.state != "queued":
        return status.message or "Starting …"
    return queue_panel.waiting_words(run) or "Waits for its turn"


def status_line(status: RunStatus) -> str:
    """Where a run is in one line: `step 63 of 126 · epoch 2 of 3 · 48 s left`."""
    parts = []
    if status.steps:
        parts.append(f"step {theme.count(status.step)} of {theme.count(status.steps)}")
    if status.epochs:
        parts.append(f"epoch {status.epoch} of {status.epochs}")
    if status.eta_seconds and not status.is_finished:
        parts.append(f"{theme.duration(status.eta_seconds)} left")
    if status.finished and status.started:
        parts.append(f"took {theme.duration(status.finished - status.started)}")
    if status.metric_name:
        parts.append(f"best on dev: {run_list.best(status)}")
    if status.resumed_from:
        parts.append(f"goes on from {status.resumed_from}")
    told = status.message if status.is_finished else ""
    return " · ".join(parts) or told or run_list.STATES[status.state].meaning

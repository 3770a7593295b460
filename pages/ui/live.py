"""One run as it goes: a status line, its progress and its curves, looked up again every 2 seconds until it ends."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from bsc_core.config import to_toml
from bsc_core.errors import BscError
from bsc_core.figures import curves, theme
from bsc_core.runs import Run, RunStatus
from pages.ui import frame, run_list, show, store

LOG_LINES = 200


def watch(run: Run) -> None:
    """Draw the run's state and curves; live while it goes on, and the whole page once more when it ends."""
    going = not run.status().is_finished
    st.fragment(_watch, run_every=run_list.EVERY if going else None)(run, going)


def _watch(run: Run, going: bool) -> None:
    status = run.status()
    if going and status.is_finished:
        st.rerun(scope="app")
    head(run, status)
    pictures(run, status)
    detail(run, status)


def pictures(run: Run, status: RunStatus) -> None:
    """The curves of loss and temperature, or what stands in for them before the first step."""
    rows = run_list.metric_rows(run)
    if not any(row.get("kind") == "step" for row in rows):
        _waiting(status)
        return
    left, right = show.columns(2)
    with left:
        show.figure(curves.loss_curve({run.id: rows}), alt="Loss by step", name=f"loss.{run.id}", data=table(rows))
    with right:
        show.figure(curves.temperature_curve({run.id: rows}), alt="Temperature by step", name=f"temperature.{run.id}")


def _waiting(status: RunStatus) -> None:
    if not status.is_finished:
        st.caption("The curves of loss and temperature appear here with the first training step.")
        st.skeleton(height=200)


def head(run: Run, status: RunStatus) -> None:
    """One status line with a stop button, a progress bar, and the error where there is one."""
    look = run_list.STATES[status.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(status.state, icon=look.icon, color=look.colour)  # type: ignore[arg-type]
        st.text(status_line(status))
        if status.state in ("queued", "starting", "running"):
            stop_button(run)
        elif status.state != "done":
            resume_button(run)
    if not status.is_finished:
        st.progress(status.progress, text=status.message or ("Waiting" if status.state == "queued" else "Starting …"))
    if status.error:
        with st.container(border=True):
            st.markdown(f":material/error: **{look.meaning}**")
            st.text(status.error)
            st.caption("The end of the log is below; mend the cause, then resume the run or launch another.")


def resume_button(run: Run) -> None:
    """Go on from the last checkpoint as a new run, where the run left one."""
    from bsc_core.jobs import can_resume, resume

    if not can_resume(run):
        return
    words = "A new run goes on from the last checkpoint, as if this one had never ended"
    if st.button("Resume", key=f"runs.resume.{run.id}", icon=":material/play_arrow:", help=words):
        try:
            following = resume(store.run_store(), run)
        except BscError as fault:
            show.error(fault)
            return
        frame.go("runs", run=following.id)


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
    return " · ".join(parts) or run_list.STATES[status.state].meaning


def stop_button(run: Run) -> None:
    """Ask the run to stop after its current step; what it has learned is kept."""
    from bsc_core.jobs import stop

    if st.button("Stop", key=f"runs.stop.{run.id}", icon=":material/stop:", help="Keeps the best model so far"):
        try:
            stop(run)
        except BscError as fault:
            show.error(fault)
            return
        st.rerun()


def table(rows: list[dict[str, Any]]) -> Any:
    """The training steps as a table for download."""
    import pandas as pd

    return pd.DataFrame([row for row in rows if row.get("kind") == "step"]).drop(columns="kind", errors="ignore")


def before_after(run: Run) -> list[dict[str, str]]:
    """Every metric of every split before and after training, as text; empty while nothing is measured."""
    before, after = run.read_json("evaluation/before") or {}, run.read_json("evaluation/after") or {}
    return [
        _metric_line(split, name, metrics[name], (after.get(split) or {}).get(name), ended=bool(after))
        for split, metrics in before.items()
        for name in sorted(metrics, key=run_list.metric_place)
        if name not in run_list.COUNTS
    ]


def _metric_line(split: str, name: str, first: float | None, last: float | None, *, ended: bool) -> dict[str, str]:
    change = theme.change(last - first) if first is not None and last is not None else ""
    after = theme.metric(last) if ended else "not yet"
    return {"Split": split, "Metric": name, "Before": theme.metric(first), "After": after, "Change": change}


def detail(run: Run, status: RunStatus) -> None:
    """Metrics before and after, then log and config, each folded away."""
    rows = run_list.metric_rows(run)
    measured, curve = show.columns(2, least=380)
    with measured:
        lines = before_after(run)
        if lines:
            st.dataframe(lines, hide_index=True, key=f"runs.metrics.{run.id}", alt="Metrics before and after training")
        else:
            st.caption("Metrics before and after training will stand here; the encoder has not been measured yet.")
    with curve:
        name = status.metric_name
        if name and len(curves.evaluations(rows, name)) > 1:
            show.figure(curves.metric_curve({run.id: rows}, name), alt=f"{name} by epoch", name=f"dev.{run.id}")
    log = st.expander("Log", icon=":material/article:", key=f"runs.log.{run.id}", expanded=status.state == "failed")
    with log, st.container(height=260, border=False, autoscroll=True):
        st.code("\n".join(run.log_tail(LOG_LINES)) or "Nothing written yet.", language=None)
    with st.expander("Config", icon=":material/code:", key=f"runs.config.{run.id}"):
        st.code(to_toml(run.config()), language="toml", height=260)
        ended = f" · ended {when(status.finished)}" if status.finished else ""
        st.caption(f"{run.folder} · made {when(status.created)}{ended}")


def when(moment: float) -> str:
    """A moment in the local time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))

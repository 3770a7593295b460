"""The table of recent runs on the Start page."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from bsc_core import formatting
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import short_id
from pages.ui.components import display, page_layout, run_data, users

SHOWN_RUNS = 6


def draw(runs: RunStore) -> None:
    """Draw the recent runs, or a hint when there are none."""
    recent = runs.list()[:SHOWN_RUNS]
    if not recent:
        about = "Launch one above; its progress and result appear here."
        st.caption(f"There are no runs yet. {about}" if users.current_user().may_launch else users.NO_SHARED_RUN)
        return
    selected = st.dataframe(
        display.with_colors([_table_row(run) for run in recent], run_data.colors_alone([run.id for run in recent])),
        key="start.recent",
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        alt="Recent runs with state, progress, best metric and age",
        column_config={
            **display.COLOR_COLUMN,
            "Progress": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%d%%"),
        },
    )
    if selected.selection.rows:
        page_layout.switch_page("runs", run=recent[selected.selection.rows[0]].id)


def _table_row(run: Run) -> dict[str, Any]:
    status = run.status()
    best = (
        f"{formatting.metric_name(status.metric_name)} {formatting.metric(status.metric_best)}"
        if status.metric_name
        else "—"
    )
    left = formatting.duration(status.eta_seconds) if status.eta_seconds and not status.is_finished else ""
    return {
        "Run": short_id(run.id),
        "State": status.state,
        "Progress": status.percent,
        "Time left": left,
        "Best on dev": best,
        "Age": formatting.duration(max(0.0, time.time() - status.created)),
    }

"""The last runs as a small table; choosing one opens it."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from bsc_core.figures import theme
from bsc_core.runs import Run, RunStore
from pages.ui import frame

SHOWN = 6


def draw(runs: RunStore) -> None:
    """Draw the last runs, or say what would be here."""
    last = runs.list()[:SHOWN]
    if not last:
        st.caption("No run yet. Launch one above: it will stand here with its progress and its result.")
        return
    chosen = st.dataframe(
        [_line(run) for run in last],
        key="start.recent",
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        alt="The last runs with state, progress, best metric and age",
        column_config={"Progress": st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent")},
    )
    if chosen.selection.rows:
        frame.go("runs", run=last[chosen.selection.rows[0]].id)


def _line(run: Run) -> dict[str, Any]:
    status = run.status()
    best = f"{status.metric_name} {theme.metric(status.metric_best)}" if status.metric_name else "—"
    left = theme.duration(status.eta_seconds) if status.eta_seconds and not status.is_finished else ""
    return {
        "Run": frame.run_label(run.id),
        "State": status.state,
        "Progress": 1.0 if status.state == "done" else status.progress,
        "Left": left,
        "Best on dev": best,
        "Age": theme.duration(max(0.0, time.time() - status.created)),
    }

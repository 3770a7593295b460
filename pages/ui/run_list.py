"""The table of runs: one row each with state, progress, best metric and age; the choice is kept in the URL."""

from __future__ import annotations

import hashlib
import time
from typing import Any, NamedTuple

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from bsc_core.runs import Run, RunStatus
from pages.ui import frame, store

COMPARE = "compare"
EVERY = "2s"
FIRST = ("mrr", "map", "has_positive", "spearman", "f1", "average_precision", "accuracy")
COUNTS = ("queries", "documents", "gold_missing", "constant", "queries_without_positive")  # no measures of a model


class Look(NamedTuple):
    """How a state is shown: its mark in tables, its badge's icon and colour, and what it means."""

    mark: str
    icon: str
    colour: str
    meaning: str


STATES: dict[str, Look] = {
    "queued": Look("○", ":material/schedule:", "gray", "Waits for its turn; it starts by itself."),
    "starting": Look("◔", ":material/hourglass_top:", "blue", "Its process is being started."),
    "running": Look("●", ":material/play_arrow:", "blue", "Trains now; closing this page does not stop it."),
    "stopping": Look("◑", ":material/hourglass_bottom:", "orange", "Ends after its current step and keeps its model."),
    "done": Look("✓", ":material/check_circle:", "green", "Trained and measured."),
    "failed": Look("✗", ":material/error:", "red", "Ended with an error."),
    "stopped": Look("■", ":material/stop_circle:", "orange", "Stopped on request; its best model is kept."),
    "lost": Look("?", ":material/help:", "violet", "Its process is gone without a word."),
}


def choose(runs: list[Run]) -> list[str]:
    """Draw the table, live while a run goes on; return the ids of the chosen runs, the one in the URL first."""
    chosen = compare_with([run.id for run in runs])
    going = any(not run.status().is_finished for run in runs)
    st.fragment(_table, run_every=EVERY if going else None)(runs, chosen)
    return chosen


def _table(runs: list[Run], chosen: list[str]) -> None:
    """The widget is keyed by the runs that are listed, so a run that joins never moves the choice to another row."""
    ids = [run.id for run in runs]
    key = f"runs.table.{hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}"
    st.dataframe(
        [line(run) for run in runs],
        key=key,
        on_select=lambda: _keep(key, ids),
        selection_mode="multi-row",
        selection_default={"selection": {"rows": [ids.index(run_id) for run_id in chosen]}},
        hide_index=True,
        height=min(300, 38 + 36 * len(runs)),
        alt="Runs with state, progress, time left, best metric on dev and age",
        column_config={
            "Progress": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%d%%", width="small"),
            "Dev by epoch": st.column_config.LineChartColumn(width="small", help="The best metric after each epoch"),
        },
    )
    if _named() != chosen:  # a click inside this fragment: the rest of the page has to follow
        st.rerun(scope="app")


def _named() -> list[str]:
    first = st.session_state.get("run", frame.NO_RUN)
    return [] if first == frame.NO_RUN else [first, *st.session_state.get(COMPARE, [])]


def compare_with(ids: list[str]) -> list[str]:
    """The run of the context bar, then those to compare it with, which stand in the URL as `compare`."""
    first = st.session_state.get("run", frame.NO_RUN)
    if first not in ids:
        return []
    others = [run_id for run_id in ids if run_id != first]
    st.session_state[COMPARE] = [run_id for run_id in st.session_state.get(COMPARE, []) if run_id in others]
    if not others:
        return [first]
    words = "Choose rows of the table, or runs here"
    return [first, *st.multiselect("Compare with", others, key=COMPARE, bind="query-params", placeholder=words)]


def _keep(key: str, ids: list[str]) -> None:
    """Take over what was clicked: of the rows, the one chosen first is `run`, the others are `compare`."""
    before = _named()
    clicked = [ids[row] for row in st.session_state[key]["selection"]["rows"]]
    picked = sorted(clicked, key=lambda run_id: before.index(run_id) if run_id in before else len(before))
    st.session_state["run"] = picked[0] if picked else frame.NO_RUN
    st.session_state[COMPARE] = picked[1:]


def line(run: Run) -> dict[str, Any]:
    """One row of the table."""
    status = run.status()
    return {
        "Run": name(run),
        "State": f"{STATES[status.state].mark} {status.state}",
        "Progress": 100 if status.state == "done" else round(100 * status.progress),
        "Time left": theme.duration(status.eta_seconds) if status.eta_seconds and not status.is_finished else "",
        "Dev by epoch": dev_values(run, status.metric_name),
        "Best on dev": best(status),
        "Age": theme.duration(max(0.0, time.time() - status.created)),
    }


def name(run: Run) -> str:
    """A run's name and id; the id alone when its config cannot be read any more."""
    try:
        return frame.run_label(run.id)
    except BscError:
        return run.id


def best(status: RunStatus) -> str:
    """`mrr 0.812`, or a dash while nothing is measured."""
    return f"{status.metric_name} {theme.metric(status.metric_best)}" if status.metric_name else "—"


def dev_values(run: Run, metric: str | None) -> list[float]:
    """A metric on dev before training and after each epoch; empty while nothing is measured."""
    if metric is None:
        return []
    found = [row["dev"].get(metric) for row in metric_rows(run) if row.get("kind") == "evaluation" and row.get("dev")]
    return [value for value in found if value is not None]


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """All metric lines of a run; of a file seen before, only the bytes that are new are read."""
    kept: dict[str, tuple[list[dict[str, Any]], int]] = st.session_state.setdefault("runs.metrics", {})
    rows, start = kept.get(run.id, ([], 0))
    new, end = run.metrics(start)
    kept[run.id] = (rows + new, end)
    return kept[run.id][0]


def metric_place(name: str) -> tuple[int, int]:
    """The metrics that runs are compared by come first, then hits by their cut-off, then the rest."""
    kind, _, cut = name.partition("@")
    return (FIRST.index(kind) if kind in FIRST else len(FIRST), int(cut or 0))


def listed() -> list[Run]:
    """The runs, newest first, after dead processes have been noticed."""
    from bsc_core.jobs import reconcile

    reconcile(store.run_store())
    return store.run_store().list()

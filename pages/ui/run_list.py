"""The table of runs: one row each with state, step, best metric, group and age; what is chosen stands in the URL."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from bsc_core.runs import Run, RunStatus
from pages.ui import frame, show, store

COMPARE = "compare"
GROUP = "group"
KEPT_GROUP = "runs.group.kept"
EVERY_RUN = "every run"
EVERY = "2s"
DRAWN = "runs.table.drawn"  # the key of the table that is there now
TALL, LOW = 300, 182  # pixels of the table, without and with a run below it
MOST_COMPARED = 24
FIRST = ("mrr", "map", "spearman", "f1", "average_precision", "auc", "accuracy", "has_positive", "ndcg")
COUNTS = (  # no measures of a model
    *("queries", "documents", "gold_missing", "constant", "queries_without_positive", "queries_in_dev"),
    *("f1_threshold", "accuracy_threshold", "positives", "pairs"),
)


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


def choose(every: list[Run]) -> tuple[str | None, list[Run], list[Run]]:
    """Draw the table, live while a run goes on. Returns the chosen group, its runs, and the chosen runs.

    Of these the one of the context bar comes first. Without a group there are all runs.
    """
    with st.container(horizontal=True):
        group, runs = in_group(every)
        chosen = compare_with([run.id for run in runs])
    watched(lambda: _table(runs, chosen), runs)
    return group, runs, [store.run_store().get(run_id) for run_id in chosen]


def in_group(runs: list[Run]) -> tuple[str | None, list[Run]]:
    """The group that is chosen in the URL and its runs as they were launched; without one None and all runs."""
    groups = list(dict.fromkeys(group for run in runs if (group := run.status().group)))
    if not groups:
        return None, runs
    words = "Runs that were launched together: a sweep, or one setting with several seeds"
    kept = st.session_state.pop(KEPT_GROUP, None)
    if kept in groups:
        st.session_state[GROUP] = kept
    chosen = st.selectbox("Group", [EVERY_RUN, *groups], key=GROUP, bind="query-params", help=words)
    if chosen not in groups:
        return None, runs
    return chosen, sorted((run for run in runs if run.status().group == chosen), key=_launched)


def stay_in(group: str | None) -> None:
    """Keep the chosen group over a jump to another of its runs, which empties the URL."""
    if group is not None and st.session_state.get(GROUP) == group:
        st.session_state[KEPT_GROUP] = group


def _launched(run: Run) -> tuple[float, str]:
    return run.status().created, run.id


def watched(draw: Callable[[], None], runs: list[Run]) -> None:
    """Draw now, and every 2 seconds while one of the runs goes on; when the last has ended, the whole page once more.

    Nothing is looked at again after that.
    """
    going = any(not run.status().is_finished for run in runs)

    def look() -> None:
        if going and all(run.status().is_finished for run in runs):
            st.rerun(scope="app")
        draw()

    st.fragment(look, run_every=EVERY if going else None)()


def _table(runs: list[Run], chosen: list[str]) -> None:
    """The widget is keyed by the runs that are listed, so a run that joins never moves the choice to another row."""
    _notice(runs)
    ids = [run.id for run in runs]
    key = f"runs.table.{hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}"
    lines = [line(run) for run in runs]
    st.session_state[DRAWN] = key
    st.dataframe(
        lines,
        key=key,
        on_select=lambda: _keep(key, ids),
        selection_mode="multi-row",
        selection_default={"selection": {"rows": [ids.index(run_id) for run_id in chosen]}},
        hide_index=True,
        height=min(TALL if not chosen else LOW, 38 + 36 * len(runs)),
        alt="Runs with state, progress, step, time left, metric on dev, group and age",
        column_order=[name for name in lines[0] if _tells(name, lines)],
        column_config={
            "Run": st.column_config.TextColumn(width=240),
            "Progress": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%d%%", width="small"),
            "Dev by epoch": st.column_config.LineChartColumn(width=110, help="The best metric after each epoch"),
        },
    )
    if _named(ids) != chosen:  # a click inside this fragment: the rest of the page has to follow
        st.rerun(scope="app")


def _tells(name: str, lines: list[dict[str, Any]]) -> bool:
    """Whether a column is worth its place: a group where there are several, the time left where some is."""
    if name == "Group":
        return len({row[name] for row in lines}) > 1
    return name != "Time left" or any(row[name] for row in lines)


def _notice(runs: list[Run]) -> None:
    """Notice the processes that are gone, and draw the page anew where a run's folder is."""
    from bsc_core.jobs import reconcile

    with show.calm_errors(stop=False):
        reconcile(store.run_store())
    if not all(run.folder.is_dir() for run in runs):
        st.rerun(scope="app")


def _named(ids: list[str]) -> list[str]:
    """The runs of this table that are chosen; a run of the context bar that is not listed here is none of them."""
    first = st.session_state.get("run", frame.NO_RUN)
    return [first, *st.session_state.get(COMPARE, [])] if first in ids else []


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


def compare_all(runs: list[Run]) -> None:
    """The button that compares the listed runs; those that differ in their seed alone count as one there."""
    ids = [run.id for run in runs if run.read_json("evaluation/after")][:MOST_COMPARED]
    if len(ids) > 1:
        words = "Settings beside each other with intervals; the seeds of a setting count as one"
        st.button(
            f"Compare {theme.many(len(ids), 'run')}",
            key="runs.compare.group",
            on_click=lambda: _choose(ids),
            icon=":material/compare_arrows:",
            help=words,
        )


def _choose(ids: list[str]) -> None:
    st.session_state["run"], st.session_state[COMPARE] = ids[0], ids[1:]


def _keep(key: str, ids: list[str]) -> None:
    """Take over what was clicked: of the rows, the one chosen first is `run`, the others are `compare`."""
    if st.session_state.get(DRAWN) != key:  # a message under way from a table that is not there any more
        return
    before = _named(ids)
    clicked = [ids[row] for row in st.session_state[key]["selection"]["rows"]]
    picked = sorted(clicked, key=lambda run_id: before.index(run_id) if run_id in before else len(before))
    _choose(picked or [frame.NO_RUN])


def line(run: Run) -> dict[str, Any]:
    """One row of the table."""
    status = run.status()
    return {
        "Run": name(run),
        "State": f"{STATES[status.state].mark} {status.state}",
        "Progress": 100 if status.state == "done" else round(100 * status.progress),
        "Step": f"{theme.count(status.step)} of {theme.count(status.steps)}" if status.steps else "",
        "Time left": theme.duration(status.eta_seconds) if status.eta_seconds and not status.is_finished else "",
        "Dev by epoch": dev_values(run, status.metric_name),
        "Best on dev": best(status),
        "Group": store.short_id(status.group) if status.group else "",
        "Age": theme.duration(max(0.0, time.time() - status.created)),
    }


def name(run: Run) -> str:
    """A run's name and id; the id alone when its config cannot be read any more."""
    try:
        return frame.run_label(run.id)
    except BscError:
        return run.id


def best(status: RunStatus) -> str:
    """`mrr 0.812 [0.790, 0.831]`, the interval once the run has ended; a dash while nothing is measured."""
    if not status.metric_name:
        return "—"
    known = status.is_finished and status.metric_low is not None and status.metric_high is not None
    span = (status.metric_low or 0.0, status.metric_high or 0.0) if known else None
    return f"{status.metric_name} {theme.metric(status.metric_best, span)}"


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

"""The table of runs, and the selection of a group and of runs, which the URL stores."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting, jobs
from bsc_core.errors import BscError, RunError, RunNotFoundError
from bsc_core.figures import theme
from bsc_core.figures.runs.parallel import MAX_NAMED
from bsc_core.runs import Run, RunStatus, RunStore
from bsc_core.runs.ids import short_id
from bsc_core.runs.store import without_resumed
from pages.ui.components import data_cache, display, page_layout, run_data, turns, url, users
from pages.ui.runs import run_settings

COMPARE = "compare"
GROUP = "group"
ALL_RUNS = "All runs"
UPDATE_INTERVAL = "2s"
CURRENT_TABLE = "runs.table.current"  # the key of the table that the page shows
TABLE_NUMBER = "runs.table.number"  # of the tables with other checked rows
CLICKED = "runs.table.clicked"  # the run whose row was clicked first
MAX_STEPS = 5_000  # that curves are drawn from
MAX_TABLE, MAX_CURVES = 4_096, 48  # runs whose values of the table, and whose rows, are kept for all sessions
HEIGHT, HEIGHT_WITH_RUN, HEADER, ROW = 398, 146, 38, 36  # pixels; the table keeps its height while it is clicked
MAX_COMPARED = 24
METRIC_ORDER = ("mrr", "map", "spearman", "f1", "average_precision", "auc", "accuracy", "has_positive", "ndcg")
NOT_METRICS = (
    *("queries", "documents", "gold_missing", "constant", "queries_without_positive", "queries_in_dev"),
    *("f1_threshold", "accuracy_threshold", "positives", "pairs"),
)


class StateStyle(NamedTuple):
    """Display of a run state: its mark in tables, its badge's icon and color, and its meaning."""

    mark: str
    icon: str
    color: str
    meaning: str


STATES: dict[str, StateStyle] = {
    "queued": StateStyle("○", ":material/schedule:", "gray", "Waits for its turn and starts automatically."),
    "starting": StateStyle("◔", ":material/hourglass_top:", "blue", "The process is starting."),
    "running": StateStyle("●", ":material/play_arrow:", "blue", "Training. It continues if you close this page."),
    "stopping": StateStyle("◑", ":material/hourglass_bottom:", "orange", "Asked to stop; ends after the current step."),
    "done": StateStyle("✓", ":material/check_circle:", "green", "Trained and evaluated."),
    "failed": StateStyle("✗", ":material/error:", "red", "The run ended with an error."),
    "stopped": StateStyle("■", ":material/stop_circle:", "orange", "Stopped on request."),
    "lost": StateStyle("?", ":material/help:", "violet", "The process ended without reporting a result."),
}


RESUMED = ", resumed"  # end of the state of a run that another one resumes


def select(all_runs: list[Run]) -> tuple[str | None, list[Run], list[Run]]:
    """Draw the table, live while a run is active.

    Returns:
        The selected group or None, its runs or all runs, and the selected runs, the run of the context bar first.
    """
    _match_group_and_run(all_runs)
    with st.container(horizontal=True):
        with st.container():
            page_layout.context_bar(("run",))
        group, runs = _select_group(all_runs)
        settings = run_settings.load_settings(runs)
        runs = run_settings.filter_runs(runs, settings)
        histograms, total = run_settings.load_histograms(without_resumed(runs), settings), len(runs)
        runs = [run for run in runs if all(one.contains(run.id) for one in histograms)]
        column = run_settings.select_grouping(settings)
    of_histograms, of_table = st.container(), st.container()
    selected = _select_runs([run.id for run in runs])
    with of_histograms:
        if not selected or len(runs) < total:  # the figures of selected runs start high on the page
            run_settings.draw_histograms(histograms, runs, total)
        if column is not None:
            run_settings.draw_groups(runs, settings, column)
    with of_table:
        if runs:
            draw_live(lambda: _draw_table(runs, selected), runs, newest=all_runs[0].id)
        else:
            st.caption("No run matches the filter.")
    return group, runs, [data_cache.run_store().get(run_id) for run_id in selected]


def _match_group_and_run(runs: list[Run]) -> None:
    """Leave the group if another run is opened, and select no run if another group is opened."""
    group = st.query_params.get(GROUP)
    run_id = st.query_params.get("run") or page_layout.saved_context().run_id
    members = [run.id for run in runs if run.status().group == group]
    if group is None or not members or run_id is None or run_id in (page_layout.NO_RUN, *members):
        return
    if "run" in st.query_params:
        display.write_url({}, (GROUP,))
    else:
        page_layout.select("run", page_layout.NO_RUN)


def _select_group(runs: list[Run]) -> tuple[str | None, list[Run]]:
    """Return the group in the URL and its runs in launch order; None and all runs without a group."""
    groups = list(dict.fromkeys(group for run in runs if (group := run.status().group)))
    if not groups:
        return None, runs
    linked, names = url.check(GROUP, [ALL_RUNS, *groups]), data_cache.run_names(groups)
    group = linked[0] if linked and linked[0] in groups else None
    st.session_state[GROUP] = group or ALL_RUNS
    st.selectbox(
        "Sweep or group",
        [ALL_RUNS, *groups],
        format_func=lambda option: names.get(option, option),
        help="Runs that were launched together: a sweep, or one setting with several seeds.",
        key=GROUP,
        on_change=lambda: display.write_url(group_in_url(st.session_state[GROUP]), (GROUP, "run")),
    )
    if group is None:
        return None, runs
    return group, sorted(
        (run for run in runs if run.status().group == group), key=lambda run: (run.status().created, run.id)
    )


def group_in_url(group: str | None) -> dict[str, str]:
    """Return the URL parameter of a group; none for all runs."""
    return {} if group in (None, ALL_RUNS) else {GROUP: str(group)}


def draw_live(draw: Callable[[], None], runs: list[Run], *, newest: str = "") -> None:
    """Draw now and every 2 seconds while a run is active.

    When the last one ends, the page reruns once; also if a run was deleted or is no longer shared with the user, or if
    the newest run is another one than `newest`.
    """
    active = any(not run.status().is_finished for run in runs)

    def update() -> None:
        store = data_cache.run_store()
        try:
            for run in runs:
                store.get(run.id)
        except RunNotFoundError:
            st.rerun(scope="app")
        if newest and (listed := store.list()) and listed[0].id != newest:
            st.rerun(scope="app")
        if active and all(run.status().is_finished for run in runs):
            st.rerun(scope="app")
        draw()

    turns.fragment(update, run_every=UPDATE_INTERVAL if active else None)()


def _draw_table(runs: list[Run], selected: list[str]) -> None:
    """Draw the table, the runs that others resume last.

    Its key depends on the listed runs, so that a new run does not move the selection.
    """
    _recover_lost_runs(runs)
    latest = {run.id for run in without_resumed(runs)}
    runs = sorted(runs, key=lambda run: run.id not in latest)
    runs = _with_selected_runs_visible(runs, selected)
    ids = [run.id for run in runs]
    key = _table_key(ids)
    settings = run_settings.load_settings(runs)
    differing = run_settings.differing_columns(settings)
    resumed = set(ids) - latest
    rows = [table_row(run) | {name: settings[run.id].get(name, "") for name in differing} for run in runs]
    for row, run_id in zip(rows, ids, strict=True):
        row["State"] += RESUMED if run_id in resumed else ""
    order = [
        display.COLOR,
        "Run",
        "Best on dev",
        "State",
        "Progress",
        "Step",
        "Time left",
        "Dev by epoch",
        *differing,
        "Group",
        "Age",
    ]
    st.session_state[CURRENT_TABLE] = key
    is_clicked = bool(selected) and selected[0] == st.session_state.get(CLICKED)
    st.dataframe(
        display.with_colors(rows, _colors(ids, selected or [run.id for run in runs_of_figure(runs)])),
        key=key,
        on_select=lambda: _apply_selection(key, ids),
        selection_mode="multi-row",
        selection_default={"selection": {"rows": [ids.index(run_id) for run_id in selected]}},
        hide_index=True,
        height=min(HEIGHT if not selected or is_clicked else HEIGHT_WITH_RUN, HEADER + ROW * len(runs)),
        alt="Runs with state, metric on dev, settings that differ, progress, group and age",
        column_order=[name for name in order if _is_useful(name, rows)],
        column_config={
            **display.COLOR_COLUMN,
            "Run": st.column_config.TextColumn(width=max(220, min(300, 8 * max(len(row["Run"]) for row in rows)))),
            "Best on dev": st.column_config.TextColumn(width=184),  # also of the values to come
            "State": st.column_config.TextColumn(width=140 if resumed else 96),
            "Progress": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%d%%", width="small"),
            "Step": st.column_config.TextColumn(width=100),
            "Age": st.column_config.TextColumn(width=110),
            "Dev by epoch": st.column_config.LineChartColumn(
                width=110,
                color=theme.REFERENCE,
                help="The dev metric before training and after each epoch. Runs with one metric share a scale.",
                **_common_range(runs, rows),
            ),
        },
    )
    shared = run_settings.equal_settings(settings)
    if shared and len(runs) > 1 and not selected:
        others = ", without those that were resumed" if resumed else ""
        st.caption(f"Equal in all {len(latest):,} runs{others}: {display.escaped(shared)}")
    if _current_selection(ids) != selected:  # a click reruns only this fragment; the rest of the page has to follow
        st.rerun(scope="app")


def _table_key(ids: list[str]) -> str:
    """Return the key of the table of these runs; another one if its checked rows are not the selected runs.

    A table with a new key begins with the rows of `selection_default`.
    """
    key = f"runs.table.{hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}"
    number: int = st.session_state.setdefault(TABLE_NUMBER, 0)
    state = st.session_state.get(f"{key}.{number}")
    if state is not None and {ids[row] for row in state["selection"]["rows"]} != set(_current_selection(ids)):
        st.session_state[TABLE_NUMBER] = number = number + 1
    return f"{key}.{number}"


def runs_of_figure(runs: list[Run]) -> list[Run]:
    """Return the runs that the figure of all runs shows: the first ones, without those that another one resumes."""
    return without_resumed(runs)[:MAX_NAMED]


def _colors(ids: list[str], in_figures: list[str]) -> list[str]:
    """Return the color of each run, with that of the figures for the runs that figures show."""
    shown = dict(zip(in_figures, run_data.run_colors(in_figures), strict=True))
    return [shown.get(run_id, color) for run_id, color in zip(ids, run_data.colors_alone(ids), strict=True)]


def _common_range(runs: list[Run], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the range of the curves of runs with the same metric; empty if metrics differ or no value does."""
    values = [value for row in rows for value in row["Dev by epoch"]]
    metrics = {run.status().metric_name for run, row in zip(runs, rows, strict=True) if row["Dev by epoch"]}
    if len(metrics) != 1 or len(set(values)) < 2:
        return {}
    low, high = min(values), max(values)
    space = 0.15 * (high - low)  # else the curves cross the lines between the rows; a line at 0 is not drawn
    return {"y_min": max(0.0, low - space) if low >= 0 else low - space, "y_max": high + space}


def _with_selected_runs_visible(runs: list[Run], selected: list[str]) -> list[Run]:
    """Move the selected runs to the top if one is below the visible rows, unless they were clicked there."""
    visible = [run.id for run in runs[: (HEIGHT_WITH_RUN - HEADER) // ROW]]
    if not selected or selected[0] == st.session_state.get(CLICKED) or set(selected) <= set(visible):
        return runs
    return sorted(runs, key=lambda run: run.id not in selected)


def _is_useful(name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether to show a column: the group if there are several, the progress of runs that have not ended."""
    if name == "Group":
        return len({row[name] for row in rows}) > 1
    if name in ("Progress", "Step"):
        return any(row["Progress"] < 100 and not row["State"].endswith(RESUMED) for row in rows)
    return name != "Time left" or any(row[name] for row in rows)


def _recover_lost_runs(runs: list[Run]) -> None:
    """Update the state of runs whose process ended; rerun the page if a run's folder is gone."""
    with display.show_errors(stop=False) if users.current_user().is_owner else suppress(BscError):
        jobs.reconcile(RunStore())  # the runs of all users, which an error may name
    if not all(run.folder.is_dir() for run in runs):
        st.rerun(scope="app")


def _current_selection(ids: list[str]) -> list[str]:
    """Return the selected runs; none if the run of the context bar is not listed."""
    first = page_layout.saved_context().run_id
    return [first, *st.session_state.get(COMPARE, [])] if first is not None and first in ids else []


def _select_runs(ids: list[str]) -> list[str]:
    """Draw the box of further runs; return the run of the context bar and those, which the URL stores as `compare`."""
    first = page_layout.saved_context().run_id
    if first is None or first not in ids:
        return []
    others = [run_id for run_id in ids if run_id != first]
    st.session_state[COMPARE] = list(dict.fromkeys(url.check(COMPARE, others)))
    if not others:
        return [first]
    selected = st.multiselect(  # not bound to the URL, which would have the names that are shown
        "Runs to compare",
        others,
        key=COMPARE,
        format_func=data_cache.run_names(others).__getitem__,
        placeholder="Other runs",
        on_change=lambda: _write_compared(st.session_state[COMPARE]),
    )
    return [first, *dict.fromkeys(selected)]  # a client can send a value several times


def _write_compared(ids: list[str]) -> None:
    st.query_params[COMPARE] = ids


def draw_compare_button(runs: list[Run]) -> None:
    """Draw the button that compares the evaluated runs of a group, and the one that shows the runs of all groups.

    Runs that differ only in their seed count as one setting.
    """
    ended = [run for run in without_resumed(runs) if run.status().is_finished and run.evaluation("after")]
    ids = [run.id for run in ended[:MAX_COMPARED]]
    bar = page_layout.action_bar()
    if len(ids) > 1:
        bar.button(
            f"Compare {formatting.plural(len(ids), 'run')}",
            key="runs.compare.group",
            type="primary",
            on_click=lambda: _set_selection(ids),
            icon=":material/compare_arrows:",
            help="Compares the settings with intervals. The seeds of a setting count as one.",
        )
    draw_all_button(bar)


def draw_all_button(bar: DeltaGenerator) -> None:
    """Draw the button that leaves a group or the selected runs."""
    bar.button("Show all runs", key="runs.all", icon=":material/arrow_back:", on_click=_show_all)


def _show_all() -> None:
    display.write_url({}, (GROUP,))
    _set_selection([page_layout.NO_RUN])


def _set_selection(ids: list[str]) -> None:
    page_layout.select("run", ids[0])
    st.session_state[COMPARE] = ids[1:]
    _write_compared(ids[1:])


def _apply_selection(key: str, ids: list[str]) -> None:
    """Store the clicked rows: the one selected first as `run`, the others as `compare`."""
    if st.session_state.get(CURRENT_TABLE) != key:  # a late event of a table that is no longer shown
        return
    before = _current_selection(ids)
    clicked = dict.fromkeys(ids[row] for row in st.session_state[key]["selection"]["rows"])
    ordered = sorted(clicked, key=lambda run_id: before.index(run_id) if run_id in before else len(before))
    if ordered[:1] != before[:1]:
        st.session_state[CLICKED] = next(iter(ordered), None)
    _set_selection(ordered or [page_layout.NO_RUN])


def table_row(run: Run) -> dict[str, Any]:
    """Return one row of the table."""
    status = run.status()
    step = f"{formatting.count(status.step)} of {formatting.count(status.steps)}" if status.steps else ""
    active = status.eta_seconds and status.state == "running"
    state = f"{STATES[status.state].mark} {status.state}"
    values: list[float] = []
    try:
        values = _dev_values(run, status.metric_name)
        if status.is_finished and len(values) == 1 and status.metric_best is not None:  # stopped in the first epoch
            values = [*values, status.metric_best]
    except RunError:  # the page of the run shows the error
        state += " (damaged)"
    return {
        "Run": short_id(run.id),
        "State": state,
        "Progress": status.percent,
        "Step": step,
        "Time left": formatting.duration(status.eta_seconds) if active else "",
        "Dev by epoch": values if len(values) > 1 else [],
        "Best on dev": best_metric(status),
        "Group": short_id(status.group) if status.group else "",
        "Age": " ".join(formatting.duration(max(0.0, time.time() - status.created)).split()[:2]),  # its largest unit
    }


def continuation(run: Run, status: RunStatus) -> Run | None:
    """Return the newest run that resumes a run that has ended; None if there is none."""
    if not status.is_finished or status.state == "done":
        return None
    return next((one for one in data_cache.run_store().list() if one.resumed_run == run.id), None)


def best_metric(status: RunStatus) -> str:
    """Return `MRR 0.812 [0.790, 0.831]`, with the interval once the run has ended; a dash before any evaluation."""
    if not status.metric_name:
        return "—"
    known = status.is_finished and status.metric_low is not None and status.metric_high is not None
    interval = (status.metric_low or 0.0, status.metric_high or 0.0) if known else None
    return f"{formatting.metric_name(status.metric_name)} {formatting.metric(status.metric_best, interval)}"


def best_run(runs: Sequence[Run]) -> Run | None:
    """Return the run with embeddings whose dev metric is the highest.

    None if metrics or datasets differ, or no metric is known.
    """
    if len({values.get(run_settings.DATASET) for values in run_settings.load_settings(runs).values()}) != 1:
        return None
    scored = [(run.status(), run) for run in runs if run.embeddings("after") is not None]
    scored = [(status, run) for status, run in scored if status.metric_best is not None]
    if len({status.metric_name for status, _ in scored}) != 1:
        return None
    return max(scored, key=lambda one: one[0].metric_best or 0.0)[1]


def _dev_values(run: Run, metric: str | None) -> list[float]:
    """Return a dev metric before training and after each epoch."""
    if metric is None:
        return []

    def values(rows: list[dict[str, Any]]) -> list[float]:
        found = [row["dev"].get(metric) for row in rows if row.get("kind") == "evaluation" and row.get("dev")]
        return [value for value in found if value is not None]

    return data_cache.run_metrics(f"runs.dev.{metric}", run, values, max_steps=0, size=MAX_TABLE)


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics file, of many steps a sample; only new bytes are read again."""
    return data_cache.run_metrics("runs.rows", run, list, max_steps=MAX_STEPS, size=MAX_CURVES)


def metric_order(name: str) -> tuple[int, int]:
    """Return a sort key: the main metrics, then hits by cutoff, then the rest."""
    kind, _, cut = name.partition("@")
    return (
        METRIC_ORDER.index(kind) if kind in METRIC_ORDER else len(METRIC_ORDER),
        int(cut) if cut.isdecimal() and len(cut) < 10 else 0,
    )

"""Settings of the listed runs: those that differ are columns of the table, by which it is filtered and summarized."""

from collections.abc import Mapping, Sequence

import streamlit as st

from bsc_core import formatting
from bsc_core.config import DataConfig, flatten
from bsc_core.errors import BscError
from bsc_core.figures.runs.parallel import format_value
from bsc_core.runs import Run
from pages.ui.components import data_cache, url, users

DATASET, STATE = "Dataset", "State"
MAIN_COLUMNS = {
    "encoder.name": "Encoder",
    "batching.strategy": "Strategy",
    "loss.name": "Loss",
    "loss.temperature": "Temperature",
}
SEED = "training.seed"
NOT_COLUMNS = ("data.", "name", "training.seeds")
MAX_COLUMNS = 8
MAX_VALUES = 12  # of a column that offers its values in the filter
MAX_CACHED = 10_000  # settings of runs in memory
FILTER, GROUP_BY = "filter", "group_by"
NOT_GROUPED = "Nothing"

Settings = Mapping[str, str]  # column -> value


def load_settings(runs: Sequence[Run]) -> dict[str, Settings]:
    """Return the settings of each run by its id, the main ones first; {} for a run with a damaged config."""
    names: dict[str, str] = {}  # of datasets
    return {run.id: _settings(run, names) for run in runs}


def _settings(run: Run, names: dict[str, str]) -> Settings:
    key = str(run.folder), data_cache.file_stamps(run.folder / "config.json")
    try:
        data, values = data_cache.shared_value("run_settings", key, lambda: _config(run), size=MAX_CACHED)
    except BscError:
        return {}
    if data not in names:
        names[data] = _dataset_name(DataConfig.model_validate_json(data))
    return {DATASET: names[data], **{name: users.without_folders(value) for name, value in values.items()}}


def _config(run: Run) -> tuple[str, Settings]:
    """Return the data section of a run's config as JSON, and its other settings as text."""
    config = run.config()
    values = {key: value for key, value in flatten(config).items() if not key.startswith(NOT_COLUMNS)}
    ordered = {**{key: values[key] for key in MAIN_COLUMNS if key in values}, **values}
    return config.data.model_dump_json(), {MAIN_COLUMNS.get(key, key): format_value(ordered[key]) for key in ordered}


def _dataset_name(data: DataConfig) -> str:
    """Return the key of a dataset, else the end of its path."""
    parts = 2 if users.current_user().may_launch else 1
    return data_cache.dataset_key(data) or "/".join(data.train.rstrip("/").rsplit("/", parts)[-parts:])


def differing_columns(settings: Mapping[str, Settings]) -> list[str]:
    """Return the columns in which runs differ, the main ones first; the seed only if nothing else differs."""
    known = [values for values in settings.values() if values]
    names = dict.fromkeys(name for values in known for name in values)
    differing = [name for name in names if len({values.get(name) for values in known}) > 1]
    return [name for name in differing if name != SEED][:MAX_COLUMNS] or differing


def equal_settings(settings: Mapping[str, Settings]) -> str:
    """Return the main settings that all runs share, such as `Dataset sample · Loss bsc`."""
    known = [values for values in settings.values() if values]
    if not known:
        return ""
    shared = [name for name in (DATASET, *MAIN_COLUMNS.values()) if name in known[0]]
    return " · ".join(
        f"{name} {known[0][name]}" for name in shared if all(values.get(name) == known[0][name] for values in known)
    )


def filter_runs(runs: list[Run], settings: Mapping[str, Settings]) -> list[Run]:
    """Draw the filter by state and by differing settings, which the URL stores; return the runs that match.

    Values of one column are alternatives; a run has to match every column that is used.
    """
    columns = {run.id: {STATE: run.status().state, **settings[run.id]} for run in runs}
    options = []
    for name in (*differing_columns(settings), STATE):
        values = sorted({str(of_run[name]) for of_run in columns.values() if name in of_run})
        options += [f"{name}: {value}" for value in values] if 1 < len(values) <= MAX_VALUES else []
    if not options:
        return runs
    about = "Shows the runs with these settings. Several values of one setting are alternatives."
    selected = st.multiselect("Filter", options, placeholder="All runs", help=about, **url.bound(FILTER, options))
    wanted: dict[str, set[str]] = {}
    for option in selected:
        name, _, value = option.partition(": ")
        wanted.setdefault(name, set()).add(value)
    return [run for run in runs if all(columns[run.id].get(name) in values for name, values in wanted.items())]


def select_grouping(settings: Mapping[str, Settings]) -> str | None:
    """Draw the box of the column by which runs are grouped, which the URL stores; return the column or None."""
    columns = differing_columns(settings)
    if not columns:
        return None
    if st.session_state.get(GROUP_BY) not in columns:  # of a link, or of the runs that were listed before
        st.session_state.pop(GROUP_BY, None)
    about = "Summarizes the best metric on dev of the runs that share a value."
    selected = st.selectbox("Group by", [NOT_GROUPED, *columns], help=about, **url.bound(GROUP_BY, columns))
    return selected if selected in columns else None


def draw_groups(runs: Sequence[Run], settings: Mapping[str, Settings], column: str) -> None:
    """Draw a table row per value of a column; a selected row sets the filter to its value."""
    rows = group_rows(runs, settings, column)
    key = f"runs.groups.{column}"

    def apply_filter() -> None:
        selected = st.session_state[key]["selection"]["rows"]
        if selected and len({row[column] for row in rows}) <= MAX_VALUES:
            st.session_state[FILTER] = [f"{column}: {rows[selected[0]][column]}"]

    st.dataframe(
        rows,
        key=key,
        hide_index=True,
        on_select=apply_filter,
        selection_mode="single-row",
        alt=f"Best metric on dev of the runs by {column}",
        height=min(200, 38 + 36 * len(rows)),
    )


def group_rows(runs: Sequence[Run], settings: Mapping[str, Settings], column: str) -> list[dict[str, str | int]]:
    """Return a row per value of a column and metric: the number of evaluated runs, and mean, lowest and highest value.

    Values are the best on dev. Rows are ordered by metric, then the highest mean first.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        status = run.status()
        if status.metric_name and status.metric_best is not None:
            values.setdefault((status.metric_name, settings[run.id].get(column, "")), []).append(status.metric_best)
    ordered = sorted(values.items(), key=lambda item: (item[0][0], -sum(item[1]) / len(item[1])))
    return [
        {column: value, "Runs": len(best), "Metric": metric}
        | {"Mean": formatting.metric(sum(best) / len(best))}
        | {"Lowest": formatting.metric(min(best)), "Highest": formatting.metric(max(best))}
        for (metric, value), best in ordered
    ]

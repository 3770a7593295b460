"""Settings of the listed runs: those that differ are columns of the table, by which it is filtered and summarized.

Histograms of the numeric columns filter by a range.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import streamlit as st

from bsc_core import formatting
from bsc_core.config import DataConfig, flatten, setting_name
from bsc_core.errors import BscError
from bsc_core.figures.runs.histograms import Histogram, histogram, read_ranges, write_ranges
from bsc_core.figures.runs.parallel import format_value
from bsc_core.runs import Run
from bsc_core.runs.store import without_resumed
from pages.ui.components import config_form, data_cache, display, url, users
from pages.ui.components.browser.mount import range_histograms
from pages.ui.new_run.config_summary import batching_fields

DATASET, STATE = "Dataset", "State"
MAIN_COLUMNS = ("encoder.name", "batching.strategy", "loss.name", "loss.temperature")
SEED = "Seed"
NOT_COLUMNS = ("data.", "name", "training.seeds")
MAX_COLUMNS = 8
MAX_VALUES = 12  # of a column that offers its values in the filter
MAX_CACHED = 10_000  # settings of runs in memory
MAX_HISTOGRAMS = 7
MIN_RUNS = 4  # for histograms
FILTER, RANGES, GROUP_BY = "filter", "ranges", "group_by"
TIME = "Time (s)"
NOT_GROUPED = "Nothing"

Settings = Mapping[str, str]  # column -> value


def load_settings(runs: Sequence[Run]) -> dict[str, Settings]:
    """Return the settings of each run by its id, the main ones first; {} for a run with a damaged config."""
    datasets: dict[str, DataConfig] = {}  # by their JSON text
    settings = {run.id: _settings(run, datasets) for run in runs}
    names = _dataset_names(datasets)
    return {run: {**values, DATASET: names[values[DATASET]]} if values else {} for run, values in settings.items()}


def _settings(run: Run, datasets: dict[str, DataConfig]) -> Settings:
    key = str(run.folder), data_cache.file_stamps(run.folder / "config.json")
    try:
        data, values = data_cache.shared_value("run_settings", key, lambda: _config(run), size=MAX_CACHED)
    except BscError:
        return {}
    if data not in datasets:
        datasets[data] = DataConfig.model_validate_json(data)
    return {DATASET: data, **{name: users.without_folders(value) for name, value in values.items()}}


def _config(run: Run) -> tuple[str, Settings]:
    """Return the data section of a run's config as JSON, and its other settings as text, if its strategy uses them."""
    config = run.config()
    used = {f"batching.{name}" for name in chain(*batching_fields(config.batching.strategy))}
    values = {
        key: value
        for key, value in flatten(config).items()
        if not key.startswith(NOT_COLUMNS) and (key in used or not key.startswith("batching."))
    }
    ordered = {**{key: values[key] for key in MAIN_COLUMNS if key in values}, **values}
    return config.data.model_dump_json(), {
        setting_name(key): format_value(config_form.value_title(key, value)) for key, value in ordered.items()
    }


def _dataset_names(datasets: Mapping[str, DataConfig]) -> dict[str, str]:
    """Return the labels of datasets, else the ends of their paths; if several paths end so, with a hash of the path.

    Data of the same file that are read in another way, such as with other filters, have the label with a remark.
    """
    parts = 2 if users.current_user().may_launch else 1
    labels = data_cache.dataset_labels(data_cache.datasets())
    names = {}
    for text, data in datasets.items():
        if key := data_cache.dataset_key(data):
            names[text] = labels[key]
        elif key := data_cache.dataset_of_file(data):
            names[text] = f"{labels[key]} (with other data settings, such as filters)"
        else:
            names[text] = "/".join(data.train.rstrip("/").rsplit("/", parts)[-parts:])
    paths: dict[str, set[str]] = {}
    for text, name in names.items():
        paths.setdefault(name, set()).add(datasets[text].train)
    return {
        text: f"{name} ({hashlib.sha256(datasets[text].train.encode()).hexdigest()[:4]})"
        if len(paths[name]) > 1
        else name
        for text, name in names.items()
    }


def differing_columns(settings: Mapping[str, Settings]) -> list[str]:
    """Return the columns in which runs differ, the main ones first; the seed only if nothing else differs.

    Runs that have no value, since their strategy or loss has no such setting, differ from others in the main ones only.
    """
    known = [values for values in settings.values() if values]
    main = {DATASET, *map(setting_name, MAIN_COLUMNS)}
    names = dict.fromkeys(name for values in known for name in values)
    of_runs = {name: {values.get(name) for values in known if name in values or name in main} for name in names}
    differing = [name for name in names if len(of_runs[name]) > 1]
    others = [name for name in differing if name != SEED][:MAX_COLUMNS]
    return [*others, *(name for name in differing if name == SEED)]


def equal_settings(settings: Mapping[str, Settings]) -> str:
    """Return the main settings that all runs share, such as `Dataset sample · Loss bsc`."""
    known = [values for values in settings.values() if values]
    if not known:
        return ""
    shared = [name for name in (DATASET, *map(setting_name, MAIN_COLUMNS)) if name in known[0]]
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


def load_histograms(runs: Sequence[Run], settings: Mapping[str, Settings]) -> list[Histogram]:
    """Return a histogram of each numeric column in which the runs differ, with its range in the URL."""
    linked = read_ranges(st.query_params.get(RANGES, ""))
    if linked is None:
        url.report(RANGES, f"{RANGES} is not a list of ranges, such as Temperature:0.02:0.1.")
    ranges = {_renamed(name): limits for name, limits in (linked or {}).items()}
    settings_columns = differing_columns(settings)
    columns = _numbers(runs, settings) if len(runs) >= MIN_RUNS or ranges else {}
    histograms = [
        histogram(name, values, ranges.get(name), logarithmic=name in settings_columns)
        for name, values in columns.items()
    ]
    found = [one for one in histograms if one is not None]
    if unused := ranges.keys() - {one.name for one in found}:
        names = ", ".join(map(url.shorten, sorted(unused)))
        url.report(RANGES, f"The listed runs have no different values of {names}.")
    return [one for number, one in enumerate(found) if number < MAX_HISTOGRAMS or one.selected is not None]


def _renamed(column: str) -> str:
    """Return the name of a column of a link of an earlier version: `Best MRR` for `Best mrr`."""
    metric = column.removeprefix("Best ")
    return setting_name(column) if metric == column else f"Best {formatting.metric_name(metric)}"


def _numbers(runs: Sequence[Run], settings: Mapping[str, Settings]) -> dict[str, dict[str, float]]:
    """Return the values by run of each numeric column: best metrics, the time, and settings that differ."""
    columns: dict[str, dict[str, float]] = {}
    times: dict[str, float] = {}
    for run in runs:
        status = run.status()
        if status.metric_name and status.metric_best is not None:
            columns.setdefault(f"Best {formatting.metric_name(status.metric_name)}", {})[run.id] = status.metric_best
        if status.started and status.finished:
            times[run.id] = max(0.0, status.finished - status.started)
    for name in (name for name in differing_columns(settings) if name != SEED):
        with suppress(ValueError):  # a column of texts
            columns[name] = {run.id: float(settings[run.id][name]) for run in runs if settings[run.id].get(name)}
    return {**columns, TIME: times}


def draw_histograms(histograms: Sequence[Histogram], listed: Sequence[Run], total: int) -> None:
    """Draw the histograms; a selected range is stored in the URL.

    Args:
        histograms: Output of `load_histograms`.
        listed: The runs that are in all ranges.
        total: The number of runs before.
    """
    if not histograms:
        return
    key = "runs.histograms"
    columns = [one.canvas_data([run.id for run in listed]) for one in histograms]
    range_histograms(columns, key=key, on_range=lambda: _store_range(st.session_state[key].get("range"), histograms))
    if any(one.selected for one in histograms):
        st.caption(f"{formatting.count(len(listed))} of {formatting.plural(total, 'run')} are in the selected ranges.")


def _store_range(selection: Any, histograms: Sequence[Histogram]) -> None:
    """Store the range of one column, of which all values remove it; a client can send anything."""
    ranges = {one.name: one.selected for one in histograms}
    if not isinstance(selection, dict) or selection.get("name") not in ranges:
        return
    first, last = selection.get("first"), selection.get("last")
    if not (isinstance(first, int) and isinstance(last, int)):
        return
    [changed] = [one for one in histograms if one.name == selection["name"]]
    ranges[changed.name] = changed.range_of(first, last)
    text = write_ranges({name: ends for name, ends in ranges.items() if ends is not None})
    display.write_url({RANGES: text} if text else {}, (RANGES,))


def select_grouping(settings: Mapping[str, Settings]) -> str | None:
    """Draw the box of the column by which runs are grouped, which the URL stores; return the column or None."""
    columns = differing_columns(settings)
    if not columns:
        return None
    if st.session_state.get(GROUP_BY) not in columns:  # of a link, or of the runs that were listed before
        st.session_state.pop(GROUP_BY, None)
    about = "Draws a table with the best metric on dev of the runs that share a value of this setting."
    selected = st.selectbox("Summarize by", [NOT_GROUPED, *columns], help=about, **url.bound(GROUP_BY, columns))
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
    """Return a row per value of a column, dataset and metric: the number of evaluated runs, mean, lowest and highest.

    Values are the best on dev. Rows are ordered by metric and dataset, then the highest mean first. The dataset is left
    out if all runs have the same one.
    """
    datasets = {settings[run.id].get(DATASET, "") for run in runs}
    by_dataset = len(datasets) > 1 and column != DATASET
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in without_resumed(runs):
        status, setting = run.status(), settings[run.id]
        if status.metric_name and status.metric_best is not None:
            dataset = setting.get(DATASET, "") if by_dataset else ""
            values.setdefault((status.metric_name, dataset, setting.get(column, "")), []).append(status.metric_best)
    ordered = sorted(values.items(), key=lambda item: (*item[0][:2], -sum(item[1]) / len(item[1])))
    return [
        {column: value}
        | ({DATASET: dataset} if by_dataset else {})
        | {"Runs": len(best), "Metric": formatting.metric_name(metric)}
        | {"Mean": formatting.metric(sum(best) / len(best))}
        | {"Lowest": formatting.metric(min(best)), "Highest": formatting.metric(max(best))}
        for (metric, dataset, value), best in ordered
    ]

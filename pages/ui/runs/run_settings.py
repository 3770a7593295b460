"""Settings of the listed runs: those that differ are columns of the table, and values by which it is filtered."""

from collections.abc import Mapping, Sequence

import streamlit as st

from bsc_core.config import DataConfig, flatten
from bsc_core.errors import BscError
from bsc_core.figures.runs.parallel import format_value
from bsc_core.runs import Run
from pages.ui.components import data_cache, url

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
FILTER = "filter"

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
    return {DATASET: names[data], **values}


def _config(run: Run) -> tuple[str, Settings]:
    """Return the data section of a run's config as JSON, and its other settings as text."""
    config = run.config()
    values = {key: value for key, value in flatten(config).items() if not key.startswith(NOT_COLUMNS)}
    ordered = {**{key: values[key] for key in MAIN_COLUMNS if key in values}, **values}
    return config.data.model_dump_json(), {MAIN_COLUMNS.get(key, key): format_value(ordered[key]) for key in ordered}


def _dataset_name(data: DataConfig) -> str:
    """Return the key of a dataset, else the end of its path."""
    return data_cache.dataset_key(data) or "/".join(data.train.rstrip("/").rsplit("/", 2)[-2:])


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

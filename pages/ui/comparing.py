"""Two or more runs beside each other: only what differs, their curves laid over each other, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from bsc_core.figures import curves, theme
from bsc_core.runs import Run
from pages.ui import run_list, show, store


def draw(runs: list[Run]) -> None:
    """Draw the comparison, live while a run goes on; the first run chosen is the solid line everywhere."""
    run_list.watched(lambda: _draw(runs), runs)


def _draw(runs: list[Run]) -> None:
    rows = {short_name(run): run_list.metric_rows(run) for run in runs}
    metric = next((run.status().metric_name for run in runs if run.status().metric_name), None)
    pictures = [("loss", curves.step_curve(rows, "loss")), ("temperature", curves.step_curve(rows, "temperature"))]
    if metric:
        pictures.insert(0, (metric, curves.metric_curve(rows, metric)))
    _beside(pictures, len(runs))
    if st.toggle("More curves", key="runs.compare.more"):
        noted = dict.fromkeys(field for lines in rows.values() for field in curves.noted(lines))
        others = [field for field in noted if field not in ("loss", "temperature")]
        _beside([(field, curves.step_curve(rows, field)) for field in others], len(runs))
    st.subheader("What differs", anchor=False)
    different = differences({short_name(run): run.config().model_dump(mode="json") for run in runs})
    if different:
        st.dataframe(different, hide_index=True, key="runs.differences", alt="Settings that differ between the runs")
    else:
        st.caption("These runs have the same settings.")
    st.subheader("Metrics after training", anchor=False)
    st.dataframe(metrics(runs), hide_index=True, key="runs.compared", alt="Metrics of the runs after training")


def _beside(pictures: list[tuple[str, Any]], runs: int) -> None:
    """Figures of a name each, side by side."""
    if not pictures:
        st.caption("No step has noted anything yet.")
        return
    for place, (name, picture) in zip(show.columns(len(pictures), least=320), pictures, strict=True):
        with place:
            show.figure(picture, alt=f"{name} of {runs} runs", name=f"compare.{name}")


def short_name(run: Run) -> str:
    """A run's name, else its id without the time, and in both the end of the id, which no other run shares."""
    config = run.config()
    return f"{config.name} · {run.id[-4:]}" if config.name else store.short_id(run.id)


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The settings in which configs differ, with the value of every run. configs: name -> nested values."""
    flat = {name: flatten(config) for name, config in configs.items()}
    settings = dict.fromkeys(setting for config in flat.values() for setting in config)
    lines = [(setting, [config.get(setting) for config in flat.values()]) for setting in settings]
    return [
        {"Setting": setting, **{name: _shown(value) for name, value in zip(flat, values, strict=True)}}
        for setting, values in lines
        if any(value != values[0] for value in values) and setting != "name"
    ]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted names: {"loss": {"temperature": 0.1}} -> {"loss.temperature": 0.1}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def metrics(runs: list[Run]) -> list[dict[str, str]]:
    """One line for each split and metric: before (of the first run) and after (of each run)."""
    measured = {short_name(run): run.read_json("evaluation/after") or {} for run in runs}
    before = runs[0].read_json("evaluation/before") or {}
    names = dict.fromkeys(
        (split, metric) for values in [before, *measured.values()] for split in values for metric in values[split]
    )
    return [
        {"Split": split, "Metric": metric, "Before (first run)": theme.metric((before.get(split) or {}).get(metric))}
        | {
            run: theme.metric((values.get(split) or {}).get(metric), why="not measured")
            for run, values in measured.items()
        }
        for split, metric in sorted(names, key=lambda name: (name[0], run_list.metric_place(name[1])))
        if metric not in run_list.COUNTS
    ]


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)

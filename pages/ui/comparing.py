"""Two or more settings beside each other: what differs, their curves and metrics, and if a difference is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from bsc_core.figures import curves, setting_curves, theme
from bsc_core.runs import Run
from pages.ui import compare_table, compare_view, query_changes, run_list, show
from pages.ui.compare_view import View
from pages.ui.compared import UNTOLD, Setting, flatten


def draw(runs: list[Run]) -> None:
    """Draw the comparison, live while a run goes on; the first run chosen is the solid line everywhere."""
    run_list.watched(lambda: _draw(runs), runs)


def _draw(runs: list[Run]) -> None:
    with show.calm_errors(stop=False):
        view = compare_view.choose(runs)
        compare_table.verdict(view)
        _curves(view)
        _differing(view.settings)
        _best_and_last(view)
        _rest(view)
        _link(runs, view)


def _rest(view: View) -> None:
    """What needs a setting that has been measured, each in a part of its own so that none takes down the others."""
    parts: tuple[Callable[[View], None], ...] = (compare_table.draw, query_changes.draw, _more)
    for part in parts:
        with show.calm_errors(stop=False):
            part(view)


def _curves(view: View) -> None:
    rows = _rows(view)
    pictures = [("loss", setting_curves.setting_steps(rows, "loss"))]
    if view.metric:
        pictures.insert(0, (view.metric, setting_curves.setting_metric(rows, view.metric, split=view.split)))
    if any("temperature" in curves.noted(lines) and _learned(lines) for group in rows.values() for lines in group):
        pictures.append(("temperature", setting_curves.setting_steps(rows, "temperature")))
    _beside(pictures, len(view.settings))


def _rows(view: View) -> dict[str, list[curves.MetricRows]]:
    return {setting.name: [run_list.metric_rows(run) for run in setting.runs] for setting in view.settings}


def _learned(lines: curves.MetricRows) -> bool:
    """Whether the temperature moves."""
    return len({row["temperature"] for row in lines if row.get("temperature") is not None}) > 1


def _more(view: View) -> None:
    if st.toggle("More curves", key="runs.compare.more"):
        rows = _rows(view)
        noted = dict.fromkeys(field for group in rows.values() for lines in group for field in curves.noted(lines))
        pictures = [(field, setting_curves.setting_steps(rows, field)) for field in noted if field != "loss"]
        _beside(pictures, len(view.settings))


def _beside(pictures: list[tuple[str, Any]], settings: int) -> None:
    """Figures of a name each, side by side."""
    if not pictures:
        st.caption("No step has noted anything yet.")
        return
    for place, (name, picture) in zip(show.columns(len(pictures), least=320), pictures, strict=True):
        with place:
            show.figure(picture, alt=f"{name} of {settings} settings", name=f"compare.{name}")


def _best_and_last(view: View) -> None:
    lines = best_and_last(view)
    if lines:
        seeds = "; means over seeds" if any(len(setting.runs) > 1 for setting in view.settings) else ""
        st.subheader(f"Best and last epoch by {view.metric} on {view.split}{seeds}", anchor=False)
        st.dataframe(lines, hide_index=True, key="runs.compare.best", alt="Best and last epoch of each setting")


def best_and_last(view: View) -> list[dict[str, str]]:
    """One line for each setting whose first epoch has been measured."""
    lines = []
    for setting in view.settings if view.metric else ():
        found = [
            curves.evaluations(run_list.metric_rows(run), view.metric or "", split=view.split) for run in setting.runs
        ]
        ends = setting_curves.best_and_last(setting_curves.mean_curve(found, across="epoch"))
        if ends is not None:
            lines.append(
                {
                    "Compared": setting.name,
                    "Best": f"{theme.metric(ends.best)} in epoch {ends.best_epoch}",
                    "Last": f"{theme.metric(ends.last)} in epoch {ends.last_epoch}",
                    "Lost since the best": theme.change(ends.last - ends.best) if ends.last != ends.best else "nothing",
                    "Steps": ", ".join(dict.fromkeys(theme.count(run.status().step) for run in setting.runs)),
                    "Took": _took(setting),
                }
            )
    return lines


def _took(setting: Setting) -> str:
    """The time of its runs together; empty while one goes on."""
    statuses = [run.status() for run in setting.runs]
    seconds = [one.finished - one.started for one in statuses if one.finished and one.started]
    return theme.duration(sum(seconds)) if len(seconds) == len(statuses) else ""


def _differing(settings: list[Setting]) -> None:
    if len(settings) < 2:
        st.caption("These runs have the same settings and differ in their seed alone.")
        return
    st.subheader("What differs", anchor=False)
    different = differences({one.name: one.runs[0].config().model_dump(mode="json") for one in settings})
    if different:
        st.dataframe(different, hide_index=True, key="runs.differences", alt="Settings that differ between the runs")
    else:
        st.caption("These runs have the same settings.")


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The settings in which configs differ, with the value of every run. configs: name -> nested values."""
    flat = {name: flatten(config) for name, config in configs.items()}
    settings = dict.fromkeys(setting for config in flat.values() for setting in config)
    lines = [(setting, [config.get(setting) for config in flat.values()]) for setting in settings]
    return [
        {"Setting": setting, **{name: _shown(value) for name, value in zip(flat, values, strict=True)}}
        for setting, values in lines
        if any(value != values[0] for value in values) and setting not in UNTOLD - {"training.seed"}
    ]


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _link(runs: list[Run], view: View) -> None:
    """The address of this view, to keep or to send."""
    with st.popover("Link to this view", icon=":material/link:", type="tertiary"):
        page = (st.context.url or "").partition("?")[0]
        st.code(f"{page}?{urlencode(address(runs, view))}", language=None, wrap_lines=True)
        st.caption("It opens this page with the same runs, metric and choices.")


def address(runs: list[Run], view: View) -> list[tuple[str, str]]:
    """What the URL of a view asks for: the runs, and each choice as it is shown."""
    first, *others = [run.id for run in runs]
    return [("run", first), *(("compare", other) for other in others), *view.asked, *query_changes.asked(view)]

"""The comparison of two or more settings: metrics, curves, config differences, and wins and losses."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from bsc_core import formatting
from bsc_core.config import RunConfig, flatten, setting_name
from bsc_core.figures.runs import curves
from bsc_core.jobs.actions.groups import differing_keys
from bsc_core.runs import Run
from pages.ui.comparison import metrics_table, query_differences
from pages.ui.comparison.settings import (
    AGAINST,
    IGNORED_KEYS,
    METRIC,
    SEED,
    SEEDS,
    SPLIT,
    ComparisonView,
    Setting,
    by_dimension,
    select_view,
)
from pages.ui.components import config_form, display, url, users
from pages.ui.runs import curve_controls, table

MORE, DIMENSIONS, PART = "runs.compare.more", "runs.compare.dimensions", "runs.compare.part"
PARAMETERS = (PART, METRIC, SPLIT, AGAINST, SEEDS, *query_differences.PARAMETERS, metrics_table.ALL, MORE, DIMENSIONS)


def draw(runs: list[Run]) -> None:
    """Draw the comparison, live while a run is active."""
    table.draw_live(lambda: _draw(runs), runs)


def _draw(runs: list[Run]) -> None:
    with display.show_errors(stop=False):
        view = select_view(runs)
        active = [one.name for one in view.settings if not all(run.status().is_finished for run in one.runs)]
        if active:
            st.caption(f"Not finished, so without metrics here: {display.escaped(', '.join(active))}.")
        parts = {
            "Metrics": (metrics_table.draw_intervals, metrics_table.draw_table, _draw_dimensions),
            "Curves": (_draw_curves, _draw_best_and_last),
            "Settings": (_draw_differences,),
            "Queries": (query_differences.draw,),
        }
        tabs = {title: partial(_draw_parts, draw_parts) for title, draw_parts in parts.items()}
        display.tabs(tabs, view, **url.bound(PART, tabs))
        _draw_link(runs, view)


def _draw_parts(parts: Sequence[Callable[[ComparisonView], None]], view: ComparisonView) -> None:
    for draw_part in parts:
        with display.show_errors(stop=False):  # an error in one part does not hide the others
            draw_part(view)


def _draw_curves(view: ComparisonView) -> None:
    rows, shown, colors = _metric_rows(view), curve_controls.select_view(), view.colors(view.settings)
    figures = [("loss", curves.step_curve(rows, "loss", shown, colors=colors))]
    if view.metric:
        figure = curves.metric_curve(rows, view.metric, shown, split=view.split, colors=colors)
        figures.insert(0, (formatting.metric_name(view.metric), figure))
    logged = [{row.get("temperature") for row in lines} - {None} for group in rows.values() for lines in group]
    if any(len(temperatures) > 1 for temperatures in logged):  # learned, not fixed
        figures.append(("temperature", curves.step_curve(rows, "temperature", shown, colors=colors)))
    _draw_figures(figures, len(view.settings))
    if names := _loss_scales(view.settings):
        st.caption(f"The losses are not comparable, since the settings differ in: {names}.")
    if st.toggle("More curves", **url.flag(MORE)):
        logged_fields = (curves.logged_fields(lines) for group in rows.values() for lines in group)
        fields = dict.fromkeys(field for names in logged_fields for field in names)
        more = [(field, curves.step_curve(rows, field, shown, colors=colors)) for field in fields if field != "loss"]
        _draw_figures(more, len(view.settings))


def _loss_scales(settings: list[Setting]) -> str:
    """Return the names of the differing settings that change the scale of the loss, such as `Temperature`."""
    differing = differing_keys([one.runs[0].config() for one in settings])
    of_evaluation = ("data.dev", "data.test", "data.corpus")
    data = ["Dataset"] if any(key.startswith("data.") and key not in of_evaluation for key in differing) else []
    scales = [key for key in differing if key.startswith("loss.") or key == "training.batch_size"]
    return ", ".join([*data, *map(setting_name, scales)])


def _metric_rows(view: ComparisonView) -> dict[str, list[curves.MetricRows]]:
    return {setting.name: [table.metric_rows(run) for run in setting.runs] for setting in view.settings}


def _draw_dimensions(view: ComparisonView) -> None:
    about = "The metric of vectors truncated to their first coordinates, as Matryoshka training allows."
    if view.metric is None or not st.toggle("Quality by dimension", help=about, **url.flag(DIMENSIONS)):
        return
    values = {one.name: by_dimension(one, view.split, view.metric) for one in view.evaluated}
    rows = [
        {"Setting": name, "Run": run.id, "Dimensions": one, view.metric: value}
        for setting, (name, runs) in zip(view.evaluated, values.items(), strict=True)
        for run, by_run in zip(setting.runs, runs, strict=True)
        for one, value in by_run.items()
    ]
    figure = curves.dimension_curve(values, view.metric, split=view.split, colors=view.colors(view.evaluated))
    alt = f"{formatting.metric_name(view.metric)} of {len(values)} settings by the number of dimensions"
    display.figure(figure, alt=alt, name=f"compare.dimensions.{view.metric}", data=rows)


def _draw_figures(figures: list[tuple[str, Any]], settings: int) -> None:
    """Draw named figures side by side."""
    if not figures:
        st.caption("There are no training steps yet.")
        return
    cells = display.columns(len(figures), min_width=320, of_figures=True)
    for cell, (name, figure) in zip(cells, figures, strict=True):
        with cell:
            display.figure(figure, alt=f"{name} of {settings} settings", name=f"compare.{name}")


def _draw_best_and_last(view: ComparisonView) -> None:
    rows = best_and_last(view)
    if rows:
        seeds = ", mean over seeds" if any(len(setting.runs) > 1 for setting in view.settings) else ""
        st.header(
            display.escaped(f"Best and last epoch: {formatting.metric_name(view.metric or '')} on {view.split}{seeds}"),
            anchor=False,
        )
        colors = dict(zip((one.name for one in view.settings), view.colors(view.settings), strict=True))
        st.dataframe(
            display.with_colors(rows, [colors[row["Setting"]] for row in rows]),
            hide_index=True,
            key="runs.compare.best",
            alt="Best and last epoch of each setting",
            column_config=display.COLOR_COLUMN,
        )


def best_and_last(view: ComparisonView) -> list[dict[str, str]]:
    """Return a table row per setting with at least one evaluated epoch."""
    rows = []
    for setting in view.settings if view.metric else ():
        by_run = [
            curves.evaluations(table.metric_rows(run), view.metric or "", split=view.split) for run in setting.runs
        ]
        statuses = [run.status() for run in setting.runs]
        seconds = [one.finished - one.started for one in statuses if one.finished and one.started]
        ends = curves.best_and_last(curves.mean_curve(by_run, across="epoch"))
        if ends is not None:
            rows.append(
                {
                    "Setting": setting.name,
                    "Best": f"{formatting.metric(ends.best)} in epoch {ends.best_epoch}",
                    "Last": f"{formatting.metric(ends.last)} in epoch {ends.last_epoch}",
                    "Change since best": formatting.signed(ends.last - ends.best) if ends.last != ends.best else "none",
                    "Steps": ", ".join(dict.fromkeys(formatting.count(one.step) for one in statuses)),
                    "Time": formatting.duration(sum(seconds) / len(seconds)) if len(seconds) == len(statuses) else "",
                }
            )
    return rows


def _draw_differences(view: ComparisonView) -> None:
    settings = view.settings
    if len(settings) < 2:
        st.caption("These runs differ only in their seed.")
        return
    st.header("Config differences", anchor=False)
    different = differences({one.name: [run.config() for run in one.runs] for one in settings})
    if not users.current_user().may_launch:  # students see no paths of the server
        different = [row for row in different if not row["Key"].startswith("data.")]
    if different:
        st.dataframe(
            different,
            hide_index=True,
            key="runs.differences",
            alt="Settings that differ between the runs",
            column_config={"Key": st.column_config.TextColumn(pinned=True)},
        )
    else:
        st.caption("These runs have the same settings.")


def differences(configs: Mapping[str, Sequence[RunConfig]]) -> list[dict[str, str]]:
    """Return a table row per config key whose values differ between settings; a setting has one config per run."""
    flat = {name: [flatten(config) for config in of_setting] for name, of_setting in configs.items()}
    keys = dict.fromkeys(key for of_setting in flat.values() for config in of_setting for key in config)
    rows = [(key, [_values(of_setting, key) for of_setting in flat.values()]) for key in keys]
    return [
        {"Key": key} | {name: users.without_folders(", ".join(one)) for name, one in zip(flat, values, strict=True)}
        for key, values in rows
        if any(one != values[0] for one in values) and key not in IGNORED_KEYS - {SEED}
    ]


def _values(configs: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return the distinct values of a config key, shorter ones first: numbers are sorted."""
    values = {
        "not set" if config.get(key) is None else str(config_form.value_title(key, config[key])) for config in configs
    }
    return sorted(values, key=lambda value: (len(value), value))


def _draw_link(runs: list[Run], view: ComparisonView) -> None:
    """Draw the URL of this comparison."""
    with st.popover("Link to this comparison", icon=":material/link:", type="tertiary"):
        page = (st.context.url or "").partition("?")[0]
        st.code(f"{page}?{urlencode(url_parameters(runs, view))}", language=None, wrap_lines=True)
        st.caption("This link opens the page with the same runs and selections.")


def url_parameters(runs: list[Run], view: ComparisonView) -> list[tuple[str, str]]:
    """Return the query parameters of a comparison: its runs, the selected group of the table and every selection."""
    first, *others = [run.id for run in runs]
    parameters = [("run", first), *(("compare", other) for other in others)]
    if group := st.query_params.get(table.GROUP):
        parameters.append((table.GROUP, group))
    part = [(PART, str(value))] if (value := st.session_state.get(PART)) else []
    return [*parameters, *part, *view.url_parameters, *query_differences.url_parameters(view)]

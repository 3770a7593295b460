"""The runs of a group: metric by setting, curves, a table of settings, and the best setting as a config."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import streamlit as st

from bsc_core import formatting, jobs
from bsc_core.config import RunConfig, setting_name, to_toml
from bsc_core.errors import RunError
from bsc_core.evaluation import Comparison
from bsc_core.figures.runs import curves, parallel
from bsc_core.runs import Run
from bsc_core.runs.ids import short_id
from pages.ui.comparison import metrics_table
from pages.ui.comparison.settings import Setting, compare_settings
from pages.ui.components import config_form, data_cache, display, run_data, url, users
from pages.ui.components.glossary import help_text
from pages.ui.runs import actions, curve_controls, run_settings, table

SEED = "training.seed"
SPLIT = "dev"
MAX_EPOCHS = 1_000  # of a curve, up to which all are drawn
MAX_INTERVALS = 24  # settings, the best means first, whose intervals are computed
Summary = Mapping[str, Any]
Cell = Mapping[str, Any]  # one setting of a summary


def draw_result(group: str, runs: list[Run]) -> None:
    """Draw how many runs of the group are done and whether one setting is best, live while one of them is active."""
    table.draw_live(lambda: _draw_result(group, runs), runs)


def _draw_result(group: str, runs: list[Run]) -> None:
    with display.show_errors(stop=False):
        summary = _summary(runs)
        st.header(display.escaped(headline(group, summary)), anchor=False)
        metrics = [display.escaped(formatting.metric_name(name)) for name in summary["main_metrics"]]
        if len(metrics) > 1:
            st.caption(
                f"The main metrics of the runs differ: {', '.join(metrics)}. All runs are compared by the {metrics[0]} "
                "of their saved model on dev."
            )
        _draw_best_against_next(runs, summary)
        actions.draw_stop_all(runs, key=f"runs.sweep.stop.{group}")


def draw_details(group: str, runs: list[Run]) -> None:
    """Draw the figures and tables of the group, live while one of its runs is active."""
    table.draw_live(lambda: _draw_details(group, runs), runs)


def _draw_details(group: str, runs: list[Run]) -> None:
    with display.show_errors(stop=False):
        summary = _summary(runs)
        tabs = {
            "Metric by setting": _draw_axes,
            "Curves": _draw_curves,
            "Settings": _draw_settings,
            "Best setting": _draw_best_setting,
        }
        display.tabs(tabs, group, runs, summary, **url.bound("runs.sweep.part", tabs))


def headline(group: str, summary: Summary) -> str:
    """Return `Sweep name: 3 of 4 runs done, 1 failed`."""
    others = [f", {count} {state}" for state, count in summary["states"].items() if state != "done" and count]
    done = f"{summary['done']} of {formatting.plural(summary['runs'], 'run')} done"
    return f"{short_id(group)}: {done}{''.join(others)}"


def _summary(runs: list[Run]) -> Summary:
    """Return the summary of the runs with the settings as the user may see them."""
    summary = jobs.group_summary(runs)
    for cell in summary["settings"]:
        cell["setting"] = {
            key: users.without_folders(value) if isinstance(value, str) else value
            for key, value in cell["setting"].items()
        }
    return summary


def _colors(run_ids: Iterable[str]) -> dict[str, str]:
    ids = list(run_ids)
    return dict(zip(ids, run_data.run_colors(ids), strict=True))


def _draw_axes(group: str, runs: list[Run], summary: Summary) -> None:
    """Draw every run as a line over the settings that differ, the metric last."""
    values, results = run_values(summary)
    if not values:
        st.caption("The runs of this group were deleted.")
        return
    if all(value is None for value in results.values()):
        st.caption("The figure appears here when the first run is done.")
        return
    metric = summary["metric"] or "metric on dev"
    values = {run: {setting_name(key): one for key, one in of_run.items()} for run, of_run in values.items()}
    figure = parallel.parallel(values, results, metric=metric, colors=_colors(values))
    display.figure(figure, alt=" ".join(parallel.headline(values, results, metric=metric)), name=f"sweep.{group}")


def draw_newest(runs: list[Run]) -> None:
    """Draw the curves of the first runs, of the table without a selection, live while one of them is active."""
    shown = table.runs_of_figure(runs)
    table.draw_live(lambda: _draw_newest(shown), shown)


def _evaluations(rows: Mapping[str, list[dict[str, Any]]], metric: str) -> dict[str, curves.Points]:
    """Return the metric of each run by epoch, of very many epochs evenly spaced ones with the last."""
    points = {run_id: curves.evaluations(lines, metric) for run_id, lines in rows.items()}
    steps = {run_id: max(1, math.ceil(len(curve) / MAX_EPOCHS)) for run_id, curve in points.items()}
    return {run_id: curve[:: -steps[run_id]][::-1] for run_id, curve in points.items()}


def _draw_newest(runs: list[Run]) -> None:
    rows = {}
    for run in runs:
        with suppress(RunError):  # the page of a damaged run shows the error
            rows[run.id] = table.metric_rows(run)
    names = [name for run in runs if (name := run.status().metric_name)]
    if not any(rows.values()):
        return
    datasets = {values.get(run_settings.DATASET) for values in run_settings.load_settings(runs).values()}
    best = None
    with suppress(RunError):
        best = table.best_run(runs)
    if best and [run.status().metric_best for run in runs].count(best.status().metric_best) > 1:  # a tie
        best = None
    losses = {run_id: curves.series(lines, "loss", max_points=128) for run_id, lines in rows.items()}
    figures = [("loss", "step", f"Loss of {_number_drawn(losses)}", losses)]
    if names:
        metric = max(names, key=names.count)
        values = _evaluations(rows, metric)
        name = formatting.metric_name(metric)
        title = f"{name} on dev of {_number_drawn(values)}"
        title += f"; highest: {short_id(best.id)}" if best else ""
        figures.insert(0, (name, "epoch", title, values))
    for cell, (value, across, title, points) in zip(
        display.columns(len(figures), of_figures=True), figures, strict=True
    ):
        with cell:
            figure = parallel.sweep_curves(
                points,
                {run_id: short_id(run_id) for run_id in points},
                title=title,
                value=value,
                across=across,
                top=best.id if best else None,
                colors=_colors(points),
                with_legend=False,
            )
            display.figure(figure, alt=f"{value} by {across} of {_number_drawn(points)}", name=f"newest.{value}")
    thick = "; the thick one is that of the highest run" if best else ""
    several = "" if len(datasets) == 1 else " The runs are on different datasets, so their values are not comparable."
    st.caption(f"Each curve has the color of its run in the table{thick}.{several}")


def _number_drawn(points: Mapping[str, curves.Points]) -> str:
    """Return the number of runs that have a curve, such as `3 runs`."""
    return formatting.plural(sum(map(bool, points.values())), "run")


def run_values(summary: Summary) -> tuple[dict[str, dict[str, Any]], dict[str, float | None]]:
    """Return, by run id, the settings that differ and the best dev metric (None until the run is done).

    The seed counts as a setting only if nothing else differs.
    """
    values: dict[str, dict[str, Any]] = {}
    results: dict[str, float | None] = {}
    for cell in summary["settings"]:
        for run_id, seed, value in zip(cell["runs"], cell["seeds"], cell["values"], strict=True):
            values[run_id] = dict(cell["setting"]) or {SEED: seed}
            results[run_id] = value
    return values, results


def setting_names(summary: Summary) -> dict[str, str]:
    """Return, by run id, the name of the run's setting, with the seed where a setting has several."""
    names = {}
    for cell in summary["settings"]:
        for run_id, seed in zip(cell["runs"], cell["seeds"], strict=True):
            names[run_id] = cell_name(cell) + (f", seed {seed}" if len(cell["runs"]) > 1 else "")
    return names


def _draw_curves(group: str, runs: list[Run], summary: Summary) -> None:
    """Draw the dev metric by epoch and the loss by step of all runs, the best one highlighted."""
    view = curve_controls.select_view()
    metric, best_run, names = summary["metric"], summary["best_run"], setting_names(summary)
    rows = {run.id: table.metric_rows(run) for run in runs if run.id in names}  # not those that another run resumes
    left, right = display.columns(2, of_figures=True)
    best = f"best run {short_id(best_run)}" if best_run else "no run is done"
    draw = partial(parallel.sweep_curves, top=best_run, colors=_colors(rows), log=view.log)
    with left:
        losses = {run_id: curves.series(lines, "loss", max_points=128) for run_id, lines in rows.items()}
        losses = {run_id: curves.smooth(points, view.smoothing) for run_id, points in losses.items()}
        figure = draw(losses, names, title=f"Loss; {best}", value="loss", across=curves.x_key(losses, view, "step"))
        display.figure(figure, alt=f"Loss by step of {len(rows)} runs", name=f"sweep.loss.{group}")
    if metric:
        with right:
            values = _evaluations(rows, metric)
            name = formatting.metric_name(metric)
            title = f"{name} on dev; {best}"
            figure = draw(values, names, title=title, value=name, across=curves.x_key(values, view, "epoch"))
            display.figure(figure, alt=f"{name} by epoch of {len(rows)} runs", name=f"sweep.dev.{group}")


def _draw_settings(group: str, runs: list[Run], summary: Summary) -> None:
    """Draw a table row per setting: its seeds, and the metric's mean, interval, deviation and best value."""
    rows = setting_rows(summary, intervals(summary, runs))
    st.dataframe(rows, hide_index=True, key=f"runs.cells.{group}", alt="Settings of the sweep, the best mean first")
    display.csv_button(rows, name=f"sweep.{group}", key=f"runs.cells.save.{group}")


def _draw_best_against_next(runs: list[Run], summary: Summary) -> None:
    """Draw whether the best setting is significantly better than the next one, or the mean of a single setting."""
    sentence = best_against_next(summary, runs)
    if sentence is None:
        return
    about = f"{help_text('interval')}\n\n{help_text('p_value')}"
    if any(len(cell["runs"]) > 1 for cell in summary["settings"]):
        about += f"\n\n{help_text('seed_spread')}"
    numbers = [number for cell in summary["settings"] if (number := _evaluated(cell))][:2]
    if len(set(numbers)) == 2:
        sentence += f" These settings have {numbers[0]} and {numbers[1]} finished runs."
    if all(_evaluated(cell) < 2 for cell in summary["settings"]):
        sentence += " Each setting has one seed, so the differences between seeds are unknown."
    if any(summary["states"].get(state) for state in ("queued", "starting", "running", "stopping")):
        sentence = sentence.replace("est setting:", "est setting so far:", 1)
    if number := summary["runs"] - summary["done"]:
        verb = "is not done and does" if number == 1 else "are not done and do"
        sentence += f" {formatting.plural(number, 'run')} {verb} not count."
    st.text(sentence, help=about)


def _evaluated(cell: Cell) -> int:
    """Return the number of finished runs of a setting."""
    return sum(value is not None for value in cell["values"])


def setting_rows(summary: Summary, intervals_: list[str]) -> list[dict[str, Any]]:
    """Return the settings as table rows, the best mean first, each with its interval."""
    metric = formatting.metric_name(summary["metric"] or "metric")
    return [
        {
            setting_name(key): parallel.format_value(config_form.value_title(key, value))
            for key, value in cell["setting"].items()
        }
        | {
            "Runs": len(cell["runs"]),
            "Seeds": parallel.format_value(cell["seeds"]),
            f"{metric}, mean": _metric(cell["mean"], "undefined" if "done" in cell["states"] else "not done"),
            "95% interval": interval,
            "Std. dev.": _metric(cell["deviation"], "one run" if cell["mean"] is not None else ""),
            "Best": _metric(cell["best"], ""),
        }
        for cell, interval in zip(summary["settings"], intervals_, strict=True)
    ]


def _metric(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else formatting.metric(value)


def _draw_best_setting(group: str, runs: list[Run], summary: Summary) -> None:
    """Draw the setting with the best mean as a config file."""
    config = best_config(summary)
    if config is None:
        active = any(not run.status().is_finished for run in runs)
        later = "The best setting appears here as a config when the first run is done."
        st.caption(later if active else "No run of this group is done, so there is no best setting.")
        return
    cell = summary["settings"][0]
    number, evaluated = len(cell["runs"]), _evaluated(cell)
    part = f"{evaluated} of " if evaluated < number else ""
    over = f" over {part}{formatting.plural(number, 'seed')}" if number > 1 else ""
    interval = intervals(summary, runs)[0]
    value = formatting.metric(cell["mean"]) + (f" {interval}" if interval.startswith("[") else "")
    st.text(f"{cell_name(cell)}: {formatting.metric_name(summary['metric'])} {value}{over}")
    settings = len(summary["settings"])
    if (done := sum(one["mean"] is not None for one in summary["settings"])) < settings:
        st.caption(f"The best so far: {done} of {settings} settings have a finished run.")
    if (compared := best_against_next(summary, runs)) is not None:
        st.caption(display.escaped(compared))
    if not users.current_user().may_launch:  # a config has paths of the server
        return
    text = to_toml(config)
    with st.container(horizontal=True):
        about, icon = "Opens the New run page with this config.", ":material/arrow_forward:"
        if st.button("Train with this setting", key=f"runs.best.train.{group}", icon=icon, help=about):
            actions.start_from_config(config)
        display.config_download(text, key=f"runs.best.toml.{group}")
    st.code(text, language=None, height=320)


def best_config(summary: Summary) -> RunConfig | None:
    """Return the config of the best run of the setting with the best mean; None while no run is done."""
    run_id = summary["settings"][0]["best_run"] if summary["settings"] else None
    return data_cache.run_store().get(run_id).config() if run_id else None


def intervals(summary: Summary, runs: list[Run]) -> list[str]:
    """Return the interval of each setting, such as `[0.612, 0.688]`, or the reason why there is none."""
    return [
        _interval_text(cell, position, summary["metric"], runs) for position, cell in enumerate(summary["settings"])
    ]


def _interval_text(cell: Cell, position: int, metric: str | None, runs: list[Run]) -> str:
    if cell["mean"] is None:
        return ""
    if position >= MAX_INTERVALS:
        return "not computed"
    interval = metrics_table.interval_or_none(cell_setting(cell, runs), SPLIT, metric) if metric else None
    if interval is None or interval.low is None or interval.high is None:
        return "no interval"
    return f"[{formatting.metric(interval.low)}, {formatting.metric(interval.high)}]"


def best_against_next(summary: Summary, runs: list[Run]) -> str | None:
    """Compare the setting with the highest mean with the next one, in a sentence; None while fewer are evaluated.

    Of a single setting with several seeds, the sentence has the mean and the standard deviation.
    """
    done = [cell for cell in summary["settings"] if cell["mean"] is not None]
    if not summary["metric"]:
        return None
    if len(done) == len(summary["settings"]) == 1 and done[0]["deviation"] is not None:
        mean, deviation = (formatting.metric(done[0][name]) for name in ("mean", "deviation"))
        seeds = f"{_evaluated(done[0])} seeds, standard deviation {deviation}"
        return f"Mean {formatting.metric_name(summary['metric'])}: {mean} over {seeds}."
    if len(done) < 2:
        return None
    best, following = (cell_setting(cell, runs) for cell in done[:2])
    comparison = compare_settings(following, best, SPLIT, summary["metric"])
    untrained = [run.evaluation("before").get(SPLIT) or {} for run in (*best.runs, *following.runs)]
    starts = {one.get(summary["metric"]) for one in untrained}
    mean, start = done[0]["mean"], starts.pop() if len(starts) == 1 else None
    metric = formatting.metric_name(summary["metric"])
    sentence = best_sentence(comparison, best.name, following.name, metric, mean, start)
    return sentence if start is None or mean > start else f"No setting is better than before training. {sentence}"


def best_sentence(
    comparison: Comparison | str, best: str, following: str, metric: str, mean: float, start: float | None = None
) -> str:
    """Return whether the setting with the highest mean is clearly best, its mean and its difference from the next.

    The result is such as `No setting is clearly best. Warm has the highest mean MRR, 0.689 (0.330 before training). The
    difference from cold, the next best, is +0.012 [−0.004, +0.020], p = 0.43.`

    Args:
        comparison: The comparison of both settings, or the reason why there is none.
        best: Name of the setting with the highest mean.
        following: Name of the setting with the next highest mean.
        metric: Name of the metric.
        mean: The highest mean.
        start: The metric before training, if it is the same for both settings.
    """
    clear, next_best = False, f"{following}, the next best"
    if isinstance(comparison, str):
        difference = f"It is not compared with {next_best}: {comparison.removeprefix('comparison: ').rstrip('.')}."
    elif comparison.p is None:
        reason = "there is only one query" if comparison.queries < 2 else "no query differs"
        difference = f"The difference from {next_best}, is not tested: {reason}."
    else:
        clear = comparison.significant and comparison.difference.value > 0
        values = metrics_table.format_difference(comparison.difference)
        difference = f"The difference from {next_best}, is {values}, {metrics_table.format_p(comparison.p)}."
    before = "" if start is None else f" ({formatting.metric(start)} before training)"
    verdict = f"{best} is the best setting." if clear else "No setting is clearly best."
    subject = "It" if clear else best
    return f"{verdict} {subject} has the highest mean {metric}, {formatting.metric(mean)}{before}. {difference}"


def cell_setting(cell: Cell, runs: list[Run]) -> Setting:
    """Return the finished runs of a setting."""
    by_id = {run.id: run for run in runs}
    done = [by_id[run_id] for run_id, value in zip(cell["runs"], cell["values"], strict=True) if value is not None]
    return Setting(done[0].id, cell_name(cell), tuple(done))


def cell_name(cell: Cell) -> str:
    """Return `Temperature 0.05, Batch size 32`."""
    values = [f"{setting_name(key)} {parallel.format_value(value)}" for key, value in cell["setting"].items()]
    return ", ".join(values) or "the only setting"

"""Parallel coordinates and curves of the runs of a sweep.

Each setting has an axis; the last axis is the result. With one setting, runs are points above its values. A run has the
color that it has on its page; the best run is a thick line, or a large point, on top of the others.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from bsc_core import formatting
from bsc_core.config import setting_name
from bsc_core.figures import theme
from bsc_core.figures.runs import curves

Settings = Mapping[str, Mapping[str, Any]]

HEIGHT = 320
MAX_NAMED = 10  # most runs that a legend of curves names
MANY_POINTS = 64  # number of distinct values above which curves have no point markers
FEW = 8  # number of values up to which each has a tick
LOG_FROM = 10.0  # ratio of largest to smallest value from which an axis is logarithmic
LARGEST = 1e300  # larger numbers are shown as names
NOT_SET = "not set"
SEED_NAME = setting_name("training.seed")
METRIC_AXIS = alt.Axis(tickCount=5, format=".3f", tickMinStep=0.001)  # without equal labels
COLOR = alt.Color("color:N", scale=None)


class Axis(NamedTuple):
    """An axis of the parallel coordinates: the position of each run in [0, 1] (None without a value), and its ticks."""

    name: str
    positions: dict[str, float | None]
    ticks: list[tuple[float, str]]


def axis(name: str, values: Mapping[str, Any]) -> Axis:
    """Build the axis of a setting from the value of each run.

    Numbers are placed to scale, logarithmic if all are positive and span a factor of 10. Other values are evenly
    spaced in order of first occurrence. A single value is placed in the middle.
    """
    given = [value for value in values.values() if value is not None]
    if given and len(given) == len(values) and all(_is_number(value) for value in given):
        return _numeric(name, values)
    distinct = list(dict.fromkeys(format_value(value) for value in values.values()))
    spread = {label: _scale(float(number), 0.0, len(distinct) - 1.0) for number, label in enumerate(distinct)}
    ticks = [(position, label) for label, position in spread.items()]
    return Axis(name, {run: spread[format_value(value)] for run, value in values.items()}, ticks)


def result_axis(name: str, values: Mapping[str, float | None]) -> Axis:
    """Build the axis of a metric, to scale, from the result of each run (None without one)."""
    results = [value for value in values.values() if value is not None]
    if not results:
        return Axis(name, dict.fromkeys(values), [])
    low, high = min(results), max(results)
    positions = {run: None if value is None else _scale(value, low, high) for run, value in values.items()}
    ends = dict.fromkeys([low, (low + high) / 2, high])
    return Axis(name, positions, [(_scale(value, low, high), f"{value:.3f}") for value in ends])


def parallel(
    settings: Settings, results: Mapping[str, float | None], *, metric: str, colors: Mapping[str, str]
) -> alt.LayerChart:
    """Plot every run as a line over the axes of its settings and its result; the best run is thick.

    With one setting, every run is a point above its value.

    Args:
        settings: run to {setting: value}, with the same settings for all runs.
        results: run to value of `metric`; for None, the line ends at the last setting.
        metric: name of the metric.
        colors: run to color.
    """
    names = list(next(iter(settings.values()), {}))
    if len(names) == 1:
        points_by_value = _points_by_value(names[0], settings, results, metric, colors)
        return points_by_value.properties(title=headline(settings, results, metric=metric), height=HEIGHT)
    axes = [axis(name, {run: chosen.get(name) for run, chosen in settings.items()}) for name in names]
    axes.append(result_axis(formatting.metric_name(metric), results))
    top = best(results)
    points = [
        {"run": run, "axis": one.name, "position": one.positions[run], "best": run == top, "color": colors[run]}
        | {"value": format_value(chosen[one.name]) if one.name in chosen else formatting.metric(results.get(run))}
        for run, chosen in settings.items()
        for one in axes
        if one.positions[run] is not None
    ]
    layers = [_rules(axes), *_run_lines(points, [one.name for one in axes]), _ticks(axes)]
    return alt.layer(*layers).properties(title=headline(settings, results, metric=metric), height=HEIGHT)


def best(results: Mapping[str, float | None]) -> str | None:
    """Return the run with the highest result, the first of ties; None without results."""
    known = {run: value for run, value in results.items() if value is not None}
    return max(known, key=known.__getitem__) if known else None


def headline(settings: Settings, results: Mapping[str, float | None], *, metric: str) -> list[str]:
    """Return the title lines: number of runs, best result, and the settings of the best run.

    Of runs that differ only in their seed, none is the best; the title has their mean and range.
    """
    top, runs = best(results), formatting.plural(len(settings), "run")
    if top is None:
        return [f"{runs}, none evaluated yet"]
    known = [value for value in results.values() if value is not None]
    if all(set(one) == {SEED_NAME} for one in settings.values()) and len(known) > 1:
        mean, *ends = map(formatting.metric, (sum(known) / len(known), min(known), max(known)))
        return [f"Mean of {len(known):,} seeds: {formatting.metric_name(metric)} {mean}", f"from {' to '.join(ends)}"]
    chosen = [f"{setting_name(name).lower()} {format_value(value)}" for name, value in settings[top].items()]
    evaluated = sum(value is not None for value in results.values())
    if evaluated == len(settings):
        subject = f"Highest of {runs}"
    elif evaluated == 1:
        subject = "The only run that is done"
    else:
        subject = f"Highest of the {evaluated:,} runs that are done"
    return [
        f"{subject}: {formatting.metric_name(metric)} {formatting.metric(results[top])}",
        f"with {', '.join(chosen)}",
    ]


def sweep_curves(
    points: Mapping[str, curves.Points],
    names: Mapping[str, str],
    *,
    title: str,
    value: str,
    across: str,
    top: str | None,
    colors: Mapping[str, str],
    with_legend: bool = True,
    log: bool = False,
) -> alt.LayerChart:
    """Plot the curves of many runs, with the best run as a thick line on top.

    Args:
        points: run to points, as returned by `curves.series`.
        names: run to its name in the legend and the tooltip.
        title: chart title.
        value: y-axis title.
        across: key of the x values.
        top: name of the best run; None without one.
        colors: run to color.
        with_legend: whether a legend names the runs, if they are at most MAX_NAMED.
        log: whether the y-axis is logarithmic, if all values are positive.
    """
    log = log and all(point["value"] > 0 for curve in points.values() for point in curve)
    y_scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    with_legend = with_legend and len(points) <= MAX_NAMED
    table = [
        {"run": run, "name": names[run], "best": run == top, "color": colors[run], **point}
        for run, curve in points.items()
        for point in curve
    ]
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=220, symbolType="stroke", symbolOpacity=1)
    scale = alt.Scale(domain=[names[run] for run in points], range=[colors[run] for run in points])
    color = alt.Color("name:N", scale=scale, legend=legend) if with_legend else COLOR
    base = alt.Chart(alt.Data(values=table)).encode(
        x=alt.X(f"{across}:Q", title=curves.AXES.get(across, across), axis=alt.Axis(tickMinStep=1, format=",d")),
        y=alt.Y("value:Q", title=value, axis=alt.Axis(labelExpr=curves.LABEL, tickCount=5), scale=y_scale),
        detail=alt.Detail("run:N"),
        color=color,
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("name:N", title="setting"),
            alt.Tooltip(f"{across}:Q"),
            alt.Tooltip("value:Q", title=value, format=".5~g"),
        ],
    )
    dots = len({point["value"] for point in table}) <= MANY_POINTS
    layers = [
        base.transform_filter(chosen).mark_line(
            point=alt.OverlayMarkDef(size=40, filled=True) if dots else False, **mark
        )
        for chosen, mark in (
            ("!datum.best", {"strokeWidth": 1.5, "opacity": 1}),
            ("datum.best", {"strokeWidth": 4}),
        )
    ]
    height = curves.HEIGHT + (12 * len(points) if with_legend else 0)  # two names in a row
    return alt.layer(*layers).properties(title=title, height=height)


def _numeric(name: str, values: Mapping[str, Any]) -> Axis:
    distinct = sorted(set(values.values()))
    scaled = math.log if distinct[0] > 0 and distinct[-1] >= LOG_FROM * distinct[0] else float
    low, high = scaled(distinct[0]), scaled(distinct[-1])
    positions = {value: _scale(scaled(value), low, high) for value in distinct}
    labeled = distinct if len(distinct) <= FEW else [distinct[0], distinct[len(distinct) // 2], distinct[-1]]
    ticks = [(positions[value], format_value(value)) for value in labeled]
    return Axis(name, {run: positions[value] for run, value in values.items()}, ticks)


def _scale(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_value(value: Any) -> str:
    """Format a value for an axis label."""
    if value is None:
        return NOT_SET
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value)) or "none"
    if isinstance(value, Mapping):  # a config section, such as a loss
        return str(value.get("name", dict(value)))
    return formatting.number(value) if _is_number(value) else str(value)


def _xy(names: Sequence[str]) -> dict[str, alt.X | alt.Y]:
    axis = alt.Axis(title=None, orient="top", labelAngle=0, labelLimit=180, domain=False, ticks=False, labelPadding=10)
    return {
        "x": alt.X("axis:N", sort=list(names), axis=axis, scale=alt.Scale(type="point", padding=0.2)),
        "y": alt.Y("position:Q", axis=None, scale=alt.Scale(domain=[-0.08, 1.08], nice=False)),
    }


def _rules(axes: Sequence[Axis]) -> alt.Chart:
    names = [one.name for one in axes]
    ends = [{"axis": name, "position": 0.0, "end": 1.0} for name in names]
    rules = alt.Chart(alt.Data(values=ends)).mark_rule(color=theme.REFERENCE, opacity=0.6)
    return rules.encode(**_xy(names), y2=alt.Y2("end:Q"))


def _points_by_value(
    name: str, settings: Settings, results: Mapping[str, float | None], metric: str, colors: Mapping[str, str]
) -> alt.LayerChart:
    """Plot the result of each run above its value of a setting, to scale if all values are numbers."""
    top, metric = best(results), formatting.metric_name(metric)
    values: list[Any] = [chosen.get(name) for chosen in settings.values()]
    numeric = all(_is_number(value) and abs(value) < LARGEST for value in values)
    table = [
        {"run": run, "best": run == top, "color": colors[run], "result": result, "shown": format_value(value)}
        | {"value": float(value) if numeric else format_value(value)}
        for run, value in zip(settings, values, strict=True)
        if (result := results.get(run)) is not None
    ]
    is_log = numeric and min(values) > 0 and max(values) / min(values) >= LOG_FROM
    ticks = sorted(set(map(float, values))) if numeric and len(set(values)) <= FEW else alt.Undefined
    number_format = {"format": "~g"} if numeric else {}
    across = alt.Axis(title=setting_name(name), values=ticks, **number_format)
    scale: Any = (
        alt.Scale(type="log" if is_log else "linear", zero=False, nice=not is_log, padding=20)
        if numeric
        else alt.Undefined
    )
    base = alt.Chart(alt.Data(values=table)).encode(
        x=alt.X("value:Q" if numeric else "value:N", axis=across, scale=scale, sort=None),
        y=alt.Y("result:Q", title=metric, scale=alt.Scale(zero=False, padding=20), axis=METRIC_AXIS),
        color=COLOR,
        tooltip=[alt.Tooltip("run:N"), alt.Tooltip("shown:N", title=setting_name(name)), alt.Tooltip("result:Q")],
    )
    return alt.layer(
        base.mark_point(size=70, filled=True, opacity=1),
        base.transform_filter("datum.best").mark_point(size=160, filled=True, opacity=1),
    )


def _run_lines(points: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[alt.Chart]:
    """Return the lines and points of the runs, the best run on top."""
    base = alt.Chart(alt.Data(values=list(points))).transform_calculate(index=f"indexof({list(names)!r}, datum.axis)")
    base = base.encode(
        **_xy(names),
        detail=alt.Detail("run:N"),
        color=COLOR,
        tooltip=[alt.Tooltip("run:N"), alt.Tooltip("axis:N", title="setting"), alt.Tooltip("value:N")],
    )
    best, order = base.transform_filter("datum.best"), alt.Order("index:Q")
    return [
        base.mark_line(strokeWidth=1.5, opacity=1).encode(order=order),
        base.mark_point(size=50, filled=True, opacity=1),
        best.mark_line(strokeWidth=4).encode(order=order),
        best.mark_point(size=80, filled=True, opacity=1),
    ]


def _ticks(axes: Sequence[Axis]) -> alt.Chart:
    """Return the labels of the axes, where no line crosses them; inside an inner axis they have an outline."""
    table = [
        {"axis": one.name, "position": position, "label": label, **_label_offset(number, len(axes), position)}
        for number, one in enumerate(axes)
        for position, label in one.ticks
    ]
    offset: dict[str, Any] = {name: alt.expr(f"datum.{name}") for name in ("align", "dx", "dy")}
    text = alt.Chart(alt.Data(values=table)).mark_text(fontSize=12, limit=130, color=theme.REFERENCE, **offset)
    return text.encode(**_xy([one.name for one in axes]), text=alt.Text("label:N"))


def _label_offset(axis: int, axes: int, position: float) -> dict[str, Any]:
    """Return where a label is: on the outer side of the first and last axis, above or below the ends of the others."""
    if axis == axes - 1:
        return {"align": "left", "dx": 10, "dy": 0}
    if axis == 0:
        return {"align": "right", "dx": -10, "dy": 0}
    if position in (0.0, 1.0):
        return {"align": "center", "dx": 0, "dy": 14 - 28 * position}
    return {"align": "left", "dx": 10, "dy": -8}

"""The runs of a sweep: a line each over parallel axes, one axis for each setting and the last for what was measured.

Also their curves in one picture. The best run is drawn over the others, so it is found among a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from bsc_core.figures import curves, theme

Settings = Mapping[str, Mapping[str, Any]]

WORSE, BETTER = theme.REFERENCE, curves.RUN_COLOURS[0]  # from the lowest result to the highest, on light and dark
OTHERS_OPACITY = 0.55
HEIGHT = 320
MANY_POINTS = 64  # values of all curves together from which they have no points
FEW = 8  # values up to which each has its tick
LOG_FROM = 10.0  # largest over smallest value from which an axis is logarithmic
NOTHING = "not set"


class Axis(NamedTuple):
    """One axis: its name, the place in [0, 1] of each run (None: no value), and its ticks as (place, words)."""

    name: str
    places: dict[str, float | None]
    ticks: list[tuple[float, str]]


def axis(name: str, values: Mapping[str, Any]) -> Axis:
    """The axis of one setting. values: run -> value.

    Numbers lie to scale, on a logarithmic one when all are positive and span a factor of 10; other values lie evenly
    in the order they first come. A single value lies in the middle.
    """
    given = [value for value in values.values() if value is not None]
    if given and len(given) == len(values) and all(_is_number(value) for value in given):
        return _numeric(name, values)
    distinct = list(dict.fromkeys(words(value) for value in values.values()))
    spread = {word: _place(float(number), 0.0, len(distinct) - 1.0) for number, word in enumerate(distinct)}
    places: dict[str, float | None] = {run: spread[words(value)] for run, value in values.items()}
    return Axis(name, places, [(place, word) for word, place in spread.items()])


def result_axis(name: str, values: Mapping[str, float | None]) -> Axis:
    """The axis of a metric, to scale; a run without a value has no place."""
    measured = {run: value for run, value in values.items() if value is not None}
    if not measured:
        return Axis(name, dict.fromkeys(values), [])
    low, high = min(measured.values()), max(measured.values())
    places = {run: None if value is None else _place(value, low, high) for run, value in values.items()}
    ends = dict.fromkeys([low, (low + high) / 2, high])
    return Axis(name, places, [(_place(value, low, high), f"{value:.3f}") for value in ends])


def parallel(settings: Settings, results: Mapping[str, float | None], *, metric: str) -> alt.LayerChart:
    """Every run as a line over the axes of its settings, which ends at its result; the best run is drawn thick.

    settings: run -> {setting: value}, the same settings for all. results: run -> value of `metric`, None where it is
    not measured: its line then ends at the last setting.
    """
    names = list(next(iter(settings.values()), {}))
    axes = [axis(name, {run: chosen.get(name) for run, chosen in settings.items()}) for name in names]
    axes.append(result_axis(metric, results))
    top = best(results)
    points = [
        {"run": run, "axis": one.name, "place": one.places[run], "result": results.get(run), "best": run == top}
        | {"value": words(settings[run].get(one.name)) if one is not axes[-1] else theme.metric(results.get(run))}
        for run in settings
        for one in axes
        if one.places[run] is not None
    ]
    return alt.layer(_rules(axes), *_run_lines(points, [one.name for one in axes], metric), _ticks(axes)).properties(
        title=headline(settings, results, metric=metric), height=HEIGHT
    )


def best(results: Mapping[str, float | None]) -> str | None:
    """The run with the highest result, the first of several; None while nothing is measured."""
    measured = {run: value for run, value in results.items() if value is not None}
    return max(measured, key=lambda run: measured[run]) if measured else None


def headline(settings: Settings, results: Mapping[str, float | None], *, metric: str) -> list[str]:
    """What the picture shows, in lines: how many runs and the best result, and the settings that brought it."""
    top, runs = best(results), theme.many(len(settings), "run")
    if top is None:
        return [f"{runs}, none of them measured"]
    chosen = [f"{name.rpartition('.')[2]} {words(value)}" for name, value in settings[top].items()]
    return [f"The best of {runs} reaches {metric} {theme.metric(results[top])}", f"with {', '.join(chosen)}"]


def sweep_curves(
    points: Mapping[str, curves.Points], *, title: str, value: str, across: str, top: str | None
) -> alt.LayerChart:
    """Curves of many runs in one colour, with the best run's over them. points: run -> as `curves.series` gives."""
    table = [{"run": run, "best": run == top, **point} for run, curve in points.items() for point in curve]
    base = alt.Chart(alt.Data(values=table)).encode(
        x=alt.X(f"{across}:Q", title=across, axis=alt.Axis(tickMinStep=1, format=",d")),
        y=alt.Y("value:Q", title=value, axis=alt.Axis(format=",~r", tickCount=5), scale=alt.Scale(zero=False)),
        detail="run:N",
        tooltip=[alt.Tooltip("run:N"), alt.Tooltip(f"{across}:Q"), alt.Tooltip("value:Q", title=value, format=".5~g")],
    )
    others = base.transform_filter("!datum.best").mark_line(
        color=theme.REFERENCE, opacity=OTHERS_OPACITY, point=_dots(table, theme.REFERENCE)
    )
    over = base.transform_filter("datum.best").mark_line(color=BETTER, strokeWidth=3, point=_dots(table, BETTER))
    return alt.layer(others, over).properties(title=title, height=curves.HEIGHT)


def _dots(table: Sequence[Mapping[str, Any]], colour: str) -> alt.OverlayMarkDef | bool:
    """Points on a curve of few values, in its own colour."""
    few = len({point["value"] for point in table}) <= MANY_POINTS
    return alt.OverlayMarkDef(size=40, filled=True, color=colour) if few else False


def _numeric(name: str, values: Mapping[str, Any]) -> Axis:
    distinct = sorted(set(values.values()))
    scaled = math.log if distinct[0] > 0 and distinct[-1] >= LOG_FROM * distinct[0] else float
    low, high = scaled(distinct[0]), scaled(distinct[-1])
    told = distinct if len(distinct) <= FEW else [distinct[0], distinct[len(distinct) // 2], distinct[-1]]
    places: dict[str, float | None] = {run: _place(scaled(value), low, high) for run, value in values.items()}
    return Axis(name, places, [(_place(scaled(value), low, high), words(value)) for value in told])


def _place(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def words(value: Any) -> str:
    """A value as an axis says it."""
    if value is None:
        return NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(map(words, value)) or "none"
    if isinstance(value, Mapping):  # a whole section, such as another loss
        return str(value.get("name", dict(value)))
    return f"{value:g}" if _is_number(value) else str(value)


def _across(names: Sequence[str]) -> alt.X:
    shown = alt.Axis(title=None, orient="top", labelAngle=0, labelLimit=180, domain=False, ticks=False, labelPadding=10)
    return alt.X("axis:N", sort=list(names), axis=shown, scale=alt.Scale(type="point", padding=0.4))


def _up() -> alt.Y:
    return alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[-0.04, 1.04], nice=False))


def _rules(axes: Sequence[Axis]) -> alt.Chart:
    names = [one.name for one in axes]
    ends = [{"axis": name, "place": 0.0, "end": 1.0} for name in names]
    marked = alt.Chart(alt.Data(values=ends)).mark_rule(color=theme.REFERENCE, opacity=0.6)
    return marked.encode(x=_across(names), y=_up(), y2="end:Q")


def _run_lines(points: Sequence[Mapping[str, Any]], names: Sequence[str], metric: str) -> list[alt.Chart]:
    """The lines of the runs that are measured, the best one's over them, and of those that are not; each with points.

    They are layers of their own, since a mark whose colour is to be told from a missing number is left out.
    """
    placed = alt.Chart(alt.Data(values=list(points))).transform_calculate(index=f"indexof({list(names)!r}, datum.axis)")
    told = [alt.Tooltip("run:N"), alt.Tooltip("axis:N", title="setting"), alt.Tooltip("value:N")]
    placed = placed.encode(x=_across(names), y=_up(), detail="run:N", tooltip=told)
    order = alt.Order("index:Q")
    colour = alt.Color("result:Q", title=metric, scale=alt.Scale(range=[WORSE, BETTER]), legend=None)
    measured, others = (
        placed.transform_filter("isValid(datum.result)"),
        placed.transform_filter("!isValid(datum.result)"),
    )
    grey = {"color": theme.REFERENCE, "opacity": OTHERS_OPACITY}
    return [
        others.mark_line(strokeWidth=1.5, **grey).encode(order=order),
        others.mark_point(size=50, filled=True, **grey),
        measured.mark_line(strokeWidth=2, opacity=0.85).encode(order=order, color=colour),
        measured.transform_filter("datum.best").mark_line(strokeWidth=4, color=BETTER).encode(order=order),
        measured.mark_point(size=60, filled=True, opacity=1).encode(color=colour),
    ]


def _ticks(axes: Sequence[Axis]) -> alt.Chart:
    names = [one.name for one in axes]
    table = [{"axis": one.name, "place": place, "words": told} for one in axes for place, told in one.ticks]
    text = alt.Chart(alt.Data(values=table)).mark_text(
        align="left", dx=9, dy=-8, fontSize=12, limit=130, color=theme.REFERENCE
    )
    return text.encode(x=_across(names), y=_up(), text="words:N")

"""Curves of runs: what every step notes, and the dev metric; one run, or several laid over each other.

Rows are the metric lines of a run: {"kind": "step", "step", "epoch", "loss", "temperature", ...} and
{"kind": "evaluation", "step", "epoch", "dev": {...}}. The first run is drawn solid, the second dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from bsc_core.figures import theme

MetricRows = Sequence[Mapping[str, Any]]
Points = list[dict[str, Any]]

RUN_COLOURS = ("#5B6BC0", "#B59B00", "#56B4E9", theme.REFERENCE)  # none of them stands for anything else
MOST_POINTS = 512
HEIGHT = 260
LABEL = "datum.value && abs(datum.value) < 0.001 ? format(datum.value, '~e') : format(datum.value, ',~r')"


class Field(NamedTuple):
    """A number that every step notes: what it is in a title, what its axis says, and the unit it is shown in."""

    noun: str
    axis: str
    unit: float = 1.0


STEP_FIELDS: dict[str, Field] = {
    "loss": Field("The loss", "loss"),
    "temperature": Field("The temperature", "temperature τ"),
    "learning_rate": Field("The learning rate", "learning rate"),
    "grad_norm": Field("The gradient's norm", "norm before clipping"),
    "tokens_per_second": Field("The speed", "tokens a second"),
    "hardness": Field("The hardness of the batch", "difference of cosines"),
    "memory_bytes": Field("The peak of memory", "MiB", float(2**20)),
}


def series(rows: MetricRows, field: str, *, most: int = MOST_POINTS) -> Points:
    """The values of `field` by step as [{"step", "value"}]; past `most` of them, means of 2, 4, 8 ... steps.

    The width of a bin is a power of two, so a curve that grows does not flicker. Values that are missing are left out.
    """
    found = [
        (int(row["step"]), float(row[field]))
        for row in rows
        if row.get("kind") == "step" and isinstance(row.get(field), int | float)
    ]
    width = 1
    while len(found) > most * width:
        width *= 2
    bins = [found[begin : begin + width] for begin in range(0, len(found), width)]
    return [{"step": part[-1][0], "value": sum(value for _, value in part) / len(part)} for part in bins]


def evaluations(rows: MetricRows, metric: str, *, split: str = "dev") -> Points:
    """The values of a metric after each epoch as [{"step", "epoch", "value"}]; undefined ones are left out."""
    found = [row for row in rows if row.get("kind") == "evaluation"]
    return [
        {"step": row.get("step", row.get("epoch", 0)), "epoch": row.get("epoch", 0), "value": row[split][metric]}
        for row in found
        if isinstance(row.get(split), Mapping) and row[split].get(metric) is not None
    ]


def noted(rows: MetricRows) -> list[str]:
    """Those of STEP_FIELDS that these rows hold, in their order."""
    held = {name for row in rows if row.get("kind") == "step" for name, value in row.items() if value is not None}
    return [name for name in STEP_FIELDS if name in held]


def step_curve(runs: Mapping[str, MetricRows], field: str) -> alt.LayerChart:
    """One of STEP_FIELDS by step of each run. runs: name -> metric rows."""
    noun, axis, unit = STEP_FIELDS[field]
    curves = {
        name: [{**point, "value": point["value"] / unit} for point in series(rows, field)]
        for name, rows in runs.items()
    }
    return lines(curves, title=_course(noun, curves), value=axis)


def metric_curve(runs: Mapping[str, MetricRows], metric: str) -> alt.LayerChart:
    """A dev metric after each epoch of each run."""
    curves = {name: evaluations(rows, metric) for name, rows in runs.items()}
    title = _course(f"{metric} on dev", curves)
    return lines(curves, title=title, value=f"{metric} (dev)", across="epoch", points=True)


def lines(
    curves: Mapping[str, Points], *, title: str, value: str, across: str = "step", points: bool = False
) -> alt.LayerChart:
    """Curves over `across`, one line a name: the first solid, the second dashed, each with its own colour.

    Points that have `low` and `high` also get a band between them.
    """
    names = list(curves)
    table = [{"run": name, **point} for name, curve in curves.items() for point in curve]
    colours = [RUN_COLOURS[number % len(RUN_COLOURS)] for number in range(len(names))]
    dashes = [list(theme.DASHES[number % len(theme.DASHES)]) for number in range(len(names))]
    legend = (
        alt.Legend(orient="bottom", title=None, columns=1, labelLimit=320, symbolType="stroke", symbolSize=400)
        if len(names) > 1
        else None
    )
    base = alt.Chart(alt.Data(values=table)).encode(
        x=alt.X(f"{across}:Q", title=across, axis=alt.Axis(tickMinStep=1, format=",d")),
        y=alt.Y(
            "value:Q", title=value, axis=alt.Axis(labelExpr=LABEL, tickCount=5), scale=alt.Scale(zero=False, nice=True)
        ),
        color=alt.Color("run:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        strokeDash=alt.StrokeDash("run:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip(f"{across}:Q", format=",d"),
            alt.Tooltip("value:Q", title=value, format=".5~g"),
        ],
    )
    few = points or len(table) <= 2 * len(names)  # a line of one point cannot be seen
    marks = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45, filled=True) if few else False)
    layers = [marks]
    if any("low" in point for point in table):
        fill = alt.Fill("run:N", scale=alt.Scale(domain=names, range=colours), legend=None)
        band = alt.Chart(alt.Data(values=table)).transform_filter("isValid(datum.low)").mark_area(opacity=0.16)
        layers.append(band.encode(x=f"{across}:Q", y="low:Q", y2="high:Q", fill=fill))
    return alt.layer(*layers).properties(title=title, height=HEIGHT + (24 * len(names) if legend else 0))


def _course(what: str, curves: Mapping[str, Points]) -> str:
    """What a curve does, as a sentence with its numbers; several curves are named by their last values."""
    drawn = {name: curve for name, curve in curves.items() if curve}
    if not drawn:
        return f"{what}: no value yet"
    if len(curves) > 1:
        return f"{what} ends at " + ", ".join(_told(curve[-1]["value"]) for curve in drawn.values())
    curve = next(iter(drawn.values()))
    first, last = _told(curve[0]["value"]), _told(curve[-1]["value"])
    if first == last:
        return f"{what} is {last}" if len(curve) == 1 else f"{what} stays at {last}"
    return f"{what} {'rises' if curve[-1]['value'] > curve[0]['value'] else 'falls'} from {first} to {last}"


def _told(value: float) -> str:
    """`0.812`, `12,345`, or `2.5e-5` where three decimals would hide it."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1e}".replace("e-0", "e-") if 0 < abs(value) < 0.001 else f"{value:.3f}"

"""Polarity against semantic similarity: one point for each run and epoch, with both floors and the untrained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from bsc_core.figures import theme

MARKED = "on the front"
OTHER = "beaten by another"
WIDTH = 420


class TradeoffPoint(NamedTuple):
    """P and S of a run after an epoch. series: what the points of one line share, such as its loss and margin; front:
    whether no other point beats it in both."""

    series: str
    epoch: int
    polarity: float
    semantic: float
    front: bool


def tradeoff(
    points: Sequence[TradeoffPoint], *, floors: tuple[float, float], reference: tuple[float, float]
) -> alt.LayerChart:
    """(P, S) of every run and epoch, the epochs of a run joined; up and to the right is better in both.

    floors: P and S of a pool in random order, drawn as dashed lines. reference: P and S of the untrained model, drawn
    as a cross. Points that no other beats are filled, the others hollow.
    """
    table = [point._asdict() | {"front": MARKED if point.front else OTHER} for point in points]
    names = list(dict.fromkeys(point.series for point in points))
    colours = [theme.CATEGORIES[number % len(theme.CATEGORIES)] for number in range(len(names))]
    colour = alt.Color("series:N", scale=alt.Scale(domain=names, range=colours), legend=_legend(len(names)))
    x = alt.X("polarity:Q", title="polarity P", scale=alt.Scale(zero=False))
    y = alt.Y("semantic:Q", title="semantic similarity S", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=table)).encode(x=x, y=y, color=colour)
    told = ["series:N", "epoch:Q", alt.Tooltip("polarity:Q", format=".3f"), alt.Tooltip("semantic:Q", format=".3f")]
    filled = alt.FillOpacity(
        "front:N", scale=alt.Scale(domain=[MARKED, OTHER], range=[1, 0]), legend=alt.Legend(orient="bottom", title=None)
    )
    paths = base.mark_line(strokeWidth=1, opacity=0.5).encode(order="epoch:Q")
    dots = base.mark_point(size=70, strokeWidth=1.5).encode(
        fill=alt.Fill("series:N", scale=alt.Scale(domain=names, range=colours), legend=None),
        fillOpacity=filled,
        tooltip=[*told, "front:N"],
    )
    layers = [*_floor_lines(floors), paths, dots, _cross(reference)]
    return alt.layer(*layers).properties(width=WIDTH, height=340, title="What the classes gained, what meaning cost")


def _floor_lines(floors: tuple[float, float]) -> list[alt.Chart]:
    lines = []
    for value, field, name in ((floors[0], "x", "P by chance"), (floors[1], "y", "S by chance")):
        data = alt.Data(values=[{"value": value, "what": name}])
        channel = alt.X("value:Q") if field == "x" else alt.Y("value:Q")
        told = ["what:N", alt.Tooltip("value:Q", format=".3f")]
        rule = alt.Chart(data).mark_rule(color=theme.REFERENCE, strokeDash=[4, 4])
        lines.append(rule.encode(**{field: channel}, tooltip=told))
    return lines


def _cross(reference: tuple[float, float]) -> alt.Chart:
    data = alt.Data(values=[{"polarity": reference[0], "semantic": reference[1], "what": "untrained"}])
    mark = alt.Chart(data).mark_point(shape="cross", size=160, color=theme.REFERENCE, filled=True)
    told = ["what:N", alt.Tooltip("polarity:Q", format=".3f"), alt.Tooltip("semantic:Q", format=".3f")]
    return mark.encode(x="polarity:Q", y="semantic:Q", tooltip=told)


def _legend(names: int) -> alt.Legend | None:
    return alt.Legend(orient="bottom", title=None, columns=2, labelLimit=200) if names > 1 else None

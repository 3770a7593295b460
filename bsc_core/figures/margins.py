"""Polarity against semantic similarity over margin and epoch, a colour for each loss and a number for each margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from bsc_core.figures import theme

NAMES = {
    "triplet": "Triplet",
    "contrastive": "Contrastive",
    "online_contrastive": "Online contrastive",
    "mnrl": "MNRL",
}
MARKED, OTHER = "beaten by none", "beaten by another"
HEIGHT = 460
DECIMALS = 3


def margins_figure(
    points: Sequence[Mapping[str, Any]], *, untrained: tuple[float, float], title: str
) -> alt.LayerChart:
    """(P, S) of every setting after every epoch, the epochs of a setting joined and its margin beside the last.

    points: rows of setting, loss, margin (None: no margin), epoch, polarity, semantic and front; front ones are filled.
    untrained: P and S, drawn as a cross. Up and to the right is better in both. Settings of one loss that end in one
    point share a label.
    """
    labels = _labels(points)
    rows = [
        {
            **row,
            "loss": NAMES.get(row["loss"], row["loss"] or row["setting"]),
            "front": MARKED if row["front"] else OTHER,
            "label": labels.get((row["setting"], row["epoch"]), ""),
        }
        for row in points
    ]
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    colours = [theme.CATEGORIES[place % len(theme.CATEGORIES)] for place in range(len(losses))]
    scale = alt.Scale(domain=losses, range=colours)
    axis = alt.Axis(format=".2f", tickCount=6)
    x = alt.X("polarity:Q", title="polarity P", scale=alt.Scale(zero=False, padding=30), axis=axis)
    y = alt.Y("semantic:Q", title="semantic similarity S", scale=alt.Scale(zero=False, padding=16), axis=axis)
    told = ["setting:N", "epoch:Q", alt.Tooltip("polarity:Q", format=".3f"), alt.Tooltip("semantic:Q", format=".3f")]
    legend = alt.Legend(orient="top", title=None, symbolType="circle", symbolOpacity=1)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y, color=alt.Color("loss:N", scale=scale, legend=legend))
    paths = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(order="epoch:Q", detail="setting:N")
    dots = base.mark_point(size=64, strokeWidth=1.5).encode(
        fill=alt.Fill("loss:N", scale=scale, legend=None),
        fillOpacity=alt.FillOpacity("front:N", scale=alt.Scale(domain=[MARKED, OTHER], range=[1, 0]), legend=None),
        tooltip=[*told, "front:N"],
    )
    numbers = base.mark_text(align="left", dx=8, fontSize=12).encode(text="label:N")
    return alt.layer(paths, dots, numbers, _cross(untrained)).properties(height=HEIGHT, title=title)


def _labels(points: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """The margins beside the last point of each setting; those of one loss that end in one point stand together."""
    last = {row["setting"]: row for row in sorted(points, key=lambda row: int(row["epoch"]))}
    ends: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in last.values():
        if row["margin"] is not None:
            place = (row["loss"], round(row["polarity"], DECIMALS), round(row["semantic"], DECIMALS))
            ends.setdefault(place, []).append(row)
    return {
        (rows[0]["setting"], rows[0]["epoch"]): ", ".join(f"{row['margin']:g}" for row in rows)
        for rows in ends.values()
    }


def reading(chance: tuple[float, float]) -> str:
    """How the figure is read, for below it. chance: P and S of a pool in random order, far outside of what it shows."""
    return (
        "Numbers are margins, lines go through the epochs; filled points are beaten by none in both. The cross is the "
        f"untrained encoder; by chance P is {chance[0]:.3f} and S {chance[1]:.3f}."
    )


def _cross(untrained: tuple[float, float]) -> alt.Chart:
    data = alt.Data(values=[{"polarity": untrained[0], "semantic": untrained[1], "what": "untrained"}])
    mark = alt.Chart(data).mark_point(shape="cross", size=160, color=theme.REFERENCE, filled=True)
    told = ["what:N", alt.Tooltip("polarity:Q", format=".3f"), alt.Tooltip("semantic:Q", format=".3f")]
    return mark.encode(x="polarity:Q", y="semantic:Q", tooltip=told)

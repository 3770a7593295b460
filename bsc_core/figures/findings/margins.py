"""Polarity against semantic similarity by margin and epoch, with a color per loss and a label per margin."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from bsc_core.figures import theme

NAMES = {"triplet": "Triplet", "contrastive": "Contrastive", "online_contrastive": "Online contrastive", "mnrl": "MNRL"}
ON_FRONT, OTHER = "on the Pareto front", "not on the Pareto front"
HEIGHT = 460
DECIMALS = 3


def margins_figure(
    points: Sequence[Mapping[str, Any]], *, untrained: tuple[float, float], title: str
) -> alt.LayerChart:
    """Plot (P, S) of every setting after every epoch, with the margin as a label at the last epoch.

    The epochs of a setting are connected. Up and to the right is better. Settings of one loss with the same last point
    share a label.

    Args:
        points: rows with keys setting, loss, margin (None without a margin), epoch, polarity, semantic and front;
            points on the Pareto front are filled.
        untrained: P and S of the untrained model, shown as a cross.
        title: chart title.
    """
    labels = _labels(points)
    rows = [
        {
            **row,
            "loss": NAMES.get(row["loss"], row["loss"] or row["setting"]),
            "front": ON_FRONT if row["front"] else OTHER,
            "label": labels.get((row["setting"], row["epoch"]), ""),
        }
        for row in points
    ]
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    scale = alt.Scale(domain=losses, range=theme.cycle(theme.CATEGORIES, len(losses)))
    axis = alt.Axis(format=".2f", tickCount=6)
    x = alt.X("polarity:Q", title="polarity P", scale=alt.Scale(zero=False, padding=30), axis=axis)
    y = alt.Y("semantic:Q", title="semantic similarity S", scale=alt.Scale(zero=False, padding=16), axis=axis)
    values = [alt.Tooltip("polarity:Q", format=".3f"), alt.Tooltip("semantic:Q", format=".3f")]
    legend = alt.Legend(orient="top", title=None, symbolType="circle", symbolOpacity=1)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y, color=alt.Color("loss:N", scale=scale, legend=legend))
    paths = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(
        order=alt.Order("epoch:Q"), detail=alt.Detail("setting:N")
    )
    dots = base.mark_point(size=64, strokeWidth=1.5).encode(
        fill=alt.Fill("loss:N", scale=scale, legend=None),
        fillOpacity=alt.FillOpacity("front:N", scale=alt.Scale(domain=[ON_FRONT, OTHER], range=[1, 0]), legend=None),
        tooltip=[alt.Tooltip("setting:N"), alt.Tooltip("epoch:Q"), *values, alt.Tooltip("front:N")],
    )
    numbers = base.mark_text(align="left", dx=8, fontSize=12).encode(text=alt.Text("label:N"))
    start = alt.Data(values=[{"polarity": untrained[0], "semantic": untrained[1], "what": "untrained"}])
    cross = alt.Chart(start).mark_point(shape="cross", size=160, color=theme.REFERENCE, filled=True)
    cross = cross.encode(x=alt.X("polarity:Q"), y=alt.Y("semantic:Q"), tooltip=[alt.Tooltip("what:N"), *values])
    return alt.layer(paths, dots, numbers, cross).properties(height=HEIGHT, title=title)


def _labels(points: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """Return the margin label at the last point of each setting; settings of one loss with equal points share one."""
    last = {row["setting"]: row for row in sorted(points, key=lambda row: int(row["epoch"]))}
    ends: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in last.values():
        if row["margin"] is not None:
            point = (row["loss"], round(row["polarity"], DECIMALS), round(row["semantic"], DECIMALS))
            ends.setdefault(point, []).append(row)
    return {
        (rows[0]["setting"], rows[0]["epoch"]): ", ".join(f"{row['margin']:g}" for row in rows)
        for rows in ends.values()
    }


def caption(chance: tuple[float, float]) -> str:
    """Return the caption of the figure, with P and S of a pool in random order, far outside the plotted range."""
    return (
        "Numbers are margins, lines connect the epochs; filled points are on the Pareto front. The cross is the "
        f"untrained encoder; by chance P is {chance[0]:.3f} and S {chance[1]:.3f}."
    )

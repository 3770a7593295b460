"""Figures of the lessons: metrics over a setting, and cosine similarities by grade or class."""

# N rows

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core.figures import theme

METRIC_COLORS = (theme.QUERY, theme.DOCUMENT, theme.FALSE_NEGATIVE)
CLASS_COLORS = {"entailment": theme.POSITIVE, "neutral": theme.REFERENCE, "contradiction": theme.HARD_NEGATIVE}
MAX_MARKED = 30  # points up to which lines have markers


def metric_table(setting: Sequence[float], metrics: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """Return one row per metric and value of a setting, with columns setting, value and metric."""
    parts = [pd.DataFrame({"setting": setting, "value": values, "metric": name}) for name, values in metrics.items()]
    return pd.concat(parts, ignore_index=True)


def metrics_figure(
    table: pd.DataFrame, selected: float, *, title: str, axis: str, logarithmic: bool = False, height: int = 280
) -> alt.LayerChart:
    """Plot metrics (output of `metric_table`) over a setting, with a vertical rule at its selected value."""
    scale = alt.Scale(type="log") if logarithmic else alt.Scale()
    legend = alt.Legend(orient="top", title=None, symbolType="stroke")
    base = alt.Chart(table).encode(
        x=alt.X("setting:Q", title=axis, scale=scale),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(domainMin=min(0.0, float(table["value"].min())))),
        tooltip=["metric:N", alt.Tooltip("setting:Q", title=axis), alt.Tooltip("value:Q", format=".3f")],
    )
    channels = theme.series("metric", list(dict.fromkeys(table["metric"])), METRIC_COLORS, legend)
    layers = [base.mark_line(strokeWidth=2.5).encode(**channels)]
    if len(table) <= MAX_MARKED:
        layers.append(base.mark_point(filled=True, size=45).encode(color=channels["color"]))
    rule = alt.Chart(pd.DataFrame({"setting": [selected]})).mark_rule(strokeWidth=2, color=theme.REFERENCE)
    return alt.layer(*layers, rule.encode(x=alt.X("setting:Q", scale=scale))).properties(title=title, height=height)


def grades_figure(
    cosines: NDArray[np.floating], grades: NDArray[np.floating], *, title: str, height: int = 280
) -> alt.LayerChart:
    """Plot the cosine (N,) of each pair over its grade (N,) in [0, 1], with the line where squared error is zero."""
    points = (
        alt.Chart(pd.DataFrame({"grade": grades, "cosine": cosines}))
        .mark_point(size=60, opacity=0.7, color=theme.QUERY)
        .encode(
            x=alt.X("grade:Q", title="grade of the pair", scale=alt.Scale(domain=[-0.05, 1.05], nice=False)),
            y=alt.Y("cosine:Q", title="cosine", scale=alt.Scale(domain=[-1, 1])),
            tooltip=[alt.Tooltip("grade:Q", format=".2f"), alt.Tooltip("cosine:Q", format=".3f")],
        )
    )
    ends = alt.Chart(pd.DataFrame({"grade": [0, 1], "cosine": [0, 1]}))
    line = ends.mark_line(color=theme.REFERENCE, strokeDash=[4, 4]).encode(x="grade:Q", y="cosine:Q")
    return alt.layer(line, points).properties(title=title, height=height)


def classes_figure(
    cosines: NDArray[np.floating], classes: NDArray[np.integer], names: Sequence[str], *, title: str, height: int = 280
) -> alt.LayerChart:
    """Plot the cosine (N,) of premise and hypothesis by class (N,), an index into `names`, with each class mean."""
    table = pd.DataFrame({"cosine": cosines, "class": [names[number] for number in classes]})
    colors = alt.Scale(domain=list(names), range=[CLASS_COLORS.get(name, theme.QUERY) for name in names])
    base = alt.Chart(table).encode(
        y=alt.Y("class:N", title=None, sort=list(names)), color=alt.Color("class:N", scale=colors, legend=None)
    )
    axis = "cosine of premise and hypothesis"
    cosine = alt.X("cosine:Q", title=axis, scale=alt.Scale(domain=[-1, 1]))
    points = base.mark_point(size=70, opacity=0.6).encode(x=cosine, tooltip=[alt.Tooltip("cosine:Q", format=".3f")])
    means = base.mark_tick(thickness=4, size=44).encode(x=alt.X("mean(cosine):Q", title=axis))
    return alt.layer(points, means).properties(title=title, height=height)

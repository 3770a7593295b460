"""The pictures of the later lessons: measures along a setting, and cosines by grade or class."""

# N rows

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt

MEASURES = (theme.QUERY, theme.DOCUMENT, theme.FALSE_NEGATIVE)
CLASS_COLOURS = {"entailment": theme.POSITIVE, "neutral": theme.REFERENCE, "contradiction": theme.HARD_NEGATIVE}


def along(setting: Sequence[float], measures: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """One line a measure and setting: columns setting, value, measure."""
    parts = [pd.DataFrame({"setting": setting, "value": values, "measure": name}) for name, values in measures.items()]
    return pd.concat(parts, ignore_index=True)


def measures_figure(
    table: pd.DataFrame, chosen: float, *, title: str, axis: str, logarithmic: bool = False, height: int = 280
) -> alt.LayerChart:
    """Measures between 0 and 1 along a setting, with a line where the control stands.

    table: of `along`. chosen: the setting in view. The measures differ in colour and in dash.
    """
    import altair as alt

    scale = alt.Scale(type="log") if logarithmic else alt.Scale()
    names = list(dict.fromkeys(table["measure"]))
    colours = alt.Scale(domain=names, range=list(MEASURES[: len(names)]))
    base = alt.Chart(table).encode(
        x=alt.X("setting:Q", title=axis, scale=scale),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(domainMin=min(0.0, float(table["value"].min())))),
        color=alt.Color("measure:N", title=None, scale=colours, legend=alt.Legend(orient="top", symbolType="stroke")),
        tooltip=["measure:N", alt.Tooltip("setting:Q", title=axis), alt.Tooltip("value:Q", format=".3f")],
    )
    dashes = alt.StrokeDash("measure:N", title=None, scale=alt.Scale(domain=names, range=[[1, 0], [6, 4], [2, 3]]))
    lines = base.mark_line(strokeWidth=2.5).encode(strokeDash=dashes)
    layers = [lines, base.mark_point(filled=True, size=45)] if len(table) <= 30 else [lines]
    rule = alt.Chart(pd.DataFrame({"setting": [chosen]})).mark_rule(strokeWidth=2, color=theme.REFERENCE)
    here = rule.encode(x=alt.X("setting:Q", scale=scale))
    return alt.layer(*layers, here).properties(title=title, height=height)


def grades_figure(
    cosines: NDArray[np.floating], grades: NDArray[np.floating], *, title: str, height: int = 280
) -> alt.LayerChart:
    """The cosine of each pair beside its grade; squared error wants every point on the line. (N,) each."""
    import altair as alt

    table = pd.DataFrame({"grade": grades, "cosine": cosines})
    points = (
        alt.Chart(table)
        .mark_point(size=60, opacity=0.7, color=theme.QUERY)
        .encode(
            x=alt.X("grade:Q", title="grade of the pair", scale=alt.Scale(domain=[-0.05, 1.05], nice=False)),
            y=alt.Y("cosine:Q", title="cosine", scale=alt.Scale(domain=[-1, 1])),
            tooltip=[alt.Tooltip("grade:Q", format=".2f"), alt.Tooltip("cosine:Q", format=".3f")],
        )
    )
    line = alt.Chart(pd.DataFrame({"grade": [0, 1], "cosine": [0, 1]})).mark_line(
        color=theme.REFERENCE, strokeDash=[4, 4]
    )
    return alt.layer(line.encode(x="grade:Q", y="cosine:Q"), points).properties(title=title, height=height)


def classes_figure(
    cosines: NDArray[np.floating], classes: NDArray[np.integer], names: Sequence[str], *, title: str, height: int = 280
) -> alt.LayerChart:
    """Cosine of premise and hypothesis for each row, one band a class, with the mean as a bar. (N,) each."""
    import altair as alt

    table = pd.DataFrame({"cosine": cosines, "class": [names[number] for number in classes]})
    kinds = alt.Scale(domain=list(names), range=[CLASS_COLOURS.get(name, theme.QUERY) for name in names])
    base = alt.Chart(table).encode(
        y=alt.Y("class:N", title=None, sort=list(names)), color=alt.Color("class:N", scale=kinds, legend=None)
    )
    words = "cosine of premise and hypothesis"
    cosine = alt.X("cosine:Q", title=words, scale=alt.Scale(domain=[-1, 1]))
    points = base.mark_point(size=70, opacity=0.6).encode(x=cosine, tooltip=[alt.Tooltip("cosine:Q", format=".3f")])
    means = base.mark_tick(thickness=4, size=44).encode(x=alt.X("mean(cosine):Q", title=words))
    return alt.layer(points, means).properties(title=title, height=height)

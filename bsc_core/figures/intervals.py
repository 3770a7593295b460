"""Settings beside each other by one metric: a dot for each, and the range in which it may lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bsc_core.figures import theme
from bsc_core.figures.curves import RUN_COLOURS

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

UNTRAINED = "Untrained"
ROW_HEIGHT = 34


def intervals_table(rows: Sequence[tuple[str, float, float | None, float | None, str]]) -> pd.DataFrame:
    """One row for each setting: setting, value, low, high, verdict; low and high are None without a range."""
    import pandas as pd

    columns = ["setting", "value", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:4], "float64"))


def intervals_figure(table: pd.DataFrame, *, title: str, metric: str) -> alt.LayerChart:
    """The table of `intervals_table` as dots with their 95% intervals, in its order; the untrained encoder is grey."""
    import altair as alt

    names = table["setting"].tolist()
    trained = [name for name in names if name != UNTRAINED]
    colours = {name: RUN_COLOURS[place % len(RUN_COLOURS)] for place, name in enumerate(trained)}
    colour = alt.Color(
        "setting:N",
        scale=alt.Scale(domain=names, range=[colours.get(name, theme.REFERENCE) for name in names]),
        legend=None,
    )
    y = alt.Y("setting:N", title=None, sort=names, axis=alt.Axis(labelLimit=260, ticks=False, labelPadding=8))
    x = alt.X(
        "value:Q", title=metric, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format=".3~f", tickCount=6)
    )
    told = [
        alt.Tooltip("setting:N"),
        alt.Tooltip("value:Q", title=metric, format=".3f"),
        alt.Tooltip("low:Q", title="from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("verdict:N"),
    ]
    base = alt.Chart(table).encode(y=y, color=colour, tooltip=told)
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(filled=True, size=110, opacity=1).encode(x=x)
    return alt.layer(spans, points).properties(title=title, height=86 + ROW_HEIGHT * len(names))

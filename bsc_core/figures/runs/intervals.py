"""Dot plot of settings by one metric, with 95% confidence intervals."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from bsc_core.figures import theme

UNTRAINED = "Untrained"
ROW_HEIGHT = 34


def intervals_table(rows: Sequence[tuple[str, float, float | None, float | None, str]]) -> pd.DataFrame:
    """Return a table with columns setting, value, low, high (None without an interval) and verdict."""
    columns = ["setting", "value", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:4], "float64"))


def intervals_figure(
    table: pd.DataFrame, *, title: str, metric: str, colors: Sequence[str] = theme.RUNS
) -> alt.LayerChart:
    """Plot settings (output of `intervals_table`) with their intervals, in order.

    The untrained encoder is gray and dashed, with a dashed line at its value.

    Args:
        table: Output of `intervals_table`.
        title: Title of the figure.
        metric: Name of the metric, the title of the x-axis.
        colors: One per setting other than the untrained encoder.
    """
    names = table["setting"].tolist()
    trained = [name for name in names if name != UNTRAINED]
    by_name = {UNTRAINED: theme.REFERENCE} | dict(zip(trained, theme.cycle(colors, len(trained)), strict=True))
    scale = alt.Scale(domain=names, range=[by_name[name] for name in names])
    titles = {"value": metric, "low": "from", "high": "to"}
    numbers = [alt.Tooltip(f"{name}:Q", title=title, format=".3f") for name, title in titles.items()]
    base = alt.Chart(table).encode(
        y=alt.Y("setting:N", title=None, sort=names, axis=alt.Axis(labelLimit=260, ticks=False, labelPadding=8)),
        color=alt.Color("setting:N", scale=scale, legend=None),
        tooltip=[alt.Tooltip("setting:N"), *numbers, alt.Tooltip("verdict:N")],
    )
    axis = alt.Axis(format=".3~f", tickCount=6)
    x = alt.X("value:Q", title=metric, scale=alt.Scale(zero=False, nice=True), axis=axis)
    dash = alt.when(alt.datum.setting == UNTRAINED).then(alt.value(theme.BASELINE_DASH)).otherwise(alt.value([1, 0]))
    spans = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3)
    spans = spans.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), strokeDash=dash)
    points = base.mark_point(filled=True, size=110, opacity=1).encode(x=x)
    untrained = alt.Chart(table).transform_filter(alt.datum.setting == UNTRAINED)
    baseline = untrained.mark_rule(color=theme.REFERENCE, strokeDash=list(theme.BASELINE_DASH)).encode(x=x)
    return alt.layer(spans, points, baseline).properties(title=title, height=86 + ROW_HEIGHT * len(names))

"""Histograms of the scores of positives, candidates and selected negatives."""

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from bsc_core.figures import theme
from bsc_core.types import Vectors

COLORS = {"positive": theme.POSITIVE, "candidate": theme.REFERENCE, "negative": theme.HARD_NEGATIVE}
BINS = 48
HEIGHT = 220


def score_table(scores: Mapping[str, Vectors]) -> pd.DataFrame:
    """Return the histogram of each kind: a row per kind and bin with kind, low, high, count and share of the kind."""
    known = np.concatenate([values for values in scores.values() if len(values)] or [np.zeros(1, dtype=np.float32)])
    edges = np.linspace(known.min(), known.max() + 1e-6, BINS + 1)
    tables = []
    for kind, values in scores.items():
        counts, _ = np.histogram(values, edges)
        share = counts / max(1, len(values))
        tables.append(
            pd.DataFrame({"kind": kind, "low": edges[:-1], "high": edges[1:], "count": counts, "share": share})
        )
    return pd.concat(tables, ignore_index=True)


def score_figure(table: pd.DataFrame, *, axis: str, limits: Sequence[float] = ()) -> alt.LayerChart:
    """Plot the histograms (output of `score_table`), overlaid, with a vertical rule at each limit.

    Args:
        table: The histograms.
        axis: Title of the x-axis.
        limits: Thresholds, in the unit of the x-axis.
    """
    kinds = list(table["kind"].unique())
    colors = alt.Scale(domain=kinds, range=[COLORS[kind] for kind in kinds])
    legend = alt.Legend(orient="top", title=None, symbolType="square", symbolOpacity=1)
    bounds = [alt.Tooltip("low:Q", title="from", format=".3f"), alt.Tooltip("high:Q", title="to", format=".3f")]
    bars = (
        alt.Chart(table[table["count"] > 0])
        .mark_bar(fillOpacity=0.4, binSpacing=0)
        .encode(
            x=alt.X("low:Q", title=axis, bin="binned", axis=alt.Axis(tickCount=5, format=".2~f")),
            x2=alt.X2("high:Q"),
            y=alt.Y("share:Q", title="share of the kind", stack=None, axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("kind:N", scale=colors, legend=legend),
            stroke=alt.Stroke("kind:N", scale=colors, legend=None),
            tooltip=[
                alt.Tooltip("kind:N"),
                *bounds,
                alt.Tooltip("count:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    rules = alt.Chart(pd.DataFrame({"limit": list(limits)})).mark_rule(strokeDash=[5, 3], strokeWidth=2)
    rules = rules.encode(
        x=alt.X("limit:Q"), tooltip=[alt.Tooltip("limit:Q", format=".3f")], color=alt.value(theme.FALSE_NEGATIVE)
    )
    return alt.layer(bars, *([rules] if len(limits) else [])).properties(height=HEIGHT)

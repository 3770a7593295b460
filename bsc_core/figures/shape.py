"""What pairs look like before training: how long their texts are and how their labels lie."""

# N pairs

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

LENGTH_BINS = 24
LABEL_BINS = 20


def length_table(queries: Sequence[str], documents: Sequence[str]) -> pd.DataFrame:
    """Words a text, counted in bins shared by both sides. Columns: side, low, high (words), share of its rows."""
    import pandas as pd

    sides = {"query": queries, "document": documents}
    words = {side: np.array([len(text.split()) for text in texts]) for side, texts in sides.items()}
    longest = max(int(np.quantile(np.concatenate(list(words.values())), 0.99)), LENGTH_BINS)
    edges = np.unique(np.linspace(0, longest + 1, LENGTH_BINS + 1).astype(int))
    frames = []
    for side, counts in words.items():
        binned, _ = np.histogram(np.clip(counts, 0, longest), edges)
        shares = binned / max(1, len(counts))
        frames.append(pd.DataFrame({"side": side, "low": edges[:-1], "high": edges[1:], "share": shares}))
    return pd.concat(frames, ignore_index=True)


def length_figure(table: pd.DataFrame, *, height: int = 260) -> alt.Chart:
    """Histograms of `length_table`, laid over each other; the longest 1% of the texts fall into the last bar."""
    import altair as alt

    colour = alt.Scale(domain=["query", "document"], range=[theme.QUERY, theme.DOCUMENT])
    return (
        alt.Chart(table, title="How long the texts are")
        .mark_bar(opacity=0.6, binSpacing=0)
        .encode(
            x=alt.X("low:Q", bin="binned", title="words"),
            x2="high:Q",
            y=alt.Y("share:Q", stack=None, title="share of the rows", axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("side:N", title=None, scale=colour, legend=alt.Legend(orient="top")),
            tooltip=[
                "side:N",
                alt.Tooltip("low:Q", title="from"),
                alt.Tooltip("high:Q", title="below"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
        .properties(height=height)
    )


def label_table(labels: NDArray[np.float32], threshold: float) -> pd.DataFrame:
    """Labels in bins of 0.05. labels: (N,) in [0, 1]. Columns: low, high, pairs, kind (positive above threshold)."""
    import pandas as pd

    positive = labels > np.float32(threshold)
    edges = np.linspace(0, 1, LABEL_BINS + 1)
    bins = {"low": edges[:-1].round(3), "high": edges[1:].round(3)}
    frames = []
    for kind, chosen in (("positive", positive), ("negative", ~positive)):
        counts, _ = np.histogram(labels[chosen], edges)
        frames.append(pd.DataFrame({**bins, "pairs": counts, "kind": kind}))
    table = pd.concat(frames, ignore_index=True)
    return table[table["pairs"] > 0].reset_index(drop=True)


def label_figure(table: pd.DataFrame, threshold: float, *, height: int = 260) -> alt.LayerChart:
    """Histogram of `label_table` with the threshold as a line."""
    import altair as alt

    colour = alt.Scale(domain=["positive", "negative"], range=[theme.POSITIVE, theme.REFERENCE])
    title = f"label (positive above {threshold:g})"
    bars = (
        alt.Chart(table, title="How the labels lie")
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title=title, scale=alt.Scale(domain=[0, 1])),
            x2="high:Q",
            y=alt.Y("pairs:Q", title="pairs"),
            color=alt.Color("kind:N", title=None, scale=colour, legend=alt.Legend(orient="top")),
            tooltip=[
                "kind:N",
                alt.Tooltip("low:Q", title="from"),
                alt.Tooltip("high:Q", title="to"),
                alt.Tooltip("pairs:Q", format=","),
            ],
        )
    )
    line = alt.Chart(alt.Data(values=[{"threshold": threshold}]))
    rule = line.mark_rule(strokeDash=[5, 4], color=theme.HARD_NEGATIVE).encode(x="threshold:Q")
    return alt.layer(bars, rule).properties(height=height)

"""How hard the negatives of a strategy's batches are, as distributions laid over each other."""

# M rows of a plan

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

STRATEGY_COLOURS = {
    "random": theme.REFERENCE,
    "sequential": theme.QUERY,
    "words": "#B59B00",
    "clusters": "#56B4E9",
    "neighbours": "#5B6BC0",
    "examples": theme.HARD_NEGATIVE,
    "premises": theme.FALSE_NEGATIVE,
    "own document": theme.POSITIVE,
}
BINS = 24
OWN = "own document"


def hardness_table(hardest: Mapping[str, NDArray[np.float32]], own: NDArray[np.float32] | None = None) -> pd.DataFrame:
    """Shares of the rows in equal bins of cosine, one histogram for each strategy (and for the own documents).

    hardest: strategy -> (M,) cosine of each query to its nearest in-batch negative, nan where there is none.
    own: (M,) cosine to the own document.
    Columns: strategy, low, high (the bin), share (of the strategy's rows; sums to 1 where there are rows).
    """
    import pandas as pd

    series = {**hardest, **({OWN: own} if own is not None else {})}
    known = np.concatenate([values[np.isfinite(values)] for values in series.values()] or [np.zeros(0)])
    low, high = (float(np.floor(known.min() * 20) / 20), 1.0) if len(known) else (0.0, 1.0)
    edges = np.linspace(min(low, 0.95), high, BINS + 1)
    frames = []
    for name, values in series.items():
        finite = values[np.isfinite(values)]
        counts, _ = np.histogram(np.clip(finite, edges[0], edges[-1]), edges)
        shares = counts / max(1, len(finite))
        frames.append(pd.DataFrame({"strategy": name, "low": edges[:-1], "high": edges[1:], "share": shares}))
    return pd.concat(frames, ignore_index=True)


def counted_table(edges: list[float], shares: Mapping[str, list[float]]) -> pd.DataFrame:
    """The same table from histograms counted before: edges and, for each strategy, the shares of its bins."""
    import pandas as pd

    bins = {"low": edges[:-1], "high": edges[1:]}
    return pd.concat(
        [pd.DataFrame({"strategy": name, **bins, "share": shares[name]}) for name in shares], ignore_index=True
    )


def hardness_figure(table: pd.DataFrame, *, height: int = 280) -> alt.LayerChart:
    """The histograms of `hardness_table` laid over each other; the own documents as a dashed green line."""
    import altair as alt

    names = list(table["strategy"].unique())
    colours = [STRATEGY_COLOURS.get(name, theme.DOCUMENT) for name in names]
    filled = table[table["share"] > 0]
    domain = [float(filled["low"].min()), float(filled["high"].max())] if len(filled) else [0, 1]
    title = "cosine to nearest wrong document"
    base = (
        alt.Chart(table[(table["low"] >= domain[0]) & (table["high"] <= domain[1])])
        .transform_calculate(middle="(datum.low + datum.high) / 2")
        .encode(
            x=alt.X("middle:Q", title=title, scale=alt.Scale(domain=domain, nice=False), axis=alt.Axis(tickCount=5)),
            y=alt.Y("share:Q", title="share of the queries", axis=alt.Axis(format="%", tickCount=4), stack=None),
            color=alt.Color(
                "strategy:N",
                scale=alt.Scale(domain=names, range=colours),
                legend=alt.Legend(orient="top", title=None, symbolType="square", symbolOpacity=1, columns=5),
            ),
            tooltip=[
                alt.Tooltip("strategy:N"),
                alt.Tooltip("low:Q", title="from", format=".2f"),
                alt.Tooltip("high:Q", title="to", format=".2f"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    areas = base.transform_filter(alt.datum.strategy != OWN).mark_area(interpolate="monotone", opacity=0.4, line=True)
    if OWN not in names:
        return alt.layer(areas).properties(height=height)
    own = base.transform_filter(alt.datum.strategy == OWN).mark_line(interpolate="monotone", strokeDash=[5, 4])
    return alt.layer(areas, own).properties(height=height)

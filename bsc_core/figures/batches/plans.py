"""Comparison of batch plans: hardness of the negatives, group sizes, and statistics by epoch."""

# M rows of a plan

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core.figures import axes, theme

POSITIVES = "positive"
HARDEST_TITLE = "cosine to the hardest negative"
BOTH_TITLE = "cosine to the hardest negative or positive"
_STRATEGIES = ("sequential", "words", "clusters", "cuthill_mckee", "communities", "premises", "neighbors")
STRATEGY_COLORS = {
    "random": theme.REFERENCE,
    "nearest": theme.HARD_NEGATIVE,
    # without the third color, which is similar to that of nearest
    **dict(zip(_STRATEGIES, (*theme.WITHOUT_MEANING[:2], *theme.WITHOUT_MEANING[3:]), strict=True)),
    POSITIVES: theme.POSITIVE,
}
BINS = 24
HEIGHT = 250
LARGEST_SHOWN = 12


def hardness_table(
    hardest: Mapping[str, NDArray[np.float32]], positive: NDArray[np.float32] | None = None
) -> pd.DataFrame:
    """Build histograms of cosine similarity with equal bins, one per strategy and one for the positives.

    Args:
        hardest: strategy to (M,) cosine of each query to its hardest in-batch negative, NaN without one.
        positive: (M,) cosine of each query to its positive.

    Returns:
        One row per strategy and bin, with columns strategy, low, high and share (of the strategy's rows; sums to 1 if
        there are any).
    """
    series = {**hardest, **({POSITIVES: positive} if positive is not None else {})}
    known = np.concatenate([values[np.isfinite(values)] for values in series.values()] or [np.zeros(0)])
    low, high = (float(np.floor(known.min() * 20) / 20), 1.0) if len(known) else (0.0, 1.0)
    edges = np.linspace(min(low, 0.95), high, BINS + 1)
    shares = {}
    for name, values in series.items():
        finite = values[np.isfinite(values)]
        counts, _ = np.histogram(np.clip(finite, edges[0], edges[-1]), edges)
        shares[name] = counts / max(1, len(finite))
    return histogram_table(edges, shares)


def histogram_table(
    edges: Sequence[float] | NDArray[np.float64], shares: Mapping[str, Sequence[float] | NDArray[np.float64]]
) -> pd.DataFrame:
    """Build the same table as `hardness_table` from existing histograms: bin edges, and the shares of each strategy."""
    bins = {"low": edges[:-1], "high": edges[1:]}
    tables = [pd.DataFrame({"strategy": name, **bins, "share": share}) for name, share in shares.items()]
    return pd.concat(tables, ignore_index=True)


def hardness_figure(
    table: pd.DataFrame,
    *,
    shown: Sequence[str] | None = None,
    height: int = 280,
    run_color: str = theme.RUNS[0],
    threshold: float | None = None,
    value: str = "share of the queries",
) -> alt.LayerChart:
    """Plot the histograms (output of `hardness_table`), overlaid; the positives are a green line, random is dashed.

    Args:
        table: output of `hardness_table`.
        shown: names of the histograms that are drawn; the axes are those of the whole table.
        height: in pixels.
        run_color: color of the series that is no strategy: the plans of a run.
        threshold: cosine of a dashed vertical line.
        value: title of the y-axis.
    """
    names = list(table["strategy"].unique() if shown is None else shown)
    colors = alt.Scale(domain=names, range=[STRATEGY_COLORS.get(name, run_color) for name in names])
    legend = alt.Legend(orient="top", title=None, symbolType="square", symbolOpacity=1, symbolStrokeWidth=0, columns=5)
    filled = table[table["share"] > 0]
    domain = [float(filled["low"].min()), float(filled["high"].max())] if len(filled) else [0, 1]
    scale, axis = alt.Scale(domain=domain, nice=False), alt.Axis(tickCount=5)
    shares = alt.Scale(domain=[0, float(table["share"].max())] if len(filled) else [0, 1], nice=True)
    table = table[table["strategy"].isin(names)]
    title = BOTH_TITLE if POSITIVES in names else HARDEST_TITLE
    bounds = [alt.Tooltip("low:Q", title="from", format=".2f"), alt.Tooltip("high:Q", title="to", format=".2f")]
    base = (
        alt.Chart(table[(table["low"] >= domain[0]) & (table["high"] <= domain[1])])
        .transform_calculate(middle="(datum.low + datum.high) / 2")
        .encode(
            x=alt.X("middle:Q", title=title, scale=scale, axis=axis),
            y=alt.Y(
                "share:Q",
                title=value,
                scale=shares,
                axis=alt.Axis(format="%", tickCount=4),
                stack=None,
            ),
            color=alt.Color("strategy:N", scale=colors, legend=legend),
            tooltip=[alt.Tooltip("strategy:N"), *bounds, alt.Tooltip("share:Q", format=".1%")],
        )
    )
    negatives = base.transform_filter(alt.datum.strategy != POSITIVES)
    dashes = [list(theme.BASELINE_DASH) if color == theme.REFERENCE else [1, 0] for color in colors.range]
    dash = alt.StrokeDash("strategy:N", scale=alt.Scale(domain=names, range=dashes), legend=None)
    layers = [
        negatives.mark_area(interpolate="monotone", opacity=0.4),
        base.mark_line(interpolate="monotone").encode(strokeDash=dash),
    ]
    if threshold is not None:
        line = alt.Chart(pd.DataFrame({"threshold": [threshold]}))
        layers.append(line.mark_rule(strokeDash=[5, 4], size=1.5, color=theme.REFERENCE).encode(x=alt.X("threshold:Q")))
    return alt.layer(*layers).properties(height=height)


def group_size_table(sizes: Mapping[str, Mapping[int, int]]) -> pd.DataFrame:
    """Build the distribution of rows by group size.

    Args:
        sizes: strategy to group size to number of groups.

    Returns:
        One row per strategy and size, with columns strategy, size (sizes above LARGEST_SHOWN are merged), groups and
        share (of the strategy's rows; sums to 1).
    """
    lines = []
    for strategy, groups in sizes.items():
        rows = max(1, sum(size * count for size, count in groups.items()))
        for size, count in sorted(groups.items()):
            name = str(size) if size <= LARGEST_SHOWN else f"> {LARGEST_SHOWN}"
            lines.append({"strategy": strategy, "size": name, "groups": count, "share": size * count / rows})
    table = pd.DataFrame(lines, columns=["strategy", "size", "groups", "share"])
    return table.groupby(["strategy", "size"], sort=False, as_index=False).sum()


def group_size_figure(table: pd.DataFrame, *, run_color: str = theme.RUNS[0]) -> alt.Chart:
    """Plot the group sizes (output of `group_size_table`) as grouped bars."""
    names = list(dict.fromkeys(table["strategy"]))
    order = [str(size) for size in range(1, LARGEST_SHOWN + 1)] + [f"> {LARGEST_SHOWN}"]
    return (
        alt.Chart(table, height=HEIGHT)
        .mark_bar()
        .encode(
            x=alt.X("size:O", title="rows in the group", sort=order, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("strategy:N", sort=names),
            y=alt.Y("share:Q", title="share of the rows", axis=alt.Axis(format="%", tickCount=4)),
            color=_channels("strategy", names, run_color)["color"],
            tooltip=[
                alt.Tooltip("strategy:N"),
                alt.Tooltip("size:O"),
                alt.Tooltip("groups:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )


def epoch_figure(table: pd.DataFrame, *, value: str, percent: bool, run_color: str = theme.RUNS[0]) -> alt.Chart:
    """Plot one line per series over the epochs.

    Args:
        table: columns series, epoch (from 1) and value (NaN if undefined).
        value: y-axis title.
        percent: whether values are formatted as percentages.
        run_color: color of the series that are no strategies: the plans of a run, evaluated with its models.
    """
    axis = alt.Axis(format="%" if percent else "~g", tickCount=5)
    table = table[table["value"].notna()]
    return (
        alt.Chart(table, height=HEIGHT)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45, filled=True))
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format=",d", grid=False)),
            y=alt.Y("value:Q", title=value, axis=axis, scale=axes.value_scale(table["value"])),
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("epoch:Q"),
                alt.Tooltip("value:Q", title=value, format=".1%" if percent else ",.4~g"),
            ],
            **_channels("series", list(dict.fromkeys(table["series"])), run_color),
        )
    )


def _channels(field: str, names: Sequence[str], run_color: str) -> dict[str, alt.Color | alt.StrokeDash]:
    legend = alt.Legend(orient="top", title=None, labelLimit=260, columns=5)
    return theme.series(field, names, [STRATEGY_COLORS.get(name, run_color) for name in names], legend)

"""Figures of a dataset: distributions of text lengths and labels, and the number of rows after each generation step."""

# N pairs

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core.data.dataset import Stage
from bsc_core.figures import theme
from bsc_core.formatting import percent

LENGTH_BINS = 24  # at most
LABEL_BINS = 20
ROWS = "rows"
COLORS = {"sentences": theme.QUERY, "neighbors": theme.REFERENCE, "examples": theme.POSITIVE, ROWS: theme.POSITIVE}
KINDS = {
    "sentences": "sentences",
    **dict.fromkeys(("neighbors", "above the threshold", "distinct"), "neighbors"),
    **dict.fromkeys(("examples", "limited per anchor", "sampled"), "examples"),
}
"""Unit of each step's count; steps that are not listed count rows."""
STEP_HEIGHT, MARGIN_HEIGHT = 30, 130  # pixels: of a step; of title, legend and axis


def word_counts(queries: Sequence[str], documents: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the number of words of each text by side, query and document."""
    counts_of = {text: len(text.split()) for text in {*queries, *documents}}  # many rows can have the same long text
    sides = {"query": queries, "document": documents}
    return {side: np.array([counts_of[text] for text in texts]) for side, texts in sides.items()}


def length_title(words: Mapping[str, NDArray[np.int64]]) -> str:
    """Return a title that compares the median lengths of both sides (output of `word_counts`)."""
    query, document = (float(np.median(words[side])) for side in ("query", "document"))
    if query == document:
        return f"Queries and documents have the same median length: {query:g} words"
    order = "longer" if document > query else "shorter"
    return f"Documents are {order} than queries: median {document:g} and {query:g} words"


def length_table(words: Mapping[str, NDArray[np.int64]]) -> pd.DataFrame:
    """Build histograms of text lengths in words (output of `word_counts`), with the same bins for both sides.

    Returns:
        One row per side and bin, with columns side, low, high (words) and share (of the side's rows). The last bin also
        counts all longer texts.
    """
    longest = max(int(np.quantile(np.concatenate(list(words.values())), 0.99)), LENGTH_BINS)
    width = -(-(longest + 1) // LENGTH_BINS)  # whole words, the same for all bins
    edges = np.arange(0, longest + 1 + width, width)
    frames = []
    for side, counts in words.items():
        binned, _ = np.histogram(np.clip(counts, 0, longest), edges)
        shares = binned / max(1, len(counts))
        frames.append(pd.DataFrame({"side": side, "low": edges[:-1], "high": edges[1:], "share": shares}))
    return pd.concat(frames, ignore_index=True)


def length_figure(table: pd.DataFrame, title: str, *, height: int = 260) -> alt.Chart:
    """Plot the histograms of text lengths (output of `length_table`), overlaid."""
    colors = alt.Scale(domain=["query", "document"], range=[theme.QUERY, theme.DOCUMENT])
    bounds = [alt.Tooltip("low:Q", title="from"), alt.Tooltip("high:Q", title="below")]
    return (
        alt.Chart(table, title=title, height=height)
        .mark_bar(fillOpacity=0.4, binSpacing=0)
        .encode(
            x=alt.X("low:Q", bin="binned", title="words"),
            x2=alt.X2("high:Q"),
            y=alt.Y("share:Q", stack=None, title="share of the rows", axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("side:N", title=None, scale=colors, legend=alt.Legend(orient="top")),
            stroke=alt.Stroke("side:N", scale=colors, legend=None),
            tooltip=[alt.Tooltip("side:N"), *bounds, alt.Tooltip("share:Q", format=".1%")],
        )
    )


def label_table(labels: NDArray[np.float32], threshold: float) -> pd.DataFrame:
    """Build a histogram of the labels (N,) in bins of 0.05; labels above the threshold are positive.

    Returns:
        One row per kind and non-empty bin, with columns low, high, pairs and kind (positive or negative).
    """
    positive = labels > np.float32(threshold)
    edges = np.linspace(0, 1, LABEL_BINS + 1)
    bins = {"low": edges[:-1].round(3), "high": edges[1:].round(3)}
    frames = []
    for kind, selected in (("positive", positive), ("negative", ~positive)):
        counts, _ = np.histogram(labels[selected], edges)
        frames.append(pd.DataFrame({**bins, "pairs": counts, "kind": kind}))
    table = pd.concat(frames, ignore_index=True)
    return table[table["pairs"] > 0].reset_index(drop=True)


def label_figure(table: pd.DataFrame, threshold: float, *, height: int = 260) -> alt.LayerChart:
    """Plot the histogram of labels (output of `label_table`), with the threshold as a rule."""
    colors = alt.Scale(domain=["positive", "negative"], range=[theme.POSITIVE, theme.REFERENCE])
    title, unit_axis = f"label (positive above {threshold:g})", alt.Scale(domain=[0, 1])
    bounds = [alt.Tooltip("low:Q", title="from"), alt.Tooltip("high:Q", title="to")]
    bars = (
        alt.Chart(table)
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title=title, scale=unit_axis),
            x2=alt.X2("high:Q"),
            y=alt.Y("pairs:Q", title="pairs"),
            color=alt.Color("kind:N", title=None, scale=colors, legend=alt.Legend(orient="top")),
            tooltip=[alt.Tooltip("kind:N"), *bounds, alt.Tooltip("pairs:Q", format=",")],
        )
    )
    line = alt.Chart(alt.Data(values=[{"threshold": threshold}]))
    positives, pairs = table.loc[table["kind"] == "positive", "pairs"].sum(), table["pairs"].sum()
    answer = f"{percent(positives / pairs)} of the training pairs are positive (label above {threshold:g})"
    rule = line.mark_rule(strokeDash=[5, 4], color=theme.REFERENCE).encode(x=alt.X("threshold:Q"))
    return alt.layer(bars, rule).properties(title=answer, height=height)


def funnel_table(stages: Sequence[Stage]) -> pd.DataFrame:
    """Build the table of the steps that generated the rows.

    Returns:
        One row per step, with columns step, kind (unit of the count), count, left (share of the largest count of its
        kind) and note.
    """
    lines = [(stage.name, KINDS.get(stage.name, ROWS), stage.count, stage.note) for stage in stages]
    table = pd.DataFrame(lines, columns=["step", "kind", "count", "note"])
    largest = table.groupby("kind")["count"].transform("max").clip(lower=1)
    table.insert(3, "left", table["count"] / largest)
    return table


def funnel_figure(table: pd.DataFrame, title: str) -> alt.LayerChart:
    """Plot the steps (output of `funnel_table`) as bars, each relative to the largest count of its kind."""
    kinds = list(dict.fromkeys(table["kind"]))
    color = alt.Scale(domain=kinds, range=[COLORS[kind] for kind in kinds])
    legend = alt.Legend(orient="top") if len(kinds) > 1 else None
    share = alt.Axis(format="%", tickCount=4, grid=False)
    base = alt.Chart(table).encode(
        y=alt.Y("step:N", sort=None, title=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False)),
        x=alt.X("left:Q", title="share of the largest count", axis=share, scale=alt.Scale(domain=[0, 1.16])),
        tooltip=[
            alt.Tooltip("step:N"),
            alt.Tooltip("count:Q", format=","),
            alt.Tooltip("left:Q", title="share", format=".1%"),
            alt.Tooltip("note:N"),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=3).encode(color=alt.Color("kind:N", title=None, scale=color, legend=legend))
    counts = base.mark_text(align="left", dx=6, fontSize=12, color=theme.REFERENCE, fontWeight="bold")
    counts = counts.encode(text=alt.Text("count:Q", format=","))
    return alt.layer(bars, counts).properties(title=title, height=STEP_HEIGHT * len(table) + MARGIN_HEIGHT)

"""The statements of a claim as differences with their intervals: right of 0 is what the claim says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

COLOURS = {"holds": theme.POSITIVE, "does not hold": theme.HARD_NEGATIVE, "cannot be told": theme.REFERENCE}
LABEL_LENGTH = 96
ROW_HEIGHT = 48
AROUND_HEIGHT = 140  # title, legend and axis


def statements_table(statements: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row for each statement of a finding, with what it says and what was found.

    difference: of `better` minus `worse` in the metric's own units; low, high: its interval, missing where there is
    none; paper: the difference that the paper shows, missing where it shows none; p: corrected over the statements;
    beside: whether the paper does not say it.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "statement": one["words"],
                "metric": one["metric"],
                "split": one["split"],
                "difference": one["difference"],
                "low": one["low"],
                "high": one["high"],
                "paper": one["paper"],
                "expects": one["expects"],
                "p": one["p_holm"],
                "verdict": one["verdict"],
                "beside": one.get("beside", False),
            }
            for one in statements
        ]
    ).astype(dict.fromkeys(("difference", "low", "high", "paper", "p"), "float64"))


def verdicts_figure(table: pd.DataFrame) -> alt.LayerChart:
    """The table of `statements_table` as points with intervals, coloured by verdict; diamonds are the paper's own."""
    import altair as alt

    drawn = table.assign(name=_names(table))
    verdicts = [name for name in COLOURS if name in set(table["verdict"])]
    y = alt.Y("name:N", title=None, sort=None, axis=None)
    told = [
        alt.Tooltip("statement:N"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("difference:Q", format="+.3f"),
        alt.Tooltip("low:Q", title="from", format="+.3f"),
        alt.Tooltip("high:Q", title="to", format="+.3f"),
        alt.Tooltip("paper:Q", title="in the paper", format="+.3f"),
        alt.Tooltip("p:Q", title="p, corrected", format=".2g"),
    ]
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=verdicts, range=[COLOURS[name] for name in verdicts]),
        legend=alt.Legend(orient="top", title=None, symbolType="circle"),
    )
    base = alt.Chart(drawn).encode(y=y, tooltip=told)
    axis = alt.X(
        "low:Q",
        title=_axis_title(table),
        axis=alt.Axis(format="+.3f", tickCount=6),
    )
    zero = alt.Chart(drawn.head(1)).mark_rule(color=theme.REFERENCE, strokeDash=[4, 3]).encode(x=alt.datum(0))
    spans = (
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3).encode(x=axis, x2="high:Q", color=colour)
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(x="difference:Q", color=colour)
    paper = (
        base.transform_filter("isValid(datum.paper)")
        .mark_point(shape="diamond", size=110, strokeWidth=1.6, color=theme.QUERY, filled=False)
        .encode(x="paper:Q")
    )
    words = base.mark_text(align="left", dy=-15, fontSize=12, color=theme.REFERENCE).encode(
        x=alt.value(0), text="name:N"
    )
    height = AROUND_HEIGHT + ROW_HEIGHT * len(drawn)
    return alt.layer(zero, spans, points, paper, words).properties(height=height, title=headline(table))


def headline(table: pd.DataFrame) -> str:
    """What is to be seen, in one sentence; what stands beside the claim is not counted."""
    said = table[~table["beside"]]
    holds = int((said["verdict"] == "holds").sum())
    told = f"{holds} of {theme.many(len(said), 'statement')} {'holds' if holds == 1 else 'hold'}"
    return f"{told}; diamonds: the paper" if table["paper"].notna().any() else told


def _axis_title(table: pd.DataFrame) -> str:
    told = "within the margin" if (table["expects"] == "same").all() else "right of 0"
    return "difference in the metric" if table["expects"].nunique() > 1 else f"difference; as claimed: {told}"


def _names(table: pd.DataFrame) -> list[str]:
    """The statements, cut to the axis; the metric behind those that do not name it, so that no two are the same."""
    found = []
    for words, metric in zip(table["statement"], table["metric"], strict=True):
        tail = "" if metric in words else f" ({metric})"
        found.append(f"{theme.short(words, LABEL_LENGTH - len(tail))}{tail}")
    return found if len(set(found)) == len(found) else [f"{n}. {name}" for n, name in enumerate(found, start=1)]

"""What is left after each step in which training rows are made: bars under each other, with their counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bsc_core.data.stages import Stage
from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

KINDS = {
    "sentences": "sentences",
    "neighbours": "neighbours",
    "above the threshold": "neighbours",
    "distinct": "neighbours",
    "examples": "examples",
    "after the cap": "examples",
    "after the target": "examples",
}
"""What a step counts, where steps of one funnel count different things; elsewhere rows."""
ROWS = "rows"
COLOURS = {
    "sentences": theme.QUERY,
    "neighbours": theme.REFERENCE,
    "examples": theme.POSITIVE,
    ROWS: theme.POSITIVE,
}
BAR, AROUND = 30, 130  # pixels a step, and of title, legend and axis


def funnel_table(stages: Sequence[Stage]) -> pd.DataFrame:
    """One line for each step. Columns: step, kind (what is counted), count, left (share of the kind's most), note."""
    import pandas as pd

    lines = [(stage.name, KINDS.get(stage.name, ROWS), stage.count, stage.note) for stage in stages]
    table = pd.DataFrame(lines, columns=["step", "kind", "count", "note"])
    most = table.groupby("kind")["count"].transform("max").clip(lower=1)
    table.insert(3, "left", table["count"] / most)
    return table


def funnel_figure(table: pd.DataFrame, title: str) -> alt.LayerChart:
    """`funnel_table` as bars from the first step down; each as long as its share of what its kind began with."""
    import altair as alt

    shown = table.assign(told=[f"{count:,}" for count in table["count"]])
    kinds = list(dict.fromkeys(table["kind"]))
    colour = alt.Scale(domain=kinds, range=[COLOURS[kind] for kind in kinds])
    legend = alt.Legend(orient="top") if len(kinds) > 1 else None
    tips = ["step:N", alt.Tooltip("count:Q", format=","), alt.Tooltip("left:Q", format=".1%"), "note:N"]
    share = alt.Axis(format="%", tickCount=4, grid=False)
    base = alt.Chart(shown, title=title).encode(
        y=alt.Y("step:N", sort=None, title=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False)),
        x=alt.X("left:Q", title="share of the most of its kind", axis=share, scale=alt.Scale(domain=[0, 1.16])),
        tooltip=tips,
    )
    bars = base.mark_bar(cornerRadiusEnd=3).encode(color=alt.Color("kind:N", title=None, scale=colour, legend=legend))
    words = base.mark_text(align="left", dx=6, fontSize=12, color=theme.REFERENCE, fontWeight="bold").encode(
        text="told:N"
    )
    return alt.layer(bars, words).properties(height=BAR * len(table) + AROUND)

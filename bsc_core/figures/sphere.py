"""Alignment against uniformity: where each model lies between texts that are told apart and pairs that are together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PADDING = 0.15  # of the range, so that names have room


def sphere_table(
    names: Sequence[str], alignments: Sequence[float], uniformities: Sequence[float], runs: Sequence[str]
) -> pd.DataFrame:
    """A row for each model, in the order of training. Columns: order (from 0), model, run, alignment, uniformity.

    runs: what the models of one run share; the first run is the one that is told of.
    """
    import pandas as pd

    columns = {"model": names, "run": runs, "alignment": alignments, "uniformity": uniformities}
    return pd.DataFrame({"order": range(len(names)), **{name: list(values) for name, values in columns.items()}})


def sphere_sentence(table: pd.DataFrame) -> str:
    """What training did to both, from the first model of the first run to its last, as the figure's title."""
    own = table[table["run"] == table["run"].iloc[0]]
    first, last = own.iloc[0], own.iloc[-1]
    if len(own) == 1:
        return f"Alignment {first['alignment']:.3f}, uniformity {first['uniformity']:.3f}"
    nearer = "closer together" if last["alignment"] < first["alignment"] else "further apart"
    wider = "more evenly" if last["uniformity"] < first["uniformity"] else "less evenly"
    return f"Pairs lie {nearer}, texts {wider} spread"


def sphere_figure(table: pd.DataFrame, *, height: int = 360) -> alt.LayerChart:
    """The models of `sphere_table` as points, those of a run joined; down and to the left is better in both."""
    import altair as alt

    def axis(field: str, title: str) -> dict[str, object]:
        low, high = float(table[field].min()), float(table[field].max())
        room = max(0.02, PADDING * (high - low))
        scale = alt.Scale(domain=[low - room, high + room], nice=False)
        return {"title": title, "scale": scale, "axis": alt.Axis(tickCount=4, format=".2f")}

    base = alt.Chart(table).encode(
        x=alt.X("uniformity:Q", **axis("uniformity", "uniformity (low: spread)")),
        y=alt.Y("alignment:Q", **axis("alignment", "alignment (low: close)")),
        order="order:Q",
    )
    told = ["model:N", alt.Tooltip("alignment:Q", format=".3f"), alt.Tooltip("uniformity:Q", format=".3f")]
    names = list(table["model"])
    colours = [theme.REFERENCE, *(theme.CATEGORIES[place % 7] for place in range(len(names) - 1))]
    colour = alt.Color(
        "model:N",
        title=None,
        scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(orient="bottom", columns=1, labelLimit=220),
    )
    line = base.mark_line(color=theme.REFERENCE, strokeWidth=1, opacity=0.7).encode(detail="run:N")
    points = base.mark_point(filled=True, size=90, opacity=1).encode(color=colour, tooltip=told)
    title = alt.TitleParams(sphere_sentence(table).split(", "), fontSize=13, anchor="start")
    return alt.layer(line, points).properties(height=height + 18 * len(names), title=title)

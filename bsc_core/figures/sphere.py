"""Alignment against uniformity: where each model lies between texts that are told apart and pairs that are together."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PADDING = 0.15  # of the range, so that names have room
TITLE_WIDTH = 34  # letters in a line of the title: the picture is narrow
NAMED = ("alignment", "uniformity")


class Change(NamedTuple):
    """What the last model has over the first: the difference, its 95% interval, and whether it is more than chance."""

    difference: float
    low: float | None
    high: float | None
    is_difference: bool

    def words(self, less: str, more: str, unchanged: str, unknown: str) -> str:
        """One of the four: of a difference that is 0 to three decimals `unchanged`, of chance `unknown`."""
        if round(self.difference, 3) == 0:
            return unchanged
        if not self.is_difference:
            return unknown
        return less if self.difference < 0 else more

    def told(self) -> str:
        """`+0.041 [+0.012, +0.070]`."""
        if self.low is None or self.high is None:
            return f"{theme.change(self.difference)} [no interval]"
        return f"{theme.change(self.difference)} [{theme.change(self.low)}, {theme.change(self.high)}]"


Changes = tuple[Change, Change]
"""Of alignment and of uniformity."""


def sphere_table(
    names: Sequence[str], alignments: Sequence[float], uniformities: Sequence[float], runs: Sequence[str]
) -> pd.DataFrame:
    """A row for each model, in the order of training. Columns: order (from 0), model, run, alignment, uniformity.

    runs: what the models of one run share; the first run is the one that is told of.
    """
    import pandas as pd

    columns = {"model": names, "run": runs, "alignment": alignments, "uniformity": uniformities}
    return pd.DataFrame({"order": range(len(names)), **{name: list(values) for name, values in columns.items()}})


def sphere_clauses(table: pd.DataFrame, changes: Changes | None) -> list[str]:
    """What training did to both, from the first model of the first run to its last, as the figure's title.

    changes: of these two models; None where there is one, whose numbers are said.
    """
    if changes is None:
        first = table.iloc[0]
        return [f"Alignment {first['alignment']:.3f}", f"uniformity {first['uniformity']:.3f}"]
    unknown = "cannot be told from chance"
    pairs = changes[0].words(
        "Pairs lie closer together", "Pairs lie further apart", "Pairs lie unchanged", f"How pairs moved {unknown}"
    )
    texts = changes[1].words(
        "texts more evenly spread", "texts less evenly spread", "texts spread unchanged", f"how texts spread {unknown}"
    )
    return [pairs, texts]


def sphere_figure(table: pd.DataFrame, changes: Changes | None = None, *, height: int = 360) -> alt.LayerChart:
    """The models of `sphere_table` as points, those of a run joined; down and to the left is better in both.

    changes: as `sphere_clauses` takes them, said below the title with their intervals.
    """
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
    lines = [line for clause in sphere_clauses(table, changes) for line in textwrap.wrap(clause, TITLE_WIDTH)]
    below = [] if changes is None else [f"{name} {one.told()}" for name, one in zip(NAMED, changes, strict=True)]
    title = alt.TitleParams(
        lines, subtitle=below, fontSize=13, subtitleFontSize=11, subtitleColor=theme.REFERENCE, anchor="start"
    )
    return alt.layer(line, points).properties(height=height + 18 * len(names), title=title)

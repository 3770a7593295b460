"""Alignment against uniformity of one or more models."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from bsc_core import formatting
from bsc_core.figures import theme

PADDING = 0.15  # share of the axis range
TITLE_WIDTH = 34  # characters per title line
LABEL_LENGTH = 12  # characters of the label of a point
METRICS = ("alignment", "uniformity")


class Change(NamedTuple):
    """Difference between the last and the first model, with its 95% confidence interval if there is one."""

    difference: float
    low: float | None
    high: float | None
    significant: bool

    def describe(self, less: str, more: str, unchanged: str, inconclusive: str) -> str:
        """Return the phrase that applies: `unchanged` if the difference is 0 to three decimals."""
        if round(self.difference, 3) == 0:
            return unchanged
        if not self.significant:
            return inconclusive
        return less if self.difference < 0 else more

    def text(self) -> str:
        """Format the change with its interval, such as `+0.041 [+0.012, +0.070]`."""
        if self.low is None or self.high is None:
            return f"{formatting.signed(self.difference)} [no interval]"
        return f"{formatting.signed(self.difference)} [{formatting.signed(self.low)}, {formatting.signed(self.high)}]"


GeometryChanges = tuple[Change, Change]
"""Changes of alignment and uniformity."""


def alignment_table(
    names: Sequence[str], alignments: Sequence[float], uniformities: Sequence[float], runs: Sequence[str]
) -> pd.DataFrame:
    """Build the table of models, in training order; the title of the figure describes the first run.

    Returns:
        One row per model, with columns order (from 0), model, run, alignment and uniformity.
    """
    columns = {"order": range(len(names)), "model": names, "run": runs}
    return pd.DataFrame({**columns, "alignment": list(alignments), "uniformity": list(uniformities)})


def alignment_summary(table: pd.DataFrame, changes: GeometryChanges | None) -> list[str]:
    """Summarize the change from the first to the last model of the first run, as title lines.

    Args:
        table: output of `alignment_table`.
        changes: changes of alignment and uniformity; None for a single model, whose values are reported.

    Returns:
        One clause for alignment and one for uniformity.
    """
    if changes is None:
        first = table.iloc[0]
        return [f"Alignment {first['alignment']:.3f}", f"uniformity {first['uniformity']:.3f}"]
    pairs = ("Pairs closer together", "Pairs further apart", "Pairs unchanged", "Pairs: change not significant")
    spread = ("more evenly", "less evenly", "unchanged")
    texts = (*(f"texts spread {how}" for how in spread), "spread: change not significant")
    return [changes[0].describe(*pairs), changes[1].describe(*texts)]


def alignment_figure(
    table: pd.DataFrame,
    changes: GeometryChanges | None = None,
    *,
    colors: Sequence[str] = (theme.REFERENCE, *theme.CATEGORIES[:7]),
    height: int = 260,
) -> alt.LayerChart:
    """Plot alignment against uniformity, connecting the models of a run; down and to the left is better.

    Each point is labeled with its epoch, or with the first letters of its model.

    Args:
        table: output of `alignment_table`.
        changes: changes as in `alignment_summary`, shown with intervals in the subtitle.
        colors: one per model.
        height: height in pixels.
    """
    names = list(table["model"])
    table = table.assign(label=[name.removeprefix("Epoch ").partition(" ")[0][:LABEL_LENGTH] for name in names])
    x = table["uniformity"].to_numpy()
    to_next = x - np.append(x[1:], x[-2:][:1])  # of the last point, to the one before
    table = table.assign(outside=np.where(to_next < 0, -1, 1))
    colors = theme.cycle(colors, len(names))
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=220)
    base = alt.Chart(table).encode(
        x=alt.X("uniformity:Q", title="uniformity", **_axis(table["uniformity"])),
        y=alt.Y("alignment:Q", title="alignment", **_axis(table["alignment"])),
        order=alt.Order("order:Q"),
    )
    line = base.mark_line(color=theme.REFERENCE, strokeWidth=1, opacity=0.7).encode(detail=alt.Detail("run:N"))
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color("model:N", title=None, scale=alt.Scale(domain=names, range=colors), legend=legend),
        tooltip=[alt.Tooltip("model:N"), *(alt.Tooltip(f"{name}:Q", format=".3f") for name in METRICS)],
    )
    labels = [  # on the side of its point that is away from the line
        base.transform_filter(f"datum.outside * {sign} > 0")
        .mark_text(align="left" if sign > 0 else "right", dx=9 * sign, fontSize=12, color=theme.REFERENCE)
        .encode(text=alt.Text("label:N"))
        for sign in (1, -1)
    ]
    lines = textwrap.wrap(", ".join(alignment_summary(table, changes)), TITLE_WIDTH)
    subtitle = [] if changes is None else [f"{name} {one.text()}" for name, one in zip(METRICS, changes, strict=True)]
    title = alt.TitleParams(
        lines, subtitle=subtitle, fontSize=13, subtitleFontSize=11, subtitleColor=theme.REFERENCE, anchor="start"
    )
    return alt.layer(line, points, *labels).properties(height=height + 18 * len(names), title=title)


def _axis(values: pd.Series) -> dict[str, alt.Scale | alt.Axis]:
    low, high = float(values.min()), float(values.max())
    padding = max(0.02, PADDING * (high - low))
    scale = alt.Scale(domain=[low - padding, high + padding], nice=False)
    return {"scale": scale, "axis": alt.Axis(tickCount=4, format=".2f")}

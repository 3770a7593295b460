"""Ten sentences beside each other as one model sees them; the three pairs that say the same thing are framed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import pandas as pd

LABEL_LENGTH = 30
CELL = 42  # pixels, high
DARK_FROM = 0.62  # |cosine| from which a cell is dark enough for white figures


def sentence_map(
    cosines: NDArray[np.float64], sentences: Sequence[str], gold: Sequence[tuple[int, int]], *, title: str
) -> alt.LayerChart:
    """Cosines (S, S) of S sentences as a matrix with its numbers. gold: pairs that say the same, framed on both sides.

    title: of the figure, a sentence. Colours are fixed to [-1, 1].
    """
    lines = cells(cosines, sentences, gold)
    labels = [f"{number} {theme.short(text, LABEL_LENGTH)}" for number, text in enumerate(sentences, 1)]
    for line in lines:
        line["label"] = labels[line["row"] - 1]
    base = alt.Chart(alt.Data(values=lines)).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labelAngle=0, orient="top", ticks=False, domain=False)),
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=230, ticks=False, domain=False)),
    )
    ramp = alt.Scale(domain=[-1, 1], range=list(theme.COSINE), interpolate="rgb")
    colour = alt.Color("cosine:Q", scale=ramp, legend=None)
    told = ["left:N", "right:N", alt.Tooltip("cosine:Q", format=".3f")]
    squares = base.mark_rect().encode(color=colour, tooltip=told)
    frames = base.transform_filter("datum.gold").mark_rect(fillOpacity=0, strokeWidth=3, stroke=theme.POSITIVE)
    ink = alt.condition(f"abs(datum.cosine) > {DARK_FROM}", alt.value("white"), alt.value("#1B2530"))
    numbers = base.mark_text(fontSize=11).encode(text=alt.Text("cosine:Q", format=".2f"), color=ink, tooltip=told)
    return alt.layer(squares, frames, numbers).properties(height=CELL * len(sentences), title=title)


def cells(
    cosines: NDArray[np.float64], sentences: Sequence[str], gold: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """One line for each cell: row and column from 1, both sentences, the cosine, and whether they say the same."""
    same = {pair for left, right in gold for pair in ((left, right), (right, left))}
    return [
        {"row": row + 1, "column": column + 1, "left": left, "right": right}
        | {"cosine": round(float(cosines[row, column]), 4), "gold": (row, column) in same}
        for row, left in enumerate(sentences)
        for column, right in enumerate(sentences)
    ]


def data(cosines: NDArray[np.float64], sentences: Sequence[str], gold: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The cells as a table for download."""
    import pandas as pd

    return pd.DataFrame(cells(cosines, sentences, gold))

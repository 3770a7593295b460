"""Similarity matrix of the ten example sentences, with the three paraphrase pairs framed."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core import formatting
from bsc_core.figures import theme

LABEL_LENGTH = 30
CELL = 42  # pixels
DARK_CELLS = (-0.75, 0.94)  # cosines below and above which a cell is so dark that its text is white


def sentence_map(table: pd.DataFrame, sentences: Sequence[str], *, title: str) -> alt.LayerChart:
    """Plot the similarity matrix (output of `cells`) with its values; colors are fixed to [-1, 1]."""
    labels = [f"{number} {formatting.shorten(text, LABEL_LENGTH)}" for number, text in enumerate(sentences, 1)]
    rows = table.assign(label=[labels[row - 1] for row in table["row"]]).to_dict("records")
    tooltip = ["left:N", "right:N", alt.Tooltip("cosine:Q", format=".3f")]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labelAngle=0, orient="top", ticks=False, domain=False)),
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=230, ticks=False, domain=False)),
    )
    ramp = alt.Scale(domain=[-1, 1], range=list(theme.COSINE), interpolate="rgb")
    squares = base.mark_rect().encode(color=alt.Color("cosine:Q", scale=ramp, legend=None), tooltip=tooltip)
    frames = base.transform_filter("datum.gold").mark_rect(fillOpacity=0, strokeWidth=3, stroke=theme.POSITIVE)
    ink = alt.condition(
        f"datum.cosine < {DARK_CELLS[0]} || datum.cosine > {DARK_CELLS[1]}",
        alt.value(theme.ON_DARK),
        alt.value(theme.ON_LIGHT),
    )
    numbers = base.mark_text(fontSize=11).encode(text=alt.Text("cosine:Q", format=".2f"), color=ink, tooltip=tooltip)
    return alt.layer(squares, frames, numbers).properties(height=CELL * len(sentences), title=title)


def cells(cosines: NDArray[np.float64], sentences: Sequence[str], gold: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Build the table of the cosines (S, S) of S sentences.

    Args:
        cosines: (S, S) cosine similarities.
        sentences: S sentences.
        gold: index pairs of paraphrases, marked on both sides of the diagonal.

    Returns:
        One row per cell: row and column from 1, left and right (the sentences), cosine, and gold (whether they are
        paraphrases).
    """
    paraphrases = {pair for left, right in gold for pair in ((left, right), (right, left))}
    return pd.DataFrame(
        [
            {"row": row + 1, "column": column + 1, "left": left, "right": right}
            | {"cosine": round(float(cosines[row, column]), 4), "gold": (row, column) in paraphrases}
            for row, left in enumerate(sentences)
            for column, right in enumerate(sentences)
        ]
    )

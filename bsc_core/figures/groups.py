"""Groups of a plan as small multiples: the anchor in the middle, its neighbours as far away as they are unlike it."""

# n rows in a group, D dimensions

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ANCHOR = "anchor"
NEIGHBOUR = "neighbour"
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


def group_layout(vectors: NDArray[np.float32], anchor: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the rows of one group stand: (n, 2) positions and (n,) cosines to the anchor, which stands at (0, 0).

    The distance from the middle is 1 - cosine; the angle has no meaning, it keeps the points apart.
    vectors: (n, D), none of them zero.
    """
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = np.clip(units @ units[anchor], -1, 1).astype(np.float64)
    rank = np.empty(len(vectors))
    rank[np.argsort(-cosine, kind="stable")] = np.arange(len(vectors))
    angle = rank * GOLDEN_ANGLE
    distance = 1 - cosine
    distance[anchor] = 0
    return np.column_stack([distance * np.cos(angle), distance * np.sin(angle)]), cosine


def group_table(groups: list[tuple[int, NDArray[np.int32], NDArray[np.float32], list[str]]]) -> pd.DataFrame:
    """One line for each row of each group. groups: (id, (n,) dataset rows, (n, D) vectors, n texts), anchor first.

    Columns: group, row, role, x, y, cosine, text.
    """
    import pandas as pd

    frames = []
    for group, rows, vectors, texts in groups:
        points, cosine = group_layout(vectors, 0)
        frames.append(
            pd.DataFrame(
                {
                    "group": f"group {group}",
                    "row": rows,
                    "role": [ANCHOR, *[NEIGHBOUR] * (len(rows) - 1)],
                    "x": points[:, 0],
                    "y": points[:, 1],
                    "cosine": cosine.round(4),
                    "text": [theme.short(text, 240) for text in texts],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def group_figure(table: pd.DataFrame, *, columns: int = 6, size: int = 130) -> alt.FacetChart:
    """Small multiples of `group_table`, all on one scale, so that tight and loose groups can be told apart."""
    import altair as alt

    reach = max(0.1, float(np.hypot(table["x"], table["y"]).max()) * 1.08)
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    hidden = {"axis": None, "scale": scale}
    base = alt.Chart().encode(x=alt.X("x:Q", **hidden), y=alt.Y("y:Q", **hidden))
    spokes = base.mark_rule(opacity=0.35, color=theme.REFERENCE).encode(x2=alt.datum(0), y2=alt.datum(0))
    points = base.mark_circle(size=70, opacity=0.95).encode(
        color=alt.Color(
            "role:N",
            title=None,
            scale=alt.Scale(domain=[ANCHOR, NEIGHBOUR], range=[theme.QUERY, theme.HARD_NEGATIVE]),
            legend=alt.Legend(orient="top"),
        ),
        tooltip=[
            alt.Tooltip("text:N"),
            alt.Tooltip("cosine:Q", title="cosine to the anchor", format=".3f"),
            alt.Tooltip("row:Q"),
        ],
    )
    order = list(dict.fromkeys(table["group"]))
    return (
        alt.layer(spokes, points, data=table)
        .properties(width=size, height=size)
        .facet(facet=alt.Facet("group:N", title=None, sort=order, header=alt.Header(labelFontSize=11)), columns=columns)
    )

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


def map_table(
    points: NDArray[np.float32], ids: NDArray[np.int32], groups: list[tuple[int, NDArray[np.int32]]], texts: list[str]
) -> pd.DataFrame:
    """One line for each text of a map, and one more for each row of each group, which stand last.

    points: (T, 2), ids: (T,) ascending text ids, texts: T. groups: (id, (n,) text ids among `ids`), anchor first.
    Columns: group ("" for the ground), role, x, y, anchor_x, anchor_y, text.
    """
    import pandas as pd

    ground = pd.DataFrame({"group": "", "role": "", "x": points[:, 0], "y": points[:, 1]})
    frames = [
        ground.assign(anchor_x=ground["x"], anchor_y=ground["y"], text=[theme.short(text, 120) for text in texts])
    ]
    for group, members in groups:
        places = np.searchsorted(ids, members)
        lines = frames[0].iloc[places].assign(group=f"group {group}", role=[ANCHOR, *[NEIGHBOUR] * (len(places) - 1)])
        frames.append(lines.assign(anchor_x=points[places[0], 0], anchor_y=points[places[0], 1]))
    return pd.concat(frames, ignore_index=True)


def map_figure(table: pd.DataFrame, *, height: int = 380) -> alt.LayerChart:
    """The map of `map_table`: all texts in grey, the groups in colour with a line from each row to its anchor."""
    import altair as alt

    drawn, names = table[table["group"] != ""], list(dict.fromkeys(table.loc[table["group"] != "", "group"]))
    colours = [theme.CATEGORIES[:7][number % 7] for number in range(len(names))]
    place = {
        "x": alt.X("x:Q", axis=None, scale=_span(table, "x")),
        "y": alt.Y("y:Q", axis=None, scale=_span(table, "y")),
    }
    scale = alt.Scale(domain=names, range=colours)
    colour = alt.Color("group:N", scale=scale, title=None, legend=alt.Legend(orient="bottom", columns=4))
    ground = alt.Chart(table[table["group"] == ""]).mark_circle(size=14, opacity=0.28, color=theme.REFERENCE)
    lines = (
        alt.Chart(drawn)
        .mark_rule(strokeWidth=1.4, opacity=0.7)
        .encode(**place, x2="anchor_x", y2="anchor_y", color=colour)
    )
    shapes = alt.Shape("role:N", scale=alt.Scale(domain=[ANCHOR, NEIGHBOUR], range=["diamond", "circle"]), legend=None)
    rows = alt.Chart(drawn).mark_point(filled=True, size=60, opacity=0.95)
    told = [alt.Tooltip("text:N"), alt.Tooltip("group:N")]
    return alt.layer(
        ground.encode(**place, tooltip=[alt.Tooltip("text:N")]),
        lines,
        rows.encode(**place, color=colour, shape=shapes, tooltip=told),
    ).properties(height=height)


def _span(table: pd.DataFrame, axis: str) -> alt.Scale:
    """All of the groups and nearly all of the ground: a few texts far out would leave no room for the others."""
    import altair as alt

    ground, drawn = table.loc[table["group"] == "", axis], table.loc[table["group"] != "", axis]
    low, high = float(ground.quantile(0.01)), float(ground.quantile(0.99))
    if len(drawn):
        low, high = min(low, float(drawn.min())), max(high, float(drawn.max()))
    return alt.Scale(domain=[low, high], zero=False, nice=False, padding=12, clamp=True)

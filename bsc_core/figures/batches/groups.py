"""Groups of a batch plan as small multiples and on a map; the distance from the anchor is 1 - cosine."""

# n rows in a group, D dimensions

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core import formatting
from bsc_core.figures import theme
from bsc_core.neighbors import unit_rows

ANCHOR, NEIGHBOR = "anchor", "neighbor"
SHAPES = alt.Scale(domain=[ANCHOR, NEIGHBOR], range=["diamond", "circle"])
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


def group_layout(vectors: NDArray[np.float32], anchor: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the positions of the rows of a group around its anchor.

    The distance from the center is 1 - cosine. The angle only separates the points.

    Args:
        vectors: (n, D) nonzero vectors.
        anchor: index of the anchor, which is placed at (0, 0).

    Returns:
        Positions (n, 2), and cosine similarities to the anchor (n,).
    """
    units = unit_rows(vectors)
    cosine = np.clip(units @ units[anchor], -1, 1).astype(np.float64)
    rank = np.empty(len(vectors))
    rank[np.argsort(-cosine, kind="stable")] = np.arange(len(vectors))
    angle = rank * GOLDEN_ANGLE
    distance = 1 - cosine
    distance[anchor] = 0
    return np.column_stack([distance * np.cos(angle), distance * np.sin(angle)]), cosine


def group_table(groups: list[tuple[int, NDArray[np.int32], NDArray[np.float32], list[str]]]) -> pd.DataFrame:
    """Build the table of group rows.

    Args:
        groups: id, (n,) dataset rows, (n, D) vectors and n texts of each group, anchor first.

    Returns:
        One row per row of each group, with columns group, row, role, x, y, cosine and text.
    """
    frames = []
    for group, rows, vectors, texts in groups:
        points, cosine = group_layout(vectors, 0)
        frames.append(
            pd.DataFrame(
                {
                    "group": f"group {group}",
                    "row": rows,
                    "role": _roles(len(rows)),
                    "x": points[:, 0],
                    "y": points[:, 1],
                    "cosine": cosine.round(4),
                    "text": [formatting.shorten(text, 240) for text in texts],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _roles(rows: int) -> list[str]:
    return [ANCHOR, *[NEIGHBOR] * (rows - 1)]


def group_figure(table: pd.DataFrame, *, columns: int = 6, size: int = 130) -> alt.FacetChart:
    """Plot the groups (output of `group_table`) as small multiples, `size` pixels wide and high.

    They share a scale, so that tight and loose groups are distinguishable.
    """
    reach = max(0.1, float(np.hypot(table["x"], table["y"]).max()) * 1.08)
    hidden = {"axis": None, "scale": alt.Scale(domain=[-reach, reach], nice=False)}
    base = alt.Chart().encode(x=alt.X("x:Q", **hidden), y=alt.Y("y:Q", **hidden))
    spokes = base.mark_rule(opacity=0.35, color=theme.REFERENCE).encode(x2=alt.datum(0), y2=alt.datum(0))
    names = list(dict.fromkeys(table["group"]))
    legend = alt.Legend(
        orient="top", symbolOpacity=1, symbolFillColor=theme.REFERENCE, symbolStrokeColor=theme.REFERENCE
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        color=alt.Color("group:N", scale=_colors(names), legend=None),
        shape=alt.Shape("role:N", title=None, scale=SHAPES, legend=legend),
        tooltip=[
            alt.Tooltip("text:N"),
            alt.Tooltip("cosine:Q", title="cosine to the anchor", format=".3f"),
            alt.Tooltip("row:Q"),
        ],
    )
    order, header = list(dict.fromkeys(table["group"])), alt.Header(labelFontSize=11)
    anchors_last = table.sort_values("role", ascending=False, kind="stable")  # above neighbors with an equal vector
    return (
        alt.layer(spokes, points, data=anchors_last)
        .properties(width=size, height=size)
        .facet(facet=alt.Facet("group:N", title=None, sort=order, header=header), columns=columns)
    )


def _colors(groups: Sequence[str]) -> alt.Scale:
    """Return the colors of groups, equal in both figures; those beyond the colors are gray."""
    others = [theme.REFERENCE] * max(0, len(groups) - len(theme.WITHOUT_MEANING))
    return alt.Scale(domain=list(groups), range=[*theme.WITHOUT_MEANING[: len(groups)], *others])


def map_table(
    points: NDArray[np.float32], ids: NDArray[np.int32], groups: list[tuple[int, NDArray[np.int32]]], texts: list[str]
) -> pd.DataFrame:
    """Build the table of all texts of a map, followed by the rows of each group.

    Args:
        points: (T, 2) positions.
        ids: (T,) ascending text ids.
        groups: id and (n,) text ids of each group, anchor first.
        texts: T texts.

    Returns:
        A table with columns group ("" for the background), role, x, y, anchor_x, anchor_y and text.
    """
    x, y = points.T
    background = pd.DataFrame({"group": "", "role": "", "x": x, "y": y, "anchor_x": x, "anchor_y": y})
    background["text"] = [formatting.shorten(text, 120) for text in texts]
    frames = [background]
    for group, members in groups:
        rows = np.searchsorted(ids, members)
        anchor = {"anchor_x": x[rows[0]], "anchor_y": y[rows[0]]}
        frames.append(background.iloc[rows].assign(group=f"group {group}", role=_roles(len(rows)), **anchor))
    return pd.concat(frames, ignore_index=True)


def map_figure(table: pd.DataFrame, *, height: int = 380) -> alt.LayerChart:
    """Plot all texts (output of `map_table`) in gray, and the groups in color with lines to their anchors."""
    background, grouped = table[table["group"] == ""], table[table["group"] != ""]
    names = list(dict.fromkeys(grouped["group"]))
    xy = {
        "x": alt.X("x:Q", axis=None, scale=_span(background["x"], grouped["x"])),
        "y": alt.Y("y:Q", axis=None, scale=_span(background["y"], grouped["y"])),
    }
    legend = alt.Legend(orient="bottom", columns=4, symbolOpacity=1)
    color = alt.Color("group:N", scale=_colors(names), title=None, legend=legend)
    shapes = alt.Shape("role:N", scale=SHAPES, legend=None)
    all_texts = alt.Chart(background).mark_circle(size=14, opacity=0.28, color=theme.REFERENCE)
    lines = alt.Chart(grouped).mark_rule(strokeWidth=1.4, opacity=0.7)
    rows = alt.Chart(grouped).mark_point(filled=True, size=60, opacity=1)
    return alt.layer(
        all_texts.encode(**xy, tooltip=[alt.Tooltip("text:N")]),
        lines.encode(**xy, x2=alt.X2("anchor_x"), y2=alt.Y2("anchor_y"), color=color),
        rows.encode(**xy, color=color, shape=shapes, tooltip=[alt.Tooltip("text:N"), alt.Tooltip("group:N")]),
    ).properties(height=height)


def _span(background: pd.Series, grouped: pd.Series) -> alt.Scale:
    """Return an axis scale that covers the groups and 98% of the background, without its outliers."""
    low, high = float(background.quantile(0.01)), float(background.quantile(0.99))
    if len(grouped):
        low, high = min(low, float(grouped.min())), max(high, float(grouped.max()))
    return alt.Scale(domain=[low, high], zero=False, nice=False, padding=12, clamp=True)

"""Similarity matrix of a batch: all queries against all documents, as a chart or as pixels for a canvas."""

# B pairs in a batch

import base64
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core import formatting
from bsc_core.figures import theme
from bsc_core.types import Ids, Mask

POSITIVE = "positive pair"
NEGATIVE_PAIR = "negative pair"
NEGATIVE = "in-batch negative"
LABELED_NEGATIVE = "labeled negative"
CLOSER = "closer than the positive"
COLLISION = "collision"
MARKED = "marked as false negative"
KINDS = (NEGATIVE, LABELED_NEGATIVE, POSITIVE, NEGATIVE_PAIR, CLOSER, COLLISION, MARKED)
KIND_COLORS = {
    POSITIVE: theme.POSITIVE,
    NEGATIVE_PAIR: theme.REFERENCE,
    CLOSER: theme.HARD_NEGATIVE,
    COLLISION: theme.FALSE_NEGATIVE,
    MARKED: theme.MARKED_FALSE_NEGATIVE,
}
KIND_SHAPES = {
    POSITIVE: "circle",
    NEGATIVE_PAIR: "circle",
    CLOSER: "triangle-up",
    COLLISION: "cross",
    MARKED: "diamond",
}
EDGES = ["x", "x2", "y", "y2"]
TEXT_LENGTH, CANVAS_TEXT_LENGTH = 280, 160
CELL = "cell"
OUTLINE = "#1B2530"  # of marks, which can be seen on every color of a cell
"""Name of the selection: `event.selection.cell` is a list of {"row", "column"} indices into the batch."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The similarity matrix of a batch with its annotations.

    Attributes:
        similarity: (B, B) cosine similarities.
        rows: (B,) dataset rows.
        groups: (B,) group ids.
        positive: (B,) whether the pair on the diagonal is positive.
        collisions: (B, B) off-diagonal pairs that are positives according to the data.
        negatives: (B, B) pairs that are labeled negative.
        marked: (B, B) pairs that the user marked as false negatives; None for none.
    """

    similarity: NDArray[np.float32]
    rows: Ids
    groups: Ids
    positive: Mask
    collisions: Mask
    negatives: Mask
    marked: Mask | None = None

    def kinds(self) -> NDArray[np.str_]:
        """Return the kind of each cell (B, B); later checks override earlier ones."""
        closer = (self.similarity > np.diag(self.similarity)[:, None]) & self.positive[:, None]
        kinds = np.where(self.negatives, LABELED_NEGATIVE, NEGATIVE).astype("<U40")
        kinds[closer] = CLOSER
        kinds[self.collisions] = COLLISION
        if self.marked is not None:
            kinds[self.marked] = MARKED
        np.fill_diagonal(kinds, np.where(self.positive, POSITIVE, NEGATIVE_PAIR))
        return kinds


def batch_table(cells: Cells) -> pd.DataFrame:
    """Build the table of matrix cells.

    Returns:
        One row per cell, with columns row and column (indices into the batch), query_row and document_row (dataset
        rows), group (of the query), similarity, positive_similarity (of the query and the document on the diagonal)
        and kind.
    """
    size = len(cells.rows)
    return pd.DataFrame(
        {
            "row": np.repeat(np.arange(size), size),
            "column": np.tile(np.arange(size), size),
            "query_row": np.repeat(cells.rows, size),
            "document_row": np.tile(cells.rows, size),
            "group": np.repeat(cells.groups, size),
            "similarity": cells.similarity.astype(np.float64).ravel().round(4),
            "positive_similarity": np.repeat(np.diag(cells.similarity), size).astype(np.float64).round(4),
            "kind": cells.kinds().ravel(),
        }
    )


def group_borders(groups: Ids) -> pd.DataFrame:
    """Return a row per run of equal ids in `groups` (B,), with columns group, start and end (exclusive)."""
    groups = np.asarray(groups)
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
    return pd.DataFrame({"group": groups[starts], "start": starts, "end": np.r_[starts, len(groups)][1:]})


def batch_matrix(
    table: pd.DataFrame, texts: pd.DataFrame, *, hardest: tuple[int, int] | None = None, size: int = 520
) -> alt.LayerChart:
    """Plot the similarity matrix; hovering shows both texts, and a click selects a cell (see CELL).

    Groups are outlined. Cells of the kinds in KIND_COLORS are marked.

    Args:
        table: output of `batch_table`.
        texts: columns position, query and document.
        hardest: row and column of an outlined cell.
        size: width and height in pixels.
    """
    number = len(texts)
    shown = texts.assign(
        **{side: [formatting.shorten(text, TEXT_LENGTH) for text in texts[side]] for side in ("query", "document")}
    )
    cells = table.assign(x2=table["column"] + 1, y2=table["row"] + 1)
    scales = {"x": alt.Scale(domain=[0, number], nice=False, zero=False)}
    scales["y"] = alt.Scale(domain=[0, number], nice=False, zero=False, reverse=True)
    centers = [cell + 0.5 for cell in range(0, number, max(1, round(number / 10)))]  # labels count from 1
    ticks = alt.Axis(values=centers, labelExpr="round(datum.value + 0.5)", grid=False, ticks=False, domain=False)
    ramp = alt.Scale(domain=[-1, 1], range=list(theme.COSINE), interpolate="rgb", clamp=True)
    bar = {"orient": "right", "gradientLength": 160, "gradientThickness": 10, "format": ".1f"}
    body = (
        alt.Chart(cells)
        .transform_lookup("row", alt.LookupData(shown, "position", ["query"]))
        .transform_lookup("column", alt.LookupData(shown, "position", ["document"]))
        .mark_rect(cursor="pointer")
        .encode(
            x=alt.X("column:Q", title="documents, in the same order", axis=ticks, scale=scales["x"]),
            x2="x2:Q",
            y=alt.Y("row:Q", title="queries", axis=ticks, scale=scales["y"]),
            y2="y2:Q",
            color=alt.Color(
                "similarity:Q", title="cosine", scale=ramp, legend=alt.Legend(values=[-1, -0.5, 0, 0.5, 1], **bar)
            ),
            tooltip=[
                "query:N",
                "document:N",
                alt.Tooltip("similarity:Q", format=".3f"),
                alt.Tooltip("positive_similarity:Q", title="cosine of the positive", format=".3f"),
                "kind:N",
            ],
        )
        .add_params(alt.selection_point(name=CELL, fields=["row", "column"], on="click", empty=False))
    )
    borders = group_borders(table.drop_duplicates("row").sort_values("row")["group"].to_numpy())
    squares = pd.DataFrame({name: borders[side] for name, side in zip(EDGES, ("start", "end") * 2, strict=True)})
    layers = [body, _outlines(squares, scales, OUTLINE, 1.4), _marks(cells, number, scales)]
    if hardest is not None:
        row, column = hardest
        cell = pd.DataFrame([(column, column + 1, row, row + 1)], columns=EDGES)
        layers.append(_outlines(cell, scales, theme.HARD_NEGATIVE, 2.5))
    return alt.layer(*layers).properties(width=size, height=size)


def _outlines(squares: pd.DataFrame, scales: dict[str, alt.Scale], color: str, width: float) -> alt.Chart:
    marked = alt.Chart(squares).mark_rect(filled=False, stroke=color, strokeWidth=width, fillOpacity=0)
    x, y = alt.X("x:Q", scale=scales["x"]), alt.Y("y:Q", scale=scales["y"])
    return marked.encode(x=x, x2="x2:Q", y=y, y2="y2:Q")


def _marks(cells: pd.DataFrame, number: int, scales: dict[str, alt.Scale]) -> alt.Chart:
    marked = cells[cells["kind"].isin(list(KIND_COLORS))]
    marked = marked.assign(x=marked["column"] + 0.5, y=marked["row"] + 0.5)
    kinds = [kind for kind in KIND_COLORS if (marked["kind"] == kind).any()]
    colors = alt.Scale(domain=kinds, range=[KIND_COLORS[kind] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[KIND_SHAPES[kind] for kind in kinds])
    legend = alt.Legend(
        orient="bottom", title=None, labelLimit=260, columns=2, symbolStrokeWidth=1, symbolStrokeColor=OUTLINE
    )
    return (
        alt.Chart(marked)
        .mark_point(filled=True, size=max(10, min(90, 48000 // number**2)), opacity=1, stroke=OUTLINE, strokeWidth=1)
        .encode(
            x=alt.X("x:Q", scale=scales["x"]),
            y=alt.Y("y:Q", scale=scales["y"]),
            fill=alt.Fill("kind:N", scale=colors, legend=legend),
            shape=alt.Shape("kind:N", scale=shapes, legend=legend),
            tooltip=alt.value(None),
        )
    )


def canvas_data(cells: Cells, queries: list[str], documents: list[str]) -> dict[str, Any]:
    """Build the JSON-serializable data of the matrix canvas: about 2 bytes per cell, and B shortened texts per side.

    Returns:
        The canvas data: size (B); cosines and kinds (base64 of uint8 (B * B,), row-major; a cosine c as
        round(127.5 * (c + 1)), a kind as index into KINDS); borders ([start, end] of each group of at least two rows);
        ramp (256 colors from -1 to 1).
    """
    borders = group_borders(cells.groups)
    several = borders[borders["end"] - borders["start"] >= 2]
    kinds = cells.kinds()
    return {
        "size": len(cells.rows),
        "cosines": _base64(np.rint(127.5 * (np.clip(cells.similarity, -1, 1) + 1))),
        "kinds": _base64(np.select([kinds == kind for kind in KINDS], range(len(KINDS)))),
        "names": list(KINDS),
        "marks": {kind: KIND_COLORS[kind] for kind in KINDS if kind in KIND_COLORS},
        "borders": several[["start", "end"]].to_numpy().tolist(),
        "ramp": ramp(),
        "queries": [formatting.shorten(text, CANVAS_TEXT_LENGTH) for text in queries],
        "documents": [formatting.shorten(text, CANVAS_TEXT_LENGTH) for text in documents],
    }


def ramp(steps: int = 256) -> list[list[int]]:
    """Interpolate the cosine colors of the theme from -1 to 1, as [red, green, blue] from 0 to 255."""
    stops = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in theme.COSINE], dtype=np.float64)
    positions = np.linspace(0, len(stops) - 1, steps)
    channels = [np.interp(positions, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    result: list[list[int]] = np.rint(np.stack(channels, axis=1)).astype(int).tolist()
    return result


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.astype(np.uint8).tobytes()).decode("ascii")

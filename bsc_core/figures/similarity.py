"""A batch as a matrix of similarities: every query of it beside every document."""

# B pairs in a batch

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Matrix = NDArray[np.float32]
Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]

OWN = "own pair"
OWN_NEGATIVE = "own pair, labelled negative"
NEGATIVE = "in-batch negative"
LABELLED = "labelled negative"
CLOSER = "nearer than the own document"
COLLISION = "in truth a positive"
BY_HAND = "marked as false negative"
MARKED = {
    OWN: theme.POSITIVE,
    OWN_NEGATIVE: theme.REFERENCE,
    CLOSER: theme.HARD_NEGATIVE,
    COLLISION: theme.FALSE_NEGATIVE,
    BY_HAND: theme.BY_HAND,
}
SHAPES = {OWN: "circle", OWN_NEGATIVE: "circle", CLOSER: "triangle-up", COLLISION: "cross", BY_HAND: "diamond"}
TEXT_LENGTH = 280
CELL = "cell"
"""Name of the selection: `event.selection.cell` is a list of {"row": ..., "column": ...}, positions in the batch."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What a batch's matrix holds: similarity (B, B), rows (B,) of the dataset, groups (B,), and what is known.

    positive: bool (B,), whether the own pair is positive. collisions: bool (B, B), crossed pairs that are in truth
    positive. negatives: bool (B, B), pairs that the data label negative. marked: bool (B, B), pairs that a person
    marked as false negatives; None: none.
    """

    similarity: Matrix
    rows: Rows
    groups: Rows
    positive: Mask
    collisions: Mask
    negatives: Mask
    marked: Mask | None = None

    def kinds(self) -> NDArray[np.str_]:
        """(B, B): what each cell is to the loss; the strongest statement wins."""
        closer = (self.similarity > np.diag(self.similarity)[:, None]) & self.positive[:, None]
        kinds = np.where(self.negatives, LABELLED, NEGATIVE).astype("<U40")
        kinds[closer] = CLOSER
        kinds[self.collisions] = COLLISION
        if self.marked is not None:
            kinds[self.marked] = BY_HAND
        np.fill_diagonal(kinds, "")
        return np.where(np.eye(len(self.rows), dtype=np.bool_), np.where(self.positive, OWN, OWN_NEGATIVE), kinds)


def batch_table(cells: Cells) -> pd.DataFrame:
    """One line for each cell of the (B, B) matrix.

    Columns: row, column (positions 0 to B - 1), query_row, document_row (rows of the dataset), group (of the query's
    row), similarity, own (the query's similarity to its own document), kind.
    """
    import pandas as pd

    size = len(cells.rows)
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    return pd.DataFrame(
        {
            "row": down.ravel(),
            "column": across.ravel(),
            "query_row": np.repeat(cells.rows, size),
            "document_row": np.tile(cells.rows, size),
            "group": np.repeat(cells.groups, size),
            "similarity": cells.similarity.astype(np.float64).ravel().round(4),
            "own": np.repeat(np.diag(cells.similarity), size).astype(np.float64).round(4),
            "kind": cells.kinds().ravel(),
        }
    )


def group_borders(groups: Rows) -> pd.DataFrame:
    """The square of each run of equal group ids on the diagonal: group, start and end (positions, end exclusive)."""
    import pandas as pd

    groups = np.asarray(groups)
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.empty(0, dtype=np.int64)
    ends = np.r_[starts[1:], len(groups)].astype(np.int64) if len(groups) else starts
    return pd.DataFrame({"group": groups[starts], "start": starts, "end": ends})


def batch_matrix(
    table: pd.DataFrame, texts: pd.DataFrame, *, hardest: tuple[int, int] | None = None, size: int = 520
) -> alt.LayerChart:
    """The matrix of `batch_table` as a figure: hover shows the two texts, a click selects a cell (see CELL).

    texts: position, query, document. Group squares are drawn in ink; MARKED gives the colours of
    the marks.
    """
    import altair as alt

    number = len(texts)
    shown = texts.assign(
        **{side: [theme.short(text, TEXT_LENGTH) for text in texts[side]] for side in ("query", "document")}
    )
    cells = table.assign(x2=table["column"] + 1, y2=table["row"] + 1)
    x = alt.X("column:Q", title="documents, in the order of the batch", axis=_ticks(number), scale=_span(number))
    y = alt.Y("row:Q", title="queries", axis=_ticks(number), scale=_span(number, reverse=True))
    pick = alt.selection_point(name=CELL, fields=["row", "column"], on="click", empty=False)
    body = (
        alt.Chart(cells)
        .transform_lookup("row", alt.LookupData(shown, "position", ["query"]))
        .transform_lookup("column", alt.LookupData(shown, "position", ["document"]))
        .mark_rect(cursor="pointer")
        .encode(
            x=x,
            x2="x2:Q",
            y=y,
            y2="y2:Q",
            color=alt.Color("similarity:Q", title="cosine", scale=_cosine_scale(), legend=_colour_bar()),
            tooltip=[
                alt.Tooltip("query:N"),
                alt.Tooltip("document:N"),
                alt.Tooltip("similarity:Q", format=".3f"),
                alt.Tooltip("own:Q", title="own document", format=".3f"),
                alt.Tooltip("kind:N"),
            ],
        )
        .add_params(pick)
    )
    layers = [body, _squares(table, number), _marks(cells, number)]
    if hardest is not None:
        layers.append(_outline(hardest, number))
    return alt.layer(*layers).properties(width=size, height=size)


def _span(number: int, *, reverse: bool = False) -> Any:
    import altair as alt

    return alt.Scale(domain=[0, number], nice=False, zero=False, reverse=reverse)


def _ticks(number: int) -> Any:
    import altair as alt

    step = max(1, round(number / 10))
    places = [place + 0.5 for place in range(0, number, step)]  # in the middle of their cells, counted from 1
    return alt.Axis(values=places, labelExpr="round(datum.value + 0.5)", grid=False, ticks=False, domain=False)


def _cosine_scale() -> Any:
    import altair as alt

    return alt.Scale(domain=[-1, 1], range=list(theme.COSINE), interpolate="rgb", clamp=True)


def _colour_bar() -> Any:
    import altair as alt

    return alt.Legend(
        orient="right", gradientLength=160, gradientThickness=10, format=".1f", values=[-1, -0.5, 0, 0.5, 1]
    )


def _squares(table: pd.DataFrame, number: int) -> Any:
    import altair as alt

    groups = table.drop_duplicates("row").sort_values("row")["group"].to_numpy()
    return (
        alt.Chart(group_borders(groups))
        .mark_rect(filled=False, stroke="#1B2530", strokeWidth=1.4, fillOpacity=0)
        .encode(
            x=alt.X("start:Q", scale=_span(number)),
            x2="end:Q",
            y=alt.Y("start:Q", scale=_span(number, reverse=True)),
            y2="end:Q",
        )
    )


def _marks(cells: pd.DataFrame, number: int) -> Any:
    import altair as alt

    marked = cells[cells["kind"].isin(list(MARKED))]
    marked = marked.assign(x=marked["column"] + 0.5, y=marked["row"] + 0.5)
    kinds = [kind for kind in MARKED if (marked["kind"] == kind).any()]
    scale = alt.Scale(domain=kinds, range=[MARKED[kind] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[SHAPES[kind] for kind in kinds])
    legend = alt.Legend(orient="bottom", title=None, labelLimit=260, columns=2, symbolStrokeWidth=0)
    return (
        alt.Chart(marked)
        .mark_point(filled=True, size=max(10, min(90, 48000 // number**2)), opacity=1, strokeWidth=0)
        .encode(
            x=alt.X("x:Q", scale=_span(number)),
            y=alt.Y("y:Q", scale=_span(number, reverse=True)),
            fill=alt.Fill("kind:N", scale=scale, legend=legend),
            shape=alt.Shape("kind:N", scale=shapes, legend=legend),
            tooltip=alt.value(None),
        )
    )


def _outline(cell: tuple[int, int], number: int) -> Any:
    import altair as alt
    import pandas as pd

    row, column = cell
    frame = pd.DataFrame({"x": [column], "x2": [column + 1], "y": [row], "y2": [row + 1]})
    return (
        alt.Chart(frame)
        .mark_rect(filled=False, stroke=theme.HARD_NEGATIVE, strokeWidth=2.5, fillOpacity=0)
        .encode(
            x=alt.X("x:Q", scale=_span(number)), x2="x2:Q", y=alt.Y("y:Q", scale=_span(number, reverse=True)), y2="y2:Q"
        )
    )

"""Ranked results of two models for one query, connected by document."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from bsc_core import formatting
from bsc_core.figures import theme
from bsc_core.figures.theme import plain

LEFT, LINES, RIGHT = (0.0, 0.43), (0.435, 0.565), (0.57, 1.0)  # horizontal domains: left texts, lines, right texts
ROW_HEIGHT = 56
LINES_SHOWN, LINE_LENGTH = 3, 68  # characters; a list of MIN_WIDTH has room for them
MIN_WIDTH = 860  # pixels of the figure
TOOLTIP_LINES, TOOLTIP_LENGTH = 12, 80
MARGIN = 0.6  # on both sides of the lines, for ranks in the other list; 1 is the length of a line


class Hit(NamedTuple):
    """A document in the ranked list of a model, with its cosine similarity and whether it is relevant (gold).

    `other_rank` is its rank in the other list, from 1; None if it is not ranked there. `negative` is whether the data
    labels it as not relevant.
    """

    document: int
    text: str
    score: float
    gold: bool
    other_rank: int | None = None
    negative: bool = False

    @property
    def mark(self) -> str:
        """★ for a relevant document, ✗ for one that is labeled as not relevant, empty without a label."""
        return "★" if self.gold else "✗" if self.negative else ""


def rank_lines(left: Sequence[Hit], right: Sequence[Hit], names: tuple[str, str]) -> go.Figure:
    """Plot two ranked lists (best first), connecting documents that are in both.

    Relevant documents are green with a star. A document in only one list has a dot labeled with its rank in the other.
    """
    figure = go.Figure()
    for hits, axis in ((left, "x"), (right, "x3")):
        for gold in (False, True):
            figure.add_trace(_texts([(rank, hit) for rank, hit in enumerate(hits, 1) if hit.gold == gold], axis, gold))
    right_ranks = {hit.document: rank for rank, hit in enumerate(right, 1)}
    for rank, hit in enumerate(left, 1):
        _connect(figure, hit, (0.0, rank), (1.0, right_ranks.get(hit.document)))
    left_documents = {hit.document for hit in left}
    for rank, hit in enumerate(right, 1):
        if hit.document not in left_documents:
            _connect(figure, hit, (1.0, rank), (0.0, None))
    _lay_out(figure, names, max(len(left), len(right), 1))
    return figure


def _texts(ranked: Sequence[tuple[int, Hit]], axis: str, gold: bool) -> go.Scatter:
    """Return a trace of the relevant or the other texts of one list, at most LINES_SHOWN lines each."""
    return go.Scatter(
        x=[0.0] * len(ranked),
        y=[rank for rank, _ in ranked],
        xaxis=axis,
        yaxis="y",
        mode="text",
        text=[_label(rank, hit) for rank, hit in ranked],
        textposition="middle right",
        textfont={"color": theme.POSITIVE, "size": 13} if gold else {"size": 13},
        customdata=[hit.document for _, hit in ranked],
        hovertext=[_tooltip(hit) for _, hit in ranked],
        hoverinfo="text",
        showlegend=False,
    )


def _label(rank: int, hit: Hit) -> str:
    lines = _lines(f"{rank} {hit.score:.3f} {hit.mark} {hit.text}", LINE_LENGTH, LINES_SHOWN)
    last = formatting.shorten(" ".join(lines[LINES_SHOWN - 1 :]), LINE_LENGTH)
    text = "<br>".join(plain(line) for line in (*lines[: LINES_SHOWN - 1], last) if line)
    return f"<b>{rank}</b>{text.removeprefix(str(rank))}"


def _tooltip(hit: Hit) -> str:
    lines = _lines(hit.text, TOOLTIP_LENGTH, TOOLTIP_LINES)[:TOOLTIP_LINES]
    return "<br>".join([*map(plain, lines), f"cosine {hit.score:.3f}"])


def _lines(text: str, length: int, most: int) -> list[str]:
    """Wrap a text at spaces only; the rest of a text that is much longer than so many lines is left out."""
    start = text.lstrip()[: 4 * most * length]
    return textwrap.wrap(" ".join(start.split()), length, break_long_words=False, break_on_hyphens=False)


def _connect(figure: go.Figure, hit: Hit, start: tuple[float, int], end: tuple[float, int | None]) -> None:
    """Add a line between the lists, or a dot with the other rank, outside the lines, if only one has the document."""
    color = theme.POSITIVE if hit.gold else theme.REFERENCE
    (x, rank), (other_x, other_rank) = start, end
    listed = other_rank is not None
    figure.add_trace(
        go.Scatter(
            x=[x, other_x] if listed else [x],
            y=[rank, other_rank] if listed else [rank],
            xaxis="x2",
            yaxis="y",
            mode="lines+markers" if listed else "markers+text",
            line={"color": color, "width": 3 if hit.gold else 1.5},
            marker={"color": color, "size": 8},
            text=None if listed else [str(hit.other_rank or "?")],
            textposition="middle left" if other_x > x else "middle right",
            hoverinfo="skip",
            showlegend=False,
            cliponaxis=False,
        )
    )


def _lay_out(figure: go.Figure, names: tuple[str, str], rows: int) -> None:
    hidden = {"visible": False, "fixedrange": True}
    titles = [
        {"text": f"<b>{plain(name)}</b>", "x": x, "y": 1, "xref": "paper", "yref": "paper"}
        | {"showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        for name, x in zip(names, (LEFT[0], RIGHT[0]), strict=True)
    ]
    figure.update_layout(
        height=ROW_HEIGHT * rows + 40,
        margin={"l": 0, "r": 0, "t": 32, "b": 4},
        paper_bgcolor="rgba(0, 0, 0, 0)",  # that of the page, also right after the theme has changed
        plot_bgcolor="rgba(0, 0, 0, 0)",
        xaxis={"domain": LEFT, "range": [0, 1], **hidden},
        xaxis2={"domain": LINES, "range": [-MARGIN, 1 + MARGIN], **hidden},
        xaxis3={"domain": RIGHT, "range": [0, 1], **hidden},
        yaxis={"range": [rows + 0.6, 0.4], **hidden},
        annotations=titles,
        dragmode=False,
        hovermode="closest",
        hoverlabel={"align": "left"},
    )

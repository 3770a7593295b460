"""Two models' answers to one query side by side, ranks that moved drawn as lines between them; and hits by cut-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import plotly.graph_objects as go

from bsc_core.figures import theme
from bsc_core.figures.labels import plain

LEFT, LINES, RIGHT = (0.0, 0.41), (0.43, 0.57), (0.59, 1.0)  # the figure's width: texts, lines between, texts
AFTER = "#5B6BC0"  # stands for nothing else; untrained is grey
ROW_HEIGHT = 42
LINE_LENGTH = 62


@dataclass(frozen=True)
class Hit:
    """One document in a model's list: its text, its cosine, whether it is gold, its rank in the other list (from 1)."""

    document: int
    text: str
    score: float
    gold: bool
    other_rank: int | None = None


def moved(rank: int, other_rank: int | None) -> str:
    """How a document at `rank` after stood before: `=`, `▲ 3`, `▼ 2`, or `new` when it was not ranked."""
    if other_rank is None:
        return "new"
    if rank == other_rank:
        return "="
    return f"▲ {other_rank - rank}" if rank < other_rank else f"▼ {rank - other_rank}"


def rank_lines(left: Sequence[Hit], right: Sequence[Hit], names: tuple[str, str]) -> go.Figure:
    """The two lists with a line for each document that is in both; gold in green with a star.

    A document that is in one list only has a stub that leads to its rank in the other.
    """
    figure = go.Figure()
    rows = max(len(left), len(right), 1)
    for hits, axis in ((left, "x"), (right, "x3")):
        for gold in (False, True):
            figure.add_trace(_texts([(rank, hit) for rank, hit in enumerate(hits, 1) if hit.gold == gold], axis, gold))
    places = {hit.document: rank for rank, hit in enumerate(right, 1)}
    for rank, hit in enumerate(left, 1):
        _connect(figure, hit, (0.0, rank), (1.0, places.get(hit.document)), rows)
    shown = {hit.document for hit in left}
    for rank, hit in enumerate(right, 1):
        if hit.document not in shown:
            _connect(figure, hit, (1.0, rank), (0.0, None), rows)
    _lay_out(figure, names, rows)
    return figure


def _texts(ranked: Sequence[tuple[int, Hit]], axis: str, gold: bool) -> go.Scatter:
    """The gold or the other texts of one list, two lines each, cut where the lines between the lists begin."""
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
        hovertext=[f"{_wrapped(hit.text)}<br>cosine {hit.score:.3f}" for _, hit in ranked],
        hoverinfo="text",
        showlegend=False,
    )


def _label(rank: int, hit: Hit) -> str:
    star = "★ " if hit.gold else ""
    lines = _lines(hit.text, LINE_LENGTH)
    text = "<br>".join(plain(line) for line in [lines[0], theme.short(" ".join(lines[1:]), LINE_LENGTH)] if line)
    return f"<b>{rank}</b>  {hit.score:.3f}  {star}{text}"


def _lines(text: str, length: int) -> list[str]:
    """The text in lines of at most `length` characters, cut at spaces; never empty."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > length:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _wrapped(text: str) -> str:
    return "<br>".join(plain(line) for line in _lines(text, 80)[:12])


def _connect(figure: go.Figure, hit: Hit, here: tuple[float, int], there: tuple[float, int | None], rows: int) -> None:
    """A line from one list to the other, or a stub with the rank outside the list that it leads to."""
    colour = theme.POSITIVE if hit.gold else theme.REFERENCE
    listed = there[1] is not None
    end = there if listed else (here[0] + 0.14 * (1 if there[0] > here[0] else -1), here[1])
    drawn = {"color": colour, "width": 3 if hit.gold else 1.5, "dash": "solid" if listed else "dot"}
    marks = {"color": colour, "size": [8, 8 if listed else 0]}
    note = "" if listed else (f"{hit.other_rank}" if hit.other_rank else "?")
    figure.add_trace(
        go.Scatter(
            x=[here[0], end[0]],
            y=[here[1], end[1]],
            xaxis="x2",
            yaxis="y",
            mode="lines+markers+text",
            line=drawn,
            marker=marks,
            text=["", note],
            textposition="middle right" if end[0] > here[0] else "middle left",
            hoverinfo="skip",
            showlegend=False,
            cliponaxis=False,
        )
    )


def _lay_out(figure: go.Figure, names: tuple[str, str], rows: int) -> None:
    hidden = {"visible": False, "fixedrange": True}
    titles = [
        {"text": f"<b>{plain(name)}</b>", "x": place, "y": 1, "xref": "paper", "yref": "paper"}
        | {"showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        for name, place in zip(names, (LEFT[0], RIGHT[0]), strict=True)
    ]
    figure.update_layout(
        height=ROW_HEIGHT * rows + 40,
        margin={"l": 0, "r": 0, "t": 32, "b": 4},
        xaxis={"domain": LEFT, "range": [0, 1], **hidden},
        xaxis2={"domain": LINES, "range": [-0.05, 1.05], **hidden},
        xaxis3={"domain": RIGHT, "range": [0, 1], **hidden},
        yaxis={"range": [rows + 0.6, 0.4], **hidden},
        annotations=titles,
        dragmode=False,
        hovermode="closest",
        hoverlabel={"align": "left"},
    )


def hit_curve(models: Mapping[str, Mapping[str, float | None]]) -> alt.Chart:
    """HasPositive@k of each model by k. models: name -> metrics such as {"has_positive@1": 0.61, ...}."""
    table = hits(models)
    names = list(models)
    colours = [theme.REFERENCE, AFTER][: len(names)]
    dashes = [list(theme.DASHES[number % len(theme.DASHES)]) for number in range(len(names))]
    legend = alt.Legend(orient="bottom", title=None, labelLimit=320, symbolType="stroke", symbolStrokeWidth=3)
    return (
        alt.Chart(alt.Data(values=table))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=50, filled=True))
        .encode(
            x=alt.X("k:O", title="k: documents looked at", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title="share of queries", scale=alt.Scale(zero=False)),
            color=alt.Color("model:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            strokeDash=alt.StrokeDash("model:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
            tooltip=["model:N", "k:O", alt.Tooltip("value:Q", format=".3f")],
        )
        .properties(height=360, title="How often gold is among the first k")
    )


def hits(models: Mapping[str, Mapping[str, float | None]]) -> list[dict[str, Any]]:
    """One line for each model and cut-off: model, k, and value, its HasPositive@k."""
    return [
        {"model": name, "k": int(key.partition("@")[2]), "value": value}
        for name, metrics in models.items()
        for key, value in metrics.items()
        if key.startswith("has_positive@") and value is not None
    ]

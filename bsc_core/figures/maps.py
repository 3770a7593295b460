"""Maps of texts, before and after side by side in one frame, with one selection shown in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bsc_core.figures import theme
from bsc_core.figures.labels import plain

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]

HEIGHT = 460
EDGE, GAP = 0.008, 0.02  # shares of the width left free at the sides and between maps
PALETTE = theme.CATEGORIES[:7]
SYMBOLS = ("circle", "diamond")
OTHER = "other"
SIDES = {"query": theme.QUERY, "document": theme.DOCUMENT, "both": theme.FALSE_NEGATIVE}
LABELS = {"positive": theme.POSITIVE, "negative": theme.HARD_NEGATIVE, "not labelled": theme.REFERENCE}


@dataclass(frozen=True)
class Colouring:
    """One category for each text of the map, and the colour of each category in the order of the legend."""

    values: Sequence[str]
    colours: dict[str, str]

    def mark(self, name: str) -> dict[str, str]:
        """The colour and symbol of a category."""
        place = list(self.colours).index(name) // len(PALETTE)
        symbol = SYMBOLS[place] if place < len(SYMBOLS) and name != OTHER else SYMBOLS[0]
        return {"color": self.colours[name], "symbol": symbol}


def colouring(values: Sequence[str], fixed: dict[str, str] | None = None) -> Colouring:
    """Give each category a colour: those of `fixed`, else the palette by falling size; past fourteen, grey "other".

    The second seven have the colours of the first again, and are drawn as diamonds.
    """
    if fixed is not None:
        return Colouring(values, {name: colour for name, colour in fixed.items() if name in set(values)})
    names, sizes = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
    ordered = [str(names[place]) for place in np.lexsort((names, -sizes))]
    colours = dict(zip(ordered, PALETTE * len(SYMBOLS), strict=False))
    if len(ordered) > len(colours):
        values = [value if value in colours else OTHER for value in values]
        colours[OTHER] = theme.REFERENCE
    return Colouring(values, colours)


def text_map(
    maps: Sequence[Floats], names: Sequence[str], *, ids: Rows, texts: Sequence[str], colours: Colouring, picked: Rows
) -> go.Figure:
    """One scatter for each map, zooming together. maps: (N, 2) each; ids: (N,) text ids, returned as `customdata`.

    picked: ids drawn in full colour and larger in every map while the rest fades; empty: all are drawn alike.
    """
    titles = [plain(name) for name in names]
    figure = make_subplots(rows=1, cols=len(maps), subplot_titles=titles)
    hover = np.array([plain(theme.short(text, 90)) for text in texts], dtype=object)
    values = np.array(colours.values, dtype=object)
    chosen = np.isin(ids, picked)
    for column, points in enumerate(maps, 1):
        for name in colours.colours:
            for part, strong in _parts(values == name, chosen):
                trace = _dots(points[part], ids[part], hover[part], name, strong, bool(chosen.any()))
                trace.update(marker=colours.mark(name))
                figure.add_trace(trace, row=1, col=column)
    for name in colours.colours:  # a legend that keeps its colours while the map fades
        figure.add_trace(_legend_entry(name, colours.mark(name)), row=1, col=1)
    _one_frame(figure, maps, 20 * (1 + len(colours.colours) // 4))
    return figure


def _parts(member: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> list[tuple[npt.NDArray[np.bool_], bool]]:
    """The unchosen and the chosen members, the chosen drawn last and so on top; without a choice, all at once."""
    if not chosen.any():
        return [(member, True)]
    return [(member & ~chosen, False), (member & chosen, True)]


def _dots(points: Floats, ids: Rows, hover: npt.NDArray[Any], name: str, strong: bool, picking: bool) -> go.Scattergl:
    size = 10 if picking and strong else 7
    return go.Scattergl(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers",
        name=plain(name),
        legendgroup=name,
        customdata=ids,
        text=hover,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
        marker={"size": size, "opacity": 0.8 if strong else 0.14, "line": {"width": 0}},
    )


def _legend_entry(name: str, mark: dict[str, str]) -> go.Scattergl:
    marker = {**mark, "size": 8}
    return go.Scattergl(x=[None], y=[None], mode="markers", name=plain(name), legendgroup=name, marker=marker)


def _one_frame(figure: go.Figure, maps: Sequence[Floats], legend: int) -> None:
    """The same range on every map, moving together; no ticks, since units mean nothing. legend: its height, pixels."""
    every = np.concatenate(list(maps)) if maps else np.zeros((1, 2), np.float32)
    low, high = every.min(axis=0), every.max(axis=0)
    margin = 0.04 * np.maximum(high - low, 1e-6)
    hidden: dict[str, Any] = {
        "showticklabels": False,
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "mirror": True,
    }
    hidden |= {"linecolor": "rgba(138,143,152,0.4)", "ticks": ""}
    figure.update_xaxes(range=[low[0] - margin[0], high[0] + margin[0]], matches="x", **hidden)
    figure.update_yaxes(range=[low[1] - margin[1], high[1] + margin[1]], matches="y", **hidden)
    width = (1 - EDGE) / len(maps)
    for column in range(len(maps)):  # a little inside the figure, whose edge would cut the outer lines off
        begin = EDGE / 2 + column * width + (GAP / 2 if column else 0)
        end = EDGE / 2 + (column + 1) * width - (GAP / 2 if column + 1 < len(maps) else 0)
        figure.update_xaxes(domain=[begin, end], row=1, col=column + 1)
        figure.layout.annotations[column].update(x=begin, xanchor="left", yshift=8)
    figure.update_layout(
        height=HEIGHT + legend,
        margin={"l": 8, "r": 8, "t": 36, "b": 28 + legend, "autoexpand": False},
        dragmode="lasso",
        legend={"orientation": "h", "y": -0.03, "yanchor": "top", "x": 0, "itemsizing": "constant"},
        hoverlabel={"align": "left"},
    )

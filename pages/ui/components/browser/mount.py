"""Components of JavaScript and CSS files; each script can use the functions of dom.js."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.figures import theme
from bsc_core.figures.evaluation.maps import unpack

HERE = Path(__file__).parent
COLORS = {
    "query": theme.QUERY,
    "document": theme.DOCUMENT,
    "positive": theme.POSITIVE,
    "negative": theme.HARD_NEGATIVE,
    "repeated": theme.FALSE_NEGATIVE,
}
"""Colors of the theme that the CSS files use as variables, such as `var(--positive)`."""


def mount(name: str, root: str, *scripts: Path) -> Callable[..., Any]:
    """Register a component and return the function that draws it.

    Args:
        name: Name of the component in the page.
        root: CSS class of the element that the component fills.
        scripts: JavaScript files; the last one has the default export. A CSS file of the same name is included.
    """
    styles = [path for script in scripts if (path := script.with_suffix(".css")).is_file()]
    variables = " ".join(f"--{meaning}: {color};" for meaning, color in COLORS.items())
    return st.components.v2.component(
        name,
        html=f'<div class="{root}"></div>',
        css="\n".join([f".{root} {{ {variables} }}", *(path.read_text(encoding="utf-8") for path in styles)]),
        js="\n".join(path.read_text(encoding="utf-8") for path in (HERE / "dom.js", *scripts)),
    )


def pack_matrix(matrix: np.ndarray) -> dict[str, Any]:
    """Return a matrix (N, D) for `rowsOf` in dom.js; its numbers are exact."""
    single = matrix.astype("<f4")
    kind, values = ("float32", single) if (single == matrix).all() else ("float64", matrix.astype("<f8"))
    return {"type": kind, "columns": matrix.shape[1], "bytes": base64.b64encode(values.tobytes()).decode()}


_MATRIX = mount("bsc_lab_batch_matrix", "batch", HERE / "canvas.js", HERE / "heatmap.js")
_CLICKS = mount("bsc_lab_clicks", "clicks", HERE / "history.js", HERE / "clicks.js")
_MAP_SCRIPTS = ("canvas.js", "scatter_raster.js", "scatter_slider.js", "scatter.js")
_MAP = mount("bsc_lab_text_map", "map", *(HERE / name for name in _MAP_SCRIPTS))
_MENU = mount("bsc_lab_figure_menu", "menu", HERE / "figure_menu.js")
_PROGRESS = mount("bsc_lab_lesson_progress", "progress", HERE / "lesson_progress.js")
_HISTOGRAMS = mount("bsc_lab_histograms", "histograms", HERE / "histograms.js")


def range_histograms(columns: list[dict[str, Any]], *, key: str, on_range: Callable[[], None]) -> None:
    """Draw small histograms side by side, of which a range of bins is selected with the mouse or the arrow keys.

    A selection sets `st.session_state[key]["range"]` to a dict with `name`, `first` and `last` bin.

    Args:
        columns: Outputs of `Histogram.canvas_data`.
        key: Session key of the component.
        on_range: Called when a range is selected.
    """
    _HISTOGRAMS(data={"columns": columns}, key=key, on_range_change=on_range)


def figure_menu(frame: str, *, name: str, title: str, key: str) -> None:
    """Draw the buttons that save the picture of a figure.

    Args:
        frame: Key of the container with the figure.
        name: Name of the files.
        title: Drawn above the picture.
        key: Session key of the component.
    """
    css_class = f"st-key-{re.sub('[^a-zA-Z0-9_-]', '-', frame)}"  # as Streamlit names it
    _MENU(data={"frame": css_class, "name": name, "title": title}, key=key)


def acknowledge_clicks() -> None:
    """Show at once, before the server answers, that a click on a button or a search was received, on all pages."""
    _CLICKS(key="clicks")


def lesson_progress(
    done: list[str], missed: list[str], *, forget: bool, key: str, on_stored: Callable[[], None]
) -> None:
    """Keep the progress of the lessons in the browser; it has no visible element.

    If the browser has stored finished lessons that are not among `done`, its progress becomes
    `st.session_state[key]["stored"]`, a dict with `done` and `missed`.

    Args:
        done: Names of the finished lessons.
        missed: Those whose first guess was wrong.
        forget: Whether to delete what the browser has stored.
        key: Session key of the component.
        on_stored: Called when there is a stored progress.
    """
    _PROGRESS(data={"done": done, "missed": missed, "forget": forget}, key=key, on_stored_change=on_stored)


def matrix_canvas(data: dict[str, Any], *, key: str, on_pin: Callable[[], None]) -> None:
    """Draw a similarity matrix on a canvas: one image that is zoomed and pinned without a rerun.

    A click, or Enter on the cell selected with the arrow keys, sets `st.session_state[key]["cell"]` to [row, column].

    Args:
        data: Output of `bsc_core.figures.batches.similarity.canvas_data`, with `label` and `pinned`, [row, column] or
            None.
        key: Session key of the component.
        on_pin: Called when a cell is pinned.
    """
    _MATRIX(data=data, key=key, on_cell_change=on_pin)


def map_canvas(
    picture: dict[str, Any], texts: pd.DataFrame, *, key: str, label: str, moving: bool
) -> np.ndarray | None:
    """Draw maps on a canvas, with texts as pixels that are moved, zoomed and selected without a rerun.

    Args:
        picture: Output of `figures.evaluation.maps.map_picture`.
        texts: Table whose column `text` is shown in the tooltip.
        key: Session key of the component.
        label: Description of the maps for screen readers.
        moving: Draw one map whose points move from the first to the last frame, instead of all maps side by side.

    Returns:
        The indices, 0 to N - 1, of newly selected texts; None when nothing was selected.
    """
    start = len(picture["names"]) - 1 if moving else 0
    data = {**picture, "texts": texts, "label": label, "moving": moving, "start": start}
    result = _MAP(data=data, key=key, on_selected_change=lambda: None)
    selected = result.get("selected") if result else None
    return unpack(selected["mask"], picture["count"]) if selected and selected["id"] == picture["id"] else None

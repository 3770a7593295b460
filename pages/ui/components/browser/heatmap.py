"""The matrix of a large batch on a canvas: one image that is zoomed and pinned without a rerun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pages.ui.components.browser.mount import HERE, mount

COMPONENT = mount("bsc_lab_batch_matrix", "batch", HERE / "canvas.js", HERE / "heatmap.js")


def draw(data: dict[str, Any], *, key: str, on_pin: Callable[[], None]) -> None:
    """Draw the matrix.

    data: see `bsc_core.figures.batches.similarity.canvas_data`, with `pinned` [row, column] and `label`.

    A click, or Enter on the cell selected with the arrow keys, sets `st.session_state[key]["cell"]` to [row, column].
    """
    COMPONENT(data=data, key=key, on_cell_change=on_pin)

"""The matrix of a large batch on a canvas: thousands of cells drawn as one image, zoomed and pinned without a wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

NAME = "bsc_lab_batch_matrix"
HERE = Path(__file__).parent
COMPONENT = st.components.v2.component(
    NAME,
    html='<div class="batch"></div>',
    css=(HERE / "matrix_canvas.css").read_text(encoding="utf-8"),
    js=(HERE / "matrix_canvas.js").read_text(encoding="utf-8"),
)


def draw(data: dict[str, Any], *, key: str, on_pin: Callable[[], None]) -> None:
    """Show the matrix. data: see `bsc_core.figures.matrix_pixels`, with `picked` [row, column] and `label`.

    A click, or Enter on the cell that the arrow keys chose, sets `st.session_state[key]["cell"]` to [row, column].
    """
    COMPONENT(data=data, key=key, on_cell_change=on_pin)

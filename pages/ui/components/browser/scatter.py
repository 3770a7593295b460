"""Maps on a canvas: many texts drawn as pixels, moved, zoomed and selected without a rerun."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bsc_core.figures.evaluation.maps import unpack
from pages.ui.components.browser.mount import HERE, mount

SCRIPTS = ("canvas.js", "scatter_raster.js", "scatter_slider.js", "scatter.js")
COMPONENT = mount("bsc_lab_text_map", "map", *(HERE / name for name in SCRIPTS))


def draw(picture: dict[str, Any], texts: pd.DataFrame, *, key: str, label: str, moving: bool) -> np.ndarray | None:
    """Draw the maps and return the indices, 0 to N - 1, of newly selected texts; None when nothing was selected.

    picture: see `figures.evaluation.maps.map_picture`. texts: shown in the tooltip, in column `text`. moving: one map
    whose points move from the first to the last frame, instead of all maps side by side.
    """
    start = len(picture["names"]) - 1 if moving else 0
    data = {**picture, "texts": texts, "label": label, "moving": moving, "start": start}
    result = COMPONENT(data=data, key=key, on_selected_change=lambda: None)
    selected = result.get("selected") if result else None
    return unpack(selected["mask"], picture["count"]) if selected and selected["id"] == picture["id"] else None

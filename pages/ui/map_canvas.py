"""Maps on a canvas: many texts drawn as pixels, moved, zoomed and lassoed without a wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.figures import theme
from bsc_core.figures.maps import TEXT_LENGTH, unpack

NAME = "bsc_lab_text_map"
HERE = Path(__file__).parent
COMPONENT = st.components.v2.component(
    NAME,
    html='<div class="map"></div>',
    css=(HERE / "map_canvas.css").read_text(encoding="utf-8"),
    js="\n".join(
        (HERE / name).read_text(encoding="utf-8") for name in ("map_raster.js", "map_slider.js", "map_canvas.js")
    ),
)


def draw(picture: dict[str, Any], texts: pd.DataFrame, *, key: str, label: str, moving: bool) -> np.ndarray | None:
    """Show the maps; the places 0 to N - 1 picked this time, None when nothing was.

    picture: see `bsc_core.figures.maps.map_picture`. texts: `hover_texts`. moving: one map whose points go from the
    first to the last, in place of all maps side by side.
    """
    start = len(picture["names"]) - 1 if moving else 0
    data = {**picture, "texts": texts, "label": label, "moving": moving, "start": start}
    found = COMPONENT(data=data, key=key, on_picked_change=lambda: None)
    chosen = found.get("picked") if found else None
    return unpack(chosen["mask"], picture["count"]) if chosen and chosen["id"] == picture["id"] else None


def hover_texts(texts: list[str]) -> pd.DataFrame:
    """The texts as the canvas tells them: on one line, cut short."""
    return pd.DataFrame({"text": [theme.short(text, TEXT_LENGTH) for text in texts]})

"""Optional display of the map in Embedding Atlas, with density, labels, search and cross-filtering."""

from importlib.util import find_spec

import numpy as np
import streamlit as st

from bsc_core.figures.evaluation import maps
from pages.ui.embeddings.frames import MapData
from pages.ui.embeddings.map_task import Maps
from pages.ui.embeddings.selection import NEIGHBORS

INSTALL_HINT = "Run `pip install 'bsc-lab[atlas]'` to show this map in Embedding Atlas with density, labels and search."
MAX_TEXTS_WITH_NEIGHBORS = 20_000


def draw(data: MapData, layout: Maps, colorings: list[maps.Coloring]) -> None:
    """Draw a switch that shows the last map in Embedding Atlas, or how to install it."""
    if find_spec("embedding_atlas") is None:
        st.caption(INSTALL_HINT)
        return
    about = (
        "Density, labels of regions, search and cross-filtering. The texts stay in your browser, but Embedding Atlas "
        "loads its query engine from cdn.jsdelivr.net: without a connection it stays empty."
    )
    if st.toggle("Show in Embedding Atlas", key="embeddings.atlas", help=about):
        _draw_atlas(data, layout, colorings)


def _draw_atlas(data: MapData, layout: Maps, colorings: list[maps.Coloring]) -> None:
    import pandas as pd
    from embedding_atlas.streamlit import embedding_atlas

    frame, points = data.frames[-1], layout.points[-1]
    table = pd.DataFrame(
        {
            "x": points[:, 0],
            "y": points[:, 1],
            "text": [data.dataset.texts[row] for row in layout.rows.tolist()],
            "color": list(colorings[-1].values),
        }
    )
    neighbors = None
    if len(layout.rows) <= MAX_TEXTS_WITH_NEIGHBORS:
        table["neighbors"] = _neighbors(data, layout.rows)
        neighbors = "neighbors"
    st.caption(f"The map {frame.name.lower()}. Its search and filters do not affect the table above.")
    key = f"embeddings.atlas.{data.key}.{len(layout.rows)}"
    embedding_atlas(table, x="x", y="y", text="text", neighbors=neighbors, key=key)


def _neighbors(data: MapData, rows: np.ndarray) -> list[dict[str, list[float]]]:
    """Return the nearest shown texts of each text, as table positions with cosine distances."""
    from bsc_core.neighbors import nearest_others

    ids, cosines = nearest_others(data.frames[-1].vectors(rows), np.arange(len(rows)), NEIGHBORS)
    return [{"ids": one.tolist(), "distances": (1 - cosine).tolist()} for one, cosine in zip(ids, cosines, strict=True)]

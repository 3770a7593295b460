"""The map in Embedding Atlas, where it is installed: density, labels of regions, search and cross-filtering."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import streamlit as st

from bsc_core.figures import maps
from pages.ui.map_frames import View
from pages.ui.map_job import Maps
from pages.ui.map_texts import NEIGHBOURS

EXTRA = "Embedding Atlas shows the same map with density, labels and search; `pip install 'bsc-lab[atlas]'` brings it."
MOST_NEIGHBOURS = 20_000  # texts up to which each takes its neighbours along


def offer(view: View, made: Maps, tints: list[maps.Colouring]) -> None:
    """A switch that shows the last map in Embedding Atlas; where it is not installed, how to bring it."""
    if find_spec("embedding_atlas") is None:
        st.caption(EXTRA)
        return
    help_text = (
        "Density, labels of regions, search and cross-filtering. The texts stay in the browser, but Embedding Atlas "
        "loads its query engine from cdn.jsdelivr.net: without a connection its frame stays empty."
    )
    if st.toggle("Look in Embedding Atlas", key="embeddings.atlas", help=help_text):
        _draw(view, made, tints)


def _draw(view: View, made: Maps, tints: list[maps.Colouring]) -> None:
    import pandas as pd
    from embedding_atlas.streamlit import embedding_atlas

    last, points = view.frames[-1], made.points[-1]
    table = pd.DataFrame(
        {
            "x": points[:, 0],
            "y": points[:, 1],
            "text": [view.data.texts[row] for row in made.rows.tolist()],
            "colour": list(tints[-1].values),
        }
    )
    neighbours = None
    if len(made.rows) <= MOST_NEIGHBOURS:
        table["neighbours"] = _neighbours(view, made.rows)
        neighbours = "neighbours"
    st.caption(f"The map of {last.name.lower()}; its own search and filters do not change the table above.")
    embedding_atlas(
        table, x="x", y="y", text="text", neighbors=neighbours, key=f"embeddings.atlas.{view.key}.{len(made.rows)}"
    )


def _neighbours(view: View, rows: np.ndarray) -> list[dict[str, list[float]]]:
    """The nearest of the texts that are drawn, by their places in the table, with cosine distances."""
    from bsc_core.projection import nearest

    ids, cosines = nearest(view.frames[-1].at(rows), np.arange(len(rows)), NEIGHBOURS)
    return [{"ids": one.tolist(), "distances": (1 - own).tolist()} for one, own in zip(ids, cosines, strict=True)]

"""Embeddings: the texts as a map before and after training, in one frame, with one selection."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from pages.ui import frame, map_view, show, text_facts, words

context = frame.page("Embeddings", "Which texts does the encoder hold to be close, and what did training move?")

with show.calm_errors():
    view = map_view.view_of(context)
    if view is None:
        about = "This run has not measured its encoder yet. Its map opens as soon as it has."
        show.empty(about, step="Watch the run", key="embeddings.wait", do=lambda: frame.go("runs", run=context.run_id))
        st.stop()
    colourings = text_facts.colourings(view.data)
    rows = map_view.shown_rows(view.data)
    picked_key = f"embeddings.picked.{view.key}"

    method_place, colour_place, find_place = show.columns(3, least=168)
    about = words.help_text("umap")
    method = method_place.segmented_control(
        "Map",
        ["umap", "pca"],
        format_func=str.upper,
        key="embeddings.method",
        default="umap",
        required=True,
        help=about,
    )
    colour = colour_place.selectbox("Colour by", list(colourings), format_func=str.capitalize, key="embeddings.colour")
    wanted = find_place.text_input("Find texts", key="embeddings.find", placeholder="or draw a lasso on the map")

    picked = (
        map_view.find(view.data, rows, wanted) if wanted else st.session_state.get(picked_key, np.empty(0, np.int32))
    )
    made = map_view.made(view, rows, method)
    lassoed = map_view.picture(view, made, colourings[colour], picked)
    st.caption(map_view.trust_line(view, made))
    show.table_download(map_view.table(view, made), name="map", key=f"embeddings.data.{view.key}")
    if len(lassoed) and not wanted:
        st.session_state[picked_key] = lassoed
        st.rerun()

    if len(picked):
        if not wanted and st.button("Show all again", key="embeddings.clear", icon=":material/deselect:"):
            del st.session_state[picked_key]
            st.rerun()
        chosen = map_view.texts_table(view, picked, f"{theme.many(len(picked), 'text')} picked")
    elif len(view.vectors) == 2:
        chosen = map_view.texts_table(view, map_view.most_changed(view, rows), "Texts whose neighbours changed most")
    else:
        chosen = None
        st.caption("Draw a lasso on the map, or find texts by their words, to list them with their nearest neighbours.")
    if chosen is not None:
        map_view.neighbours(view, chosen)
    if context.run_id is None:
        frame.next_step("Train it and see what moves", "train", key="embeddings.train")
    else:
        frame.next_step("Search with it", "retrieval", key="embeddings.retrieval")

"""Embeddings: the texts as a map before and after training, in one frame, with one selection."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from pages.ui import frame, map_atlas, map_frames, map_shape, map_texts, map_view, show

NOTHING = np.empty(0, dtype=np.int32)

context = frame.page("Embeddings", "Which texts does the encoder hold to be close, and what did training move?")

with show.calm_errors():
    view = map_frames.view_of(context)
    if view is None:
        about = "This run has not measured its encoder yet. Its map opens as soon as it has."
        show.empty(about, step="Watch the run", key="embeddings.wait", do=lambda: frame.go("runs", run=context.run_id))
        st.stop()
    view, method, moves = map_view.choose(view)
    rows = view.texts(st.session_state["embeddings.most"])
    wanted, picked_key = st.session_state["embeddings.find"], f"embeddings.picked.{view.key}"
    picked = map_texts.find(view.data, rows, wanted) if wanted else st.session_state.get(picked_key, NOTHING)
    picked = np.intersect1d(picked, rows)
    several = len(view.frames) > 1
    changed = map_texts.most_changed(view, rows) if several else NOTHING

    made = map_view.made(view, rows, method)
    map_place, shape_place = map_shape.beside()
    with map_place:
        tints = map_view.colours(view, st.session_state["embeddings.colour"], rows)
        trails = (picked if len(picked) else changed) if moves else NOTHING
        lassoed = map_view.picture(view, made, tints, picked=picked, trails=trails, moves=moves)
        st.caption(map_view.trust_line(view, made))
        show.table_download(lambda: map_view.table(view, made), name="map", key=f"embeddings.data.{view.key}")
    with shape_place:
        map_shape.draw(view, rows)
    if len(lassoed) and not wanted:
        st.session_state[picked_key] = lassoed
        st.rerun()

    if len(picked):
        if not wanted and st.button("Show all again", key="embeddings.clear", icon=":material/deselect:"):
            del st.session_state[picked_key]
            st.rerun()
        chosen = map_texts.texts_table(view, picked, f"{theme.many(len(picked), 'text')} picked")
    elif several:
        chosen = map_texts.texts_table(view, changed, "Texts whose neighbours changed most")
    else:
        chosen = None
        st.caption("Draw a lasso on the map, or find texts by their words, to list them with their nearest neighbours.")
    if chosen is not None:
        map_texts.neighbours(view, chosen)
    map_atlas.offer(view, made, tints)
    if context.run_id is None:
        frame.next_step("Train it and see what moves", "train", key="embeddings.train")
    else:
        frame.next_step("Search with it", "retrieval", key="embeddings.retrieval")

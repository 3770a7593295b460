"""Embeddings page: maps of the texts before and after training."""

import numpy as np
import streamlit as st

from pages.ui.components import data_cache, display, page_layout, run_data
from pages.ui.embeddings import frames, geometry, map_view, pair_matrix, selection

context = page_layout.setup_page(
    "Embeddings",
    "Which texts are close, and what did training move?",
    parameters=(*map_view.PARAMETERS, *selection.PARAMETERS),
)

with display.show_errors():
    data = frames.load_map_data(context)
    if data is None:
        run = data_cache.run_store().get(context.run_id or "")
        text = run_data.no_embeddings_text(run, "Its map appears here")
        page_layout.empty_state(text, "Open the run", "runs", key="embeddings.wait", run=run.id)
        run_data.rerun_with_embeddings(run)
        st.stop()
    data, method, animated = map_view.select_view(data)
    rows = data.sample(map_view.max_texts(data))
    words, lassoed = st.session_state["embeddings.find"].strip(), np.intersect1d(selection.load(data), rows)
    selected = selection.find_texts(data.dataset, rows, words) if words else lassoed
    if words:
        st.caption(display.escaped(selection.found_sentence(selected, words)))
    selected = np.intersect1d(selected, lassoed) if words and len(lassoed) else selected
    several = len(data.frames) > 1
    changed = selection.most_changed_texts(data, rows) if several else selection.NO_TEXTS
    is_selected = bool(words or len(lassoed))
    listed = selected if is_selected else changed
    text_id = int(selected[0]) if len(selected) == 1 else selection.selected_text(data, listed)
    marked = selected if len(selected) or text_id is None else np.array([text_id], dtype=np.int32)

    clicked = pair_matrix.load_pair(data, rows)
    layout, umap_folder = map_view.load_maps(data, rows, method, in_use=len(clicked) > 0 or len(marked) > 0)
    colorings = map_view.color_texts(data, st.session_state["embeddings.color"], rows)
    trails = listed if animated else selection.NO_TEXTS
    shows_pairs = "pairs" in st.session_state[map_view.SHOW] and not len(marked)
    ten = geometry.ten_pairs(data, rows) if shows_pairs else geometry.NO_PAIRS
    neighbors = [] if text_id is None else selection.find_neighbors(data, text_id)
    pairs, pairs_name = ten, "texts of a positive pair"
    if text_id is not None:
        nearest, _ = neighbors[-1]  # for the last model
        pairs = selection.neighbor_lines(text_id, nearest, rows)
        pairs_name = "nearest neighbors of the selected text"
    if len(clicked):
        pairs, pairs_name = clicked, "texts of the selected cell"
    number, change = len(selected) if is_selected else None, geometry.distance_change(data, rows)
    if number == 0:  # above the map, which then looks like one without a selection
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{display.escaped(selection.selected_title(selected, words, lassoed))}**", width="content")
            selection.draw_clear_buttons(data, words, lassoed)
    with map_view.frame(data, layout, method, umap_folder, number_selected=number, change=change):
        drawn = map_view.draw_maps(
            data, layout, colorings, selected=marked, trails=trails, pairs=(pairs, pairs_name), animated=animated
        )
    if len(drawn):
        selection.save(data, drawn)
        st.rerun()
    map_view.draw_notes(data, layout, umap_folder)
    if len(clicked):
        st.caption(pair_matrix.pair_sentence(data, clicked))
    elif len(ten):
        st.caption(geometry.pairs_sentence(data, rows, ten))

    if len(selected):
        selection.draw_texts(data, selected, selection.selected_title(selected, words, lassoed))
        selection.draw_clear_buttons(data, words, lassoed)
    if several and not is_selected:
        selection.draw_texts(data, changed, selection.changed_title(data, rows))
    elif not is_selected:
        st.caption("Draw a lasso on the map, or search for words, to list texts with their nearest neighbors.")
    if text_id is not None:
        selection.draw_neighbors(data, text_id, neighbors)
    if len(selected) > 1:
        pair_matrix.draw(data, selected, clicked)
    geometry.draw(data, rows)
    with page_layout.action_bar():
        if context.run_id is None:
            page_layout.next_step_button("Train a run on this dataset", "train", key="embeddings.train")
        else:
            page_layout.next_step_button("Search with this model", "retrieval", key="embeddings.retrieval")

"""Retrieval: one query, two models, and what moved; then how often gold is found, and where it is not."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from bsc_core.figures import ranks
from pages.ui import failing, frame, run_data, searching, show, store

context = frame.page("Retrieval", "What does the model find, and what did training change in it?")

with show.calm_errors():
    run = store.run_store().get(context.run_id) if context.run_id else None
    if run is None:
        words = "No run is chosen in the bar above. Searching before and after training stands here once one is."
        show.empty(words, step="Train on this dataset", key="retrieval.none", do=lambda: frame.go("train"))
        st.stop()
    search_place, *model_places = show.columns(3, least=168)
    words = "Type a query, or choose a failure below"
    query = search_place.text_input("Search", key=searching.QUERY, type="search", placeholder=words)
    models = searching.pick_models(run, model_places)
    if models is None:
        words = "This run has not measured its encoder yet. The search opens as soon as it has."
        show.empty(words, step="Watch the run", key="retrieval.wait", do=lambda: frame.go("runs", run=run.id))
        st.stop()

    data = run_data.rows_of(run)
    split = "dev" if data.test is None else st.segmented_control("Queries", ["dev", "test"], default="dev")
    search = searching.searched(data, models, split)
    if query.strip():
        searching.answer(search, query)
    else:
        example = searching.typical(search)
        show.text("An example, the query whose gold moved most", example)
        searching.answer(search, example)

    searching.metric_cards(search)
    failing.table(search, split)
    hits = {name: result.metrics for name, result in zip(searching.names(search), search.results, strict=True)}
    show.figure(ranks.hit_curve(hits), alt="Share of queries with gold among the first k", name="hits")
    frame.next_step("See the map", "embeddings", key="retrieval.embeddings")

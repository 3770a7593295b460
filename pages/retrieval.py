"""Retrieval: one query, two models, and what moved; then how sure the metrics are, and where gold is missed."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import (
    failing,
    frame,
    metric_cards,
    own_queries,
    run_data,
    score_pictures,
    searching,
    show,
    store,
    ten_sentences,
)

context = frame.page("Retrieval", "What does the model find, and what did training change in it?")

with show.calm_errors():
    run = store.run_store().get(context.run_id) if context.run_id else None
    if run is None:
        words = "No run is chosen in the bar above. Searching before and after training stands here once one is."
        show.empty(words, step="Train on this dataset", key="retrieval.none", do=lambda: frame.go("train"))
        st.stop()
    search_place, *model_places = show.columns(3, least=168)
    words = "Type a query, or choose a failure below"
    query = search_place.text_input(
        "Search", key=searching.QUERY, type="search", placeholder=words, bind="query-params"
    )
    models = searching.pick_models(run, model_places)
    if models is None:
        words = "This run has not measured its encoder yet. The search opens as soon as it has."
        show.empty(words, step="Watch the run", key="retrieval.wait", do=lambda: frame.go("runs", run=run.id))
        st.stop()

    data = run_data.rows_of(run)
    split = (
        "dev" if data.test is None else st.segmented_control("Queries", ["dev", "test"], default="dev", required=True)
    )
    search = searching.searched(data, models, split)
    searching.picture(search, query)
    shown = metric_cards.main(models, split)
    parts = {
        "Where it fails": lambda: failing.table(search, split),
        "Your own queries": lambda: own_queries.draw(search),
        "Scores and labels": lambda: score_pictures.draw(search, split, with_cards=shown is not metric_cards.SCORED),
        "Gold by cut-off": lambda: score_pictures.hits(search),
        "Ten sentences": lambda: ten_sentences.draw(search),
    }
    tabs = st.tabs(list(parts), on_change="rerun", key="retrieval.part", bind="query-params")
    for tab, draw in zip(tabs, parts.values(), strict=True):
        if tab.open:
            with tab, show.calm_errors(stop=False):
                draw()
    frame.next_step("See the map", "embeddings", key="retrieval.embeddings")

"""Retrieval page: one query, one or two models, their metrics and errors."""

import streamlit as st

from pages.ui.components import data_cache, display, page_layout, run_data, url
from pages.ui.retrieval import calibration, custom_queries, errors, metric_cards, results, search, ten_sentences

context = page_layout.setup_page(
    "Retrieval", "Which documents does a model find, and where does it fail?", parameters=search.PARAMETERS
)

with display.show_errors():
    run = data_cache.run_store().get(context.run_id) if context.run_id else None
    search_cell, *model_cells = display.columns(2 if run is None else 3, min_width=168)
    query = search.query_box(search_cell)
    models = search.select_models(run, model_cells) if run else search.select_encoders(context, model_cells[0])
    if models is None:
        text = run_data.no_embeddings_text(run, "Search results appear here")
        page_layout.empty_state(text, "Open the run", "runs", key="retrieval.wait", run=run.id)
        run_data.rerun_with_embeddings(run)
        st.stop()

    if any(isinstance(model, run_data.Model) and model.when == run_data.SO_FAR for model in models):
        st.caption("The run is still training. The results are those of its best epoch so far and change with it.")
    data = run_data.load_splits(run) if run else data_cache.dataset_splits(context.dataset_key)
    splits = ["dev"] if data.test is None else ["dev", "test"]
    split = splits[0]
    if len(splits) > 1:
        split = st.segmented_control("Queries", splits, default=split, required=True, **url.bound(search.SPLIT, splits))
    searched = search.search_split(data, models, split)
    cards, tabs = st.container(), st.container()
    if query.strip():  # its results come first
        cards, tabs = tabs, cards
    with cards:
        shown = metric_cards.draw(searched)
    parts = {
        search.RESULTS: lambda: results.draw(searched, query, run, context),
        "Errors": lambda: errors.draw(searched, split),
        "Your queries": lambda: custom_queries.draw(searched),
        "Scores and labels": lambda: calibration.draw(searched, split, with_cards=shown is not metric_cards.SCORED),
        "HasPositive@k by k": lambda: calibration.draw_hits(searched),
        "Similarity of ten sentences": lambda: ten_sentences.draw(searched),
    }
    with tabs:
        display.tabs(parts, **url.tabs(search.PART, parts))
    with page_layout.action_bar():
        if run is None:
            page_layout.next_step_button("Train a run on this dataset", "train", key="retrieval.none")
        else:
            page_layout.next_step_button("Open the embedding map", "embeddings", key="retrieval.embeddings")

"""Batches page: what each strategy puts into a batch, how hard it is, and one batch in detail."""

import streamlit as st

from pages.ui.batches import batch_view, groups, plan_controls, plan_figures, plans, triage
from pages.ui.batches.source import PART, load_source
from pages.ui.components import display, page_layout, url

TAB, TABS = "batches.section", ("Hardness", "One batch", "Triage")
PARAMETERS = (
    TAB,
    *(PART, batch_view.BATCH, batch_view.PIN, batch_view.TAB, batch_view.MASK, batch_view.MARGIN, triage.SCOPE),
    *(*plan_controls.PARAMETERS, *plan_figures.PARAMETERS),
)

context = page_layout.setup_page(
    "Batches", "Which negatives does a batch contain, and how hard are they?", parameters=PARAMETERS
)

# the container keeps the position of the matrix below, and so its focus and zoom, when spinners are drawn in it
with st.container(), display.show_errors():
    strategies_cell, row = st.container(), st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    source = load_source(context, row)
    settings = plan_controls.select_settings(source, strategies_cell, row)
    pairs, requests = settings.training_rows(source), settings.requests(source)
    stats = plans.plan_stats(source, pairs, requests)
    if not stats:
        st.stop()
    vectors = plans.load_vectors(source, pairs)

hardness_tab, batch_tab, triage_tab = st.tabs(TABS, on_change="rerun", **url.bound(TAB, TABS))
with hardness_tab:
    plan_figures.draw(source, pairs, requests, stats)
with batch_tab:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        strategy = plan_controls.select_strategy(list(stats))
        mask = batch_view.select_mask(source)
        batch = batch_view.select_batch(strategy, stats[strategy], pairs, vectors, source, mask)
    left, right = display.columns(2)
    with left:
        batch_view.draw_matrix(batch)
    with right:
        batch_view.draw_pinned_pair(batch, source)
    batch_view.draw_pair_tables(batch, source)
    groups.draw(batch, stats[strategy], settings.strategies[strategy], source.vectors_key)
with triage_tab:
    triage.draw(batch, source, stats[strategy])

plan_controls.draw_train_button(settings, strategy, source, mask)

"""Batches: what meets in a batch under each strategy, how hard it is, and one batch looked at cell by cell."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import batch_view, frame, plan_controls, plans, show, store

context = frame.page("Batches", "Which pairs meet in a batch, and how hard are they for each other?")

with show.calm_errors():
    chosen = plan_controls.draw()
    pairs = chosen.rows(store.experiment_data(context.dataset_key).train)
    vectors = store.vectors(context.dataset_key, context.encoder)
    looks = plans.looks(f"{pairs.digest} {context.encoder}", chosen.strategies, chosen.shape, (pairs, vectors))

st.subheader("How hard are the wrong documents of each strategy?", anchor=False)
picture, numbers = show.columns(2)
with picture:
    plans.hardness_picture(looks, pairs, vectors)
with numbers:
    st.table(plans.comparison(looks), border="horizontal", hide_index=True, alt=plans.sentence(looks))
    st.caption(plans.sentence(looks))

strategy = plan_controls.strategy_in_view(list(looks))
batch = batch_view.step(looks[strategy], pairs, vectors)
left, right = show.columns(2)
with left:
    cell = batch_view.matrix(batch)
with right:
    batch_view.pinned(batch, cell)
batch_view.negatives(batch)

st.subheader("The groups of this batch", anchor=False)
batch_view.group_multiples(batch, looks[strategy], chosen.strategies[strategy])

plan_controls.train_with(chosen, strategy)

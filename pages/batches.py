"""Batches: what meets in a batch under each strategy, how hard it is, and one batch looked at cell by cell."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import (
    batch_groups,
    batch_pairs,
    batch_source,
    batch_view,
    frame,
    plan_controls,
    plan_pictures,
    plans,
    show,
)

context = frame.page("Batches", "Which pairs meet in a batch, and how hard are they for each other?")

with show.calm_errors():
    source = batch_source.of_context(context)
    chosen = plan_controls.draw(source)
    pairs, wanted = chosen.rows(source), chosen.wanted(source)
    looks = plans.looks(source, pairs, wanted)
    if not looks:
        st.stop()
    vectors = plans.vectors_of(source, pairs)

plan_pictures.draw(source, pairs, wanted, looks)

strategy = plan_controls.strategy_in_view(list(looks))
batch = batch_view.step(strategy, looks[strategy], pairs, vectors)
left, right = show.columns(2)
with left:
    batch_view.matrix(batch)
with right:
    batch_pairs.pinned(batch, source)
batch_pairs.tables(batch, source)
batch_groups.draw(batch, looks[strategy], chosen.strategies[strategy], source.vectors_name)

plan_controls.train_with(chosen, strategy)

"""Loss lab page: one small batch and every cell of its matrices."""

import streamlit as st

from bsc_core.lab.link import PARAMETERS
from bsc_core.lab.settings import explain_batch
from pages.ui.components import display, page_layout
from pages.ui.loss_lab import view

page_layout.setup_page("Loss lab", "What does a loss compute from a batch?", bar=(), parameters=PARAMETERS)
view.read_url()

with display.show_errors():
    batch = view.select_batch()

matrices, training = st.container(), st.container()
if view.link().source == "circle":  # whose points can be dragged
    matrices, training = training, matrices
with matrices:
    with display.figure_frame(
        "Similarities, probabilities and gradients of this batch",
        name="loss-lab",
        data=lambda: view.cells(batch, result),
        key="learn",
    ):
        state = view.lab(batch)
    result = explain_batch(batch, state.settings)
    name = "Setting A: " if state.compare else ""
    st.caption(f"{name}{view.summary(result, state.settings)}")
    if state.compare:
        st.caption(f"Setting B: {view.summary(explain_batch(batch, state.compare), state.compare)}")
with training:
    st.header("Toy training", anchor=False)
    with display.show_errors(stop=False):
        view.toy_training(batch, state)

view.write_link(state)
view.next_steps(state)

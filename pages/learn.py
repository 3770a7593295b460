"""Loss lab: one small batch, every cell of its softmax, and what each setting does to it while it is moved."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import frame, learning, show

context = frame.page("Loss lab", "What does the loss see in a batch, and what does it do with it?")
learning.arrive()

with show.calm_errors():
    batch = learning.choose_batch(context)

state = learning.lab(batch)
explained = learning.explained(batch, state.settings)
st.caption(learning.sentence(explained, state.settings))

st.subheader("Watch it learn", anchor=False)
with show.calm_errors(stop=False):
    learning.watch(batch, state)

learning.write_link(state)
learning.onward(batch, explained, state)

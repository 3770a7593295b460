"""Start: three doors, each with a living thumbnail, and the recent runs."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from bsc_core.recipes.presets import recommended
from bsc_core.recipes.sample import sample_config
from pages.ui import doors, frame, recent, show, store

frame.page("Start", "What does a batch teach your encoder?", bar=False)
runs = store.run_store()

first, second, third = show.columns(3, least=300, border=True)
with show.calm_errors():
    with third:  # first, since the figures of the others take the browser longest
        doors.launch(runs, recommended(sample_config()))
    with first:
        doors.see()
    with second:
        doors.inspect()

st.subheader("Recent runs", anchor=False)
recent.draw(runs)

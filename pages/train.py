"""New run: fill a config, see the plan, its cost and what is odd about it, and launch it once or as a sweep."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from bsc_core.errors import BscError
from pages.ui import frame, launching, plan_words, show, starting, store, sweeping, train_form

context = frame.page("New run", "What should the encoder learn, and from what?")

with show.calm_errors():
    data = store.experiment_data(context.dataset_key)
    known = plan_words.facts(data)

form_side, plan_side = show.columns(2, least=430)
with form_side:
    starting.preset_picker(context, known)
    sweeping.switch("train")
    train_form.form(context, known)
    st.text_input("Name of the run", key="train.name", placeholder="made from the settings", persist_state="session")

with plan_side, st.container(border=True):
    st.subheader("The plan", anchor=False)
    config = sweep = None
    try:
        config, sweep = train_form.config_from_form(context), train_form.sweep_from_form()
        sweeping.summary("train", sweep, config.training.seeds)
        launching.check(config, sweep, data)
        launching.plan(config, sweep, data, known)
        launching.as_file(config, sweep)
    except BscError as fault:
        config = None
        show.error(fault)
        launching.ways_out(fault, known)
    launching.launch_button(config, sweep)

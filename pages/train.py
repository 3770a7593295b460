"""New run page: settings, their plan and cost, and the launch of a run or a sweep."""

from contextlib import suppress

import streamlit as st

from bsc_core.errors import BscError, DataError
from pages.ui.components import data_cache, display, page_layout
from pages.ui.new_run import form, launch, link, preset_picker, sweep_form
from pages.ui.new_run.config_summary import fitting_sentence, summarize_data

context = page_layout.setup_page(
    "New run", "What will this run do, and how long will it take?", bar=("dataset",), parameters=link.PARAMETERS
)

with display.show_errors():
    data = data_cache.dataset_splits(context.dataset_key)

form_side, plan_side = display.columns(2, min_width=430)
with form_side:
    changed_cell = preset_picker.draw(context, summarize_data(data))
    form.draw_finding()
    sweep_form.draw(form.sweep_fields())
    with suppress(BscError):  # reported in the plan
        data = data_cache.load_splits(form.read_config(context).data)
    summary = summarize_data(data)
    form.draw_form(summary)
    form.draw_name()

with plan_side, st.container(border=True, key="train.plan"):
    st.header("Plan", anchor=False)
    config = sweep = None
    try:
        config, sweep = form.read_config(context), sweep_form.read(form.is_active)
        preset_picker.write_link(config, sweep, context, changed_cell)
        sweep_form.draw_summary(sweep, config.training.seeds)
        launch.check(config, sweep, data)
        launch.draw_plan(config, sweep, data, summary)
        launch.draw_config_file(config, sweep)
    except BscError as error:
        if config is None:
            preset_picker.draw_changed(changed_cell)
        config = None
        display.error_box(error)
        if isinstance(error, DataError):
            st.caption(fitting_sentence(summary.shape))
    launch.draw_launch_button(config, sweep)

"""Start page: three cards with live previews, and the recent runs."""

import streamlit as st

from bsc_core.data.sample_data import sample_config
from bsc_core.presets.catalog import recommended
from pages.ui.components import data_cache, display, page_layout, users
from pages.ui.home import cards, recent_runs

page_layout.setup_page("Start", "Contrastive training of sentence encoders", bar=())
runs = data_cache.run_store()

may_launch = users.current_user().may_launch
first, second, *third = display.columns(3 if may_launch else 2, min_width=300, border=True)
with display.show_errors():
    if may_launch:
        st.html(cards.STYLE)
        with third[0]:  # drawn first: the figures of the other two take longer
            data = data_cache.data_config(data_cache.SAMPLE)  # with decisions about false negatives
            cards.launch(runs, recommended(sample_config()).model_copy(update={"data": data}))
    with first:
        cards.loss_lab()
    with second:
        cards.batches()

st.header("Recent runs", anchor=False)
recent_runs.draw(runs)

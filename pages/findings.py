"""Findings page: a table of the papers' claims with their verdicts, and one claim in detail."""

import streamlit as st

from bsc_core.reproduction.verdicts import RULE
from pages.ui.components import display, page_layout
from pages.ui.findings import details, table

page_layout.setup_page(
    "Findings", "Which claims of the papers are supported on real data?", bar=(), parameters=table.PARAMETERS
)

with display.show_errors():
    results = table.read()
    table.summary(results)
    selected = table.select(results)
    bar = page_layout.action_bar()
    with bar:
        if selected is None:
            page_layout.next_step_button("Train with the recommended setting", "train", key="findings.train")
        elif selected.is_preset:
            name = selected.claim.name
            page_layout.next_step_button("Use this setting", "train", key=f"findings.use.{name}", preset=name)
    if selected is not None:
        details.draw(selected, bar)
    with st.expander("How a verdict is reached"):
        st.markdown(RULE)

"""Findings page: a table of the papers' claims with their verdicts, and one claim in detail."""

import streamlit as st

from bsc_core.reproduction.verdicts import RULE
from pages.ui.components import display, page_layout
from pages.ui.findings import cards

page_layout.setup_page(
    "Findings", "Which claims of the papers are supported on real data?", bar=(), parameters=cards.PARAMETERS
)

with display.show_errors():
    all_cards = cards.read()
    cards.summary(all_cards)
    card = cards.select(all_cards)
    bar = page_layout.action_bar()
    with bar:
        if card is None:
            page_layout.next_step_button("Train with the recommended setting", "train", key="findings.train")
        elif card.is_preset:
            name = card.claim.name
            page_layout.next_step_button("Use this setting", "train", key=f"findings.use.{name}", preset=name)
    if card is not None:
        cards.draw(card, bar)
    with st.expander("How a verdict is reached"):
        st.markdown(RULE)

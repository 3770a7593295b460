"""Findings page: the claims of the papers, each with its verdict, intervals and a button that runs it again."""

import streamlit as st

from bsc_core.reproduction.verdicts import RULE
from pages.ui.components import display, page_layout
from pages.ui.findings import cards

page_layout.setup_page("Findings", "Which claims of the papers are supported on real data?", bar=False)

with display.show_errors():
    all_cards = cards.read()
    cards.summary(all_cards)
    for card in cards.select(all_cards):
        cards.draw(card)
    st.caption(RULE)

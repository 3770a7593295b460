"""Findings: the papers' claims as cards, each with its verdict, its intervals, and the way to test it again."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import finding_cards, frame, show

frame.page("Findings", "Which claims of the papers hold on real data, and how sure is that?", bar=False)

with show.calm_errors():
    cards = finding_cards.read()
    finding_cards.summary(cards)
    for card in finding_cards.chosen(cards):
        finding_cards.draw(card)
    st.caption(finding_cards.rule())

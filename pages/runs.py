"""Runs: every run in one table; one of them live, or several beside each other."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import comparing, frame, live, run_list, show, store

frame.page("Runs", "What are the runs doing, and what did they bring?")

with show.calm_errors():
    runs = run_list.listed()
    if not runs:
        words = "No run yet. Each run will stand here with its state, its curves and what it changed."
        show.empty(words, step="Launch one on the sample data", key="runs.first", do=lambda: frame.go("train"))
        st.stop()
    chosen = [store.run_store().get(run_id) for run_id in run_list.choose(runs)]

    if not chosen:
        st.caption("Choose a run to see its curves, or several to compare them.")
    elif len(chosen) == 1:
        run = chosen[0]
        live.watch(run)
        if run.array("embeddings_after") is not None:
            with st.container(horizontal=True):
                frame.next_step("See what moved", "embeddings", key=f"runs.embeddings.{run.id}", run=run.id)
                frame.next_step("Search with it", "retrieval", key=f"runs.retrieval.{run.id}", run=run.id)
    else:
        comparing.draw(chosen)

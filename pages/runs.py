"""Runs: every run in one table and the queue; one of them live, a sweep as a whole, or several beside each other."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import comparing, deleted, frame, live, queue_panel, run_list, show, store, sweep_view

frame.page("Runs", "What are the runs doing, and what did they bring?")
deleted.undo_bar()

with show.calm_errors():
    every = store.run_store().list()
    if not every:
        words = "No run yet. Each run will stand here with its state, its curves and what it changed."
        show.empty(
            words,
            step="Launch one on the sample data",
            key="runs.first",
            do=lambda: frame.go("train", dataset=store.SAMPLE),
        )
        deleted.trash_box()
        st.stop()
    group, runs, chosen = run_list.choose(every)
    queue_panel.draw(every, opened=not (group or chosen))
    deleted.trash_box()

    if group and not chosen:
        sweep_view.draw(group, runs)
        run_list.compare_all(runs)
    elif not chosen:
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

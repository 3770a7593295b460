"""Runs page: the table of runs, the queue, and one run, a sweep or a comparison in detail."""

import streamlit as st

from bsc_core import formatting
from pages.ui.comparison import view
from pages.ui.components import data_cache, display, page_layout, users
from pages.ui.runs import detail, queue, run_settings, sweep, table, trash

PARAMETERS = (
    *(table.GROUP, table.COMPARE, run_settings.FILTER, run_settings.RANGES, run_settings.GROUP_BY),
    *(*detail.PARAMETERS, *view.PARAMETERS),
)

page_layout.setup_page("Runs", "How is training going, and what did it change?", bar=(), parameters=PARAMETERS)
trash.draw_undo_bar()

with display.show_errors():
    all_runs = data_cache.run_store().list()
    if not all_runs:
        page_layout.context_bar(("run",))  # reports the run of a link
        text = "There are no runs yet. Each run appears here with its state, curves and metrics."
        text = text if users.current_user().may_launch else users.NO_SHARED_RUN
        button = "Launch a run on the sample data"
        page_layout.empty_state(text, button, "train", key="runs.first", dataset=data_cache.SAMPLE)
        trash.draw_trash()
        st.stop()
    result = st.container()
    group, runs, selected = table.select(all_runs)
    if group and not selected:
        with result:
            sweep.draw_result(group, runs)
        sweep.draw_details(group, runs)
        queue.draw(all_runs, expanded=False)
        trash.draw_trash()
        table.draw_compare_button(runs)
    elif not selected:
        sweep.draw_newest(runs)
        queue.draw(all_runs, expanded=True)
        trash.draw_trash()
        st.caption("Select a run to see its metrics, or several to compare them.")
        with page_layout.action_bar():
            page_layout.next_step_button("Open the newest run", "runs", key="runs.newest", run=all_runs[0].id)
    elif len(selected) == 1:
        run = selected[0]
        detail.draw(run)
        if run.status().is_finished and run.embeddings("after") is not None:
            with page_layout.action_bar():
                page_layout.next_step_button(
                    "Search with this model", "retrieval", key=f"runs.retrieval.{run.id}", run=run.id
                )
                page_layout.next_step_button(
                    "Open the embedding map", "embeddings", key=f"runs.embeddings.{run.id}", primary=False, run=run.id
                )
    else:
        view.draw(selected)
        bar = page_layout.action_bar()
        if best := table.best_run(selected):
            label = f"Search with the run of the highest {formatting.metric_name(best.status().metric_name or '')}"
            with bar:
                page_layout.next_step_button(label, "retrieval", key="runs.best", run=best.id)
        table.draw_all_button(bar)
    if selected:
        queue.draw(all_runs, expanded=False)
        trash.draw_trash()

"""Results of a query, with a decision about each document: relevant, not relevant, or unclear."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from bsc_core import formatting
from bsc_core.runs import Run
from pages.ui.batches import decide
from pages.ui.components import display, page_layout, users
from pages.ui.retrieval.search import Results, Search, draw_examples, draw_lists, query_of_dataset

DOCUMENT = "retrieval.judged"  # session key
LABEL_LENGTH = 90  # characters of a document in the list


def draw(search: Search, query: str, run: Run | None, context: page_layout.Context) -> None:
    """Draw the results of a query, or examples; members decide about documents if the dataset has the query."""
    if not query.strip():
        draw_examples(search)
        return
    results, known = draw_lists(search, query), query_of_dataset(search, query)
    if known is not None and users.current_user().may_launch:
        path = decide.dataset_file(context.dataset_key) if run is None else decide.run_file(run, context.dataset_key)
        _draw_decision(known, results, path, in_run=run is not None)


def _draw_decision(query: str, results: Results, path: Path | None, *, in_run: bool) -> None:
    saved = {one.pair: one.decision for one in decide.saved_decisions(path)}
    marks = {hit.text: hit.mark for hits in (results.left, results.right) for hit in hits}
    numbers = {document: number for number, document in enumerate(marks, 1)}  # texts can begin with equal words

    def label(document: str) -> str:
        decision, text = saved.get((query, document)), formatting.shorten(document, LABEL_LENGTH)
        mark = f"{decide.LABELS[decision]}:" if decision else marks[document]
        return f"{numbers[document]}. {f'{mark} {text}'.lstrip()}"

    if st.session_state.get(DOCUMENT) not in marks:
        st.session_state[DOCUMENT] = None
    choice, control = display.columns(2, min_width=340)
    document = choice.selectbox(
        "Correct the relevance of a document",
        list(marks),
        format_func=label,
        key=DOCUMENT,
        placeholder="Choose a document of the results",
        help="New runs of this dataset use your decisions. Finished runs keep their results.",
    )
    if document is not None:
        with control:
            decide.draw_control(
                path,
                (query, document),
                saved.get((query, document)),
                key="retrieval.decide",
                on_save=lambda sentence: st.toast(
                    f"{sentence} New runs of this dataset use it.", icon=":material/flag:"
                ),
            )
            if in_run and (query, document) in saved:
                st.caption(
                    "The lists and metrics are those of the run, without this decision. A new run on this dataset, "
                    "and a search without a run, use it."
                )

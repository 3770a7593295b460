"""The pairs of one batch: the one that is pinned with its mark, the hardest negatives, and the likely false ones."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from bsc_core.batching import hardest_negatives, suspects
from bsc_core.data import PairDataset
from bsc_core.data.marks import add_mark, read_marks, remove_mark
from bsc_core.figures import similarity, theme
from pages.ui import batch_view, plans, show, words
from pages.ui.batch_source import Source
from pages.ui.batch_view import Batch

LISTED = 50
Columns = dict[str, list[Any]]


def pinned(batch: Batch, source: Source) -> None:
    """The two texts of the pinned pair, with what is known of them and the button that marks it."""
    query, document = batch.pinned_rows
    cells = plans.cells(batch.rows[list(batch.pin)], batch.groups[list(batch.pin)], batch.dataset, batch.vectors)
    same = query == document
    row, column = (0, 0) if same else (0, 1)
    kind = str(cells.kinds()[row, column])
    with st.container(border=True):
        st.markdown(f"**Pinned pair** · {kind}")
        first, second, third = st.columns(3)
        first.metric("Cosine", theme.metric(float(cells.similarity[row, column])))
        second.metric("Own document", theme.metric(float(cells.similarity[0, 0])), help="The query's own document.")
        third.metric("Label", _label(batch.dataset, query, document), help="What the data say of these two texts.")
        show.text(f"Query · line {batch.dataset.line[query]}", batch.text("query", query))
        show.text(f"Document · line {batch.dataset.line[document]}", batch.text("document", document))
        if not same:
            show.text("The query's own document", batch.text("document", query))
            _mark_button(batch, source, kind)
        st.caption("Click a cell to pin it.")


def _label(dataset: PairDataset, query_row: int, document_row: int) -> str:
    """The label of the row that holds both texts; a dash where no row does."""
    held = (dataset.query == dataset.query[query_row]) & (dataset.document == dataset.document[document_row])
    if not held.any():
        return "–"
    row = int(held.argmax())
    return f"{dataset.label[row]:g}" if dataset.label is not None else "positive"


def _mark_button(batch: Batch, source: Source, kind: str) -> None:
    query, document = batch.pinned_rows
    texts = (batch.text("query", query), batch.text("document", document))
    if kind == similarity.BY_HAND:
        st.button(
            "Take the mark back", key="batches.unmark", icon=":material/undo:", on_click=_unmark, args=(source, texts)
        )
    elif kind != similarity.OWN:
        about = "The loss leaves the pair out, and from the next plan on its rows meet in no batch."
        st.button(
            "Mark as false negative",
            key="batches.mark",
            icon=":material/flag:",
            help=about if source.marks is not None else "Choose the run's dataset in the bar to mark its pairs.",
            disabled=source.marks is None,
            on_click=_mark,
            args=(source, texts),
        )


def _mark(source: Source, texts: tuple[str, str]) -> None:
    if source.marks is not None:
        add_mark(source.marks, *texts)
        st.toast("Marked: its rows meet in no batch, and the loss leaves it out.", icon=":material/flag:")


def _unmark(source: Source, texts: tuple[str, str]) -> None:
    if source.marks is not None:
        remove_mark(source.marks, *texts)


def tables(batch: Batch, source: Source) -> None:
    """The hardest negatives, the likely false negatives with the reason, and what was marked; a line pins its pair."""
    hardest = hardest_negatives(batch.dataset, batch.vectors, batch.rows, top=LISTED)
    likely = suspects(batch.dataset, batch.vectors, batch.rows, top=LISTED)
    marks = read_marks(source.marks) if source.marks is not None and source.marks.is_file() else []
    hard, false, by_hand = st.tabs(["Hardest negatives", "Likely false negatives", "Marked by hand"])
    with hard:
        labelled = {"labelled negative": [one.labelled_negative for one in hardest]}
        nothing = "No query of this batch is positive, so none has a negative."
        _pair_table(batch, hardest, ({}, labelled), "Hardest in-batch negatives", nothing)
    with false:
        number = f"the first {LISTED}" if len(likely) == LISTED else str(len(likely))
        st.caption(f"{words.WORDS['false_negative'].definition} In this batch: {number}.")
        reasons = {"why suspected": [", ".join(one.reasons) for one in likely]}
        _pair_table(batch, likely, (reasons, {}), "Likely false negatives", "None in this batch.")
    with by_hand:
        _marks_table(source, marks)


def _pair_table(batch: Batch, found: list[Any], more: tuple[Columns, Columns], name: str, nothing: str) -> None:
    """A table whose chosen line is pinned. more: columns before and after those of every pair."""
    lead, trail = more
    if not found:
        st.caption(nothing)
        return
    frame = pd.DataFrame(
        {
            **lead,
            "cosine": [one.similarity for one in found],
            "own": [one.own_similarity for one in found],
            "query": [batch.text("query", one.query_row) for one in found],
            "document": [batch.text("document", one.document_row) for one in found],
            **trail,
        }
    )
    numbers = {column: st.column_config.NumberColumn(format="%.3f", width=70) for column in ("cosine", "own")}
    key = f"batches.{name.split()[0].lower()}.{batch.strategy}.{batch.number}"
    rows = [(one.query_row, one.document_row) for one in found]
    st.dataframe(
        frame,
        key=key,
        hide_index=True,
        height=300,
        column_config=numbers,
        alt=name,
        selection_mode="single-row",
        on_select=lambda: _pin_line(key, rows),
    )


def _pin_line(key: str, rows: list[tuple[int, int]]) -> None:
    chosen = st.session_state[key].selection.rows
    if chosen and chosen[0] < len(rows):
        batch_view.pin(*rows[chosen[0]])


def _marks_table(source: Source, marks: list[tuple[str, str]]) -> None:
    if not marks:
        st.caption("Pairs that you mark as false negatives stand here, whatever batch they are in.")
        return
    table = pd.DataFrame(marks, columns=["query", "document"])
    event = st.dataframe(
        table,
        key=f"batches.marks.{len(marks)}",
        hide_index=True,
        height=240,
        alt="Marked false negatives",
        selection_mode="multi-row",
        on_select="rerun",
    )
    chosen = [marks[row] for row in event.selection.rows if row < len(marks)]
    st.button(
        f"Take back {theme.many(len(chosen), 'mark')}" if chosen else "Take back the chosen marks",
        key="batches.take_back",
        icon=":material/undo:",
        disabled=not chosen,
        on_click=lambda: [_unmark(source, one) for one in chosen],
    )

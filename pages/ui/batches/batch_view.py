"""One batch: its selection, its similarity matrix, the pinned pair, hard negatives and false negatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import PlanStats, hardest_negatives, likely_false_negatives
from bsc_core.data import PairDataset
from bsc_core.data.decisions import Decision, TextPair, add_decisions, read_decisions, undo_decisions
from bsc_core.figures.batches import similarity
from pages.ui.batches import plans
from pages.ui.batches.source import BatchSource, revise
from pages.ui.components import display, glossary
from pages.ui.components.browser.mount import matrix_canvas

BATCH = "batches.batch"
PIN = "batches.pin"
MAX_CHART_PAIRS = 64
"""Pairs up to which the matrix is a chart; a larger one is an image on a canvas."""
WINDOW = 512
"""Maximum number of pairs in the matrix; a larger batch shows those around the pinned query."""
MAX_LISTED = 50
Columns = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class BatchView:
    """The selected batch."""

    strategy: str
    number: int  # from 0
    rows: np.ndarray  # (B,) dataset rows, in group order
    groups: np.ndarray  # (B,) group ids
    dataset: PairDataset
    vectors: np.ndarray  # (U, D) vectors of the texts
    pin: tuple[int, int]  # row and column of the pinned pair

    def text(self, side: str, row: int) -> str:
        """Return the text of a dataset row. side: query or document."""
        return self.dataset.texts[int(getattr(self.dataset, side)[row])]

    @property
    def pinned_rows(self) -> tuple[int, int]:
        """Dataset rows of the pinned query and of the pinned document."""
        return int(self.rows[self.pin[0]]), int(self.rows[self.pin[1]])


def select_batch(strategy: str, stats: PlanStats, dataset: PairDataset, vectors: np.ndarray) -> BatchView:
    """Draw the controls that step through the batches; return the selected one."""
    last = len(stats.positions)
    if BATCH not in st.session_state:
        st.session_state[BATCH] = stats.hardest_batch(dataset) + 1
    st.session_state[BATCH] = min(max(1, st.session_state[BATCH]), last)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _step_button("back", ":material/chevron_left:", "Previous batch", -1, last)
        st.number_input(f"Batch (of {formatting.count(last)})", 1, last, key=BATCH, width=140)
        _step_button("next", ":material/chevron_right:", "Next batch", 1, last)
        for key, label, icon, number in (
            ("hardest", "Hardest", "local_fire_department", stats.hardest_batch(dataset)),
            ("likely", "Most likely false negatives", "flag", stats.batch_with_most_likely_false_negatives()),
        ):
            st.button(
                label,
                key=f"batches.{key}",
                icon=f":material/{icon}:",
                on_click=st.session_state.update,
                args=({BATCH: number + 1},),
            )
    number = int(st.session_state[BATCH]) - 1
    rows, groups = plans.batch_by_group(stats, number)
    return BatchView(strategy, number, rows, groups, dataset, vectors, _pinned_positions(rows, dataset, vectors))


def _step_button(name: str, icon: str, about: str, by: int, last: int) -> None:
    st.button("", key=f"batches.{name}", icon=icon, help=about, on_click=_step, args=(by, last))


def _step(by: int, last: int) -> None:
    st.session_state[BATCH] = min(max(1, st.session_state.get(BATCH, 1) + by), last)


def _pinned_positions(rows: np.ndarray, dataset: PairDataset, vectors: np.ndarray) -> tuple[int, int]:
    """Return the positions of the pair pinned last if this batch contains it, else of the hardest negative."""
    positions = {row: position for position, row in enumerate(rows.tolist())}
    query, document = st.session_state.get(PIN, (-1, -1))
    if query in positions and document in positions:
        return positions[query], positions[document]
    hardest = hardest_negatives(dataset, vectors, rows, top=1)
    return (positions[hardest[0].query_row], positions[hardest[0].document_row]) if hardest else (0, 0)


def _pin(query_row: int, document_row: int) -> None:
    """Pin a pair by its dataset rows."""
    st.session_state[PIN] = (int(query_row), int(document_row))


def draw_matrix(batch: BatchView) -> None:
    """Draw the similarity matrix; a click on a cell pins its pair."""
    first, last = _window(batch)
    rows = batch.rows[first:last]
    cells = plans.batch_cells(rows, batch.groups[first:last], batch.dataset, batch.vectors)
    pin = (batch.pin[0] - first, batch.pin[1] - first)
    pin = pin if max(pin) < len(rows) and min(pin) >= 0 else (max(0, pin[0]), max(0, pin[0]))
    key = f"batches.cells.{batch.strategy}.{batch.number}.{first}.{len(batch.rows)}"
    with st.container(key="batches.matrix"):
        if len(rows) <= MAX_CHART_PAIRS:
            _draw_chart(batch, cells, pin, key)
        else:
            _draw_canvas(batch, cells, pin, key)


def _window(batch: BatchView) -> tuple[int, int]:
    """Return the range of positions to show: all, or WINDOW of them around the pinned query."""
    size = len(batch.rows)
    if size <= WINDOW:
        return 0, size
    first = min(max(0, batch.pin[0] - WINDOW // 2), size - WINDOW)
    shown = f"{formatting.count(first + 1)} to {formatting.count(first + WINDOW)} of {formatting.count(size)}"
    st.caption(f"Pairs {shown}, around the pinned query. Pin another pair in the tables below to move there.")
    return first, first + WINDOW


def _draw_chart(batch: BatchView, cells: similarity.Cells, pin: tuple[int, int], key: str) -> None:
    table = similarity.batch_table(cells)
    texts = pd.DataFrame({"position": range(len(cells.rows)), **_texts(batch, cells.rows)})
    figure = similarity.batch_matrix(table, texts, hardest=pin)
    name, on_click = f"batch-{batch.number + 1}", partial(_pin_clicked, key, cells.rows)
    display.figure(figure, name=name, alt=matrix_sentence(cells), data=table, select=on_click, key=key)


def _draw_canvas(batch: BatchView, cells: similarity.Cells, pin: tuple[int, int], key: str) -> None:
    texts = _texts(batch, cells.rows)
    data = similarity.canvas_data(cells, texts["query"], texts["document"])
    label = f"{matrix_sentence(cells)} Move with the arrow keys, pin with Enter."
    matrix_canvas({**data, "pinned": list(pin), "label": label}, key=key, on_pin=partial(_pin_clicked, key, cells.rows))
    display.csv_button(lambda: similarity.batch_table(cells), name=f"batch-{batch.number + 1}", key=f"{key}.data")


def _texts(batch: BatchView, rows: np.ndarray) -> dict[str, list[str]]:
    return {side: [batch.text(side, row) for row in rows.tolist()] for side in ("query", "document")}


def _pin_clicked(key: str, rows: np.ndarray) -> None:
    """Pin the cell that was clicked in the chart or on the canvas; nothing if the click removed the selection."""
    state = st.session_state[key]
    cells = state.get("selection", {}).get(similarity.CELL)
    cell = (cells[0]["row"], cells[0]["column"]) if cells else state.get("cell")
    if cell and max(cell) < len(rows):
        _pin(rows[int(cell[0])], rows[int(cell[1])])


def matrix_sentence(cells: similarity.Cells) -> str:
    """Summarize the matrix in one sentence."""
    kinds = cells.kinds()
    counts = {name: int((kinds == name).sum()) for name in similarity.KIND_COLORS}
    number = counts[similarity.MARKED]
    marked = f", {formatting.plural(number, 'cell')} marked as false negative" if number else ""
    closer = formatting.plural(counts[similarity.CLOSER], "negative")
    return (
        f"{formatting.plural(len(cells.rows), 'pair')}, {counts[similarity.POSITIVE]} of them positive; "
        f"{closer} closer to a query than its positive, "
        f"{formatting.plural(counts[similarity.COLLISION], 'collision')}{marked}."
    )


def draw_pinned_pair(batch: BatchView, source: BatchSource) -> None:
    """Draw the texts of the pinned pair, its cosine and label, and the button that marks it."""
    query, document = batch.pinned_rows
    pin = list(batch.pin)
    cells = plans.batch_cells(batch.rows[pin], batch.groups[pin], batch.dataset, batch.vectors)
    is_positive = query == document
    kind = str(cells.kinds()[0, 0 if is_positive else 1])
    with st.container(border=True):
        st.markdown(f"**Pinned pair** · {kind}")
        first, second, third = st.columns(3)
        first.metric("Cosine", formatting.metric(float(cells.similarity[0, 0 if is_positive else 1])))
        second.metric(
            "Cosine of the positive",
            formatting.metric(float(cells.similarity[0, 0])),
            help="Cosine of the query and the document of its row.",
        )
        third.metric("Label", _label(batch.dataset, query, document), help="Label of these two texts in the data.")
        display.plain_text(f"Query · line {batch.dataset.line[query]}", batch.text("query", query))
        display.plain_text(f"Document · line {batch.dataset.line[document]}", batch.text("document", document))
        if not is_positive:
            display.plain_text("Positive document of the query", batch.text("document", query))
            _draw_mark_button(batch, source, kind)
        st.caption("Click a cell to pin it.")


def _label(dataset: PairDataset, query_row: int, document_row: int) -> str:
    """Return the label of the row with both texts; a dash if there is none."""
    same = (dataset.query == dataset.query[query_row]) & (dataset.document == dataset.document[document_row])
    if not same.any():
        return "–"
    return f"{dataset.label[int(same.argmax())]:g}" if dataset.label is not None else "positive"


def _draw_mark_button(batch: BatchView, source: BatchSource, kind: str) -> None:
    query, document = batch.pinned_rows
    texts = (batch.text("query", query), batch.text("document", document))
    if kind == similarity.MARKED:
        st.button("Remove mark", key="batches.unmark", icon=":material/undo:", on_click=_unmark, args=(source, texts))
    elif kind != similarity.POSITIVE:
        about = "The loss ignores the pair, and new plans never put its rows in the same batch."
        st.button(
            "Mark as false negative",
            key="batches.mark",
            icon=":material/flag:",
            help=about if source.false_negatives is not None else "Select the run's dataset above to mark its pairs.",
            disabled=source.false_negatives is None,
            on_click=_mark,
            args=(source, texts),
        )


def _mark(source: BatchSource, texts: TextPair) -> None:
    if source.false_negatives is not None:
        add_decisions(source.false_negatives, [Decision(*texts)])
        revise()
        st.toast("Marked. The loss ignores the pair, and its rows are never in the same batch.", icon=":material/flag:")


def _unmark(source: BatchSource, texts: TextPair) -> None:
    if source.false_negatives is not None:
        undo_decisions(source.false_negatives, [texts])
        revise()


def draw_pair_tables(batch: BatchView, source: BatchSource) -> None:
    """Draw the hardest negatives, the likely false negatives and all decisions; selecting a row pins its pair."""
    hardest = hardest_negatives(batch.dataset, batch.vectors, batch.rows, top=MAX_LISTED)
    likely = likely_false_negatives(batch.dataset, batch.vectors, batch.rows, top=MAX_LISTED)
    path = source.false_negatives
    decisions = read_decisions(path) if path is not None and path.is_file() else []
    hardest_tab, likely_tab, decisions_tab = st.tabs(["Hardest negatives", "Likely false negatives", "Decisions"])
    with hardest_tab:
        labeled = {"labeled negative": [one.labeled_negative for one in hardest]}
        _draw_pairs(batch, hardest, "Hardest in-batch negatives", after=labeled)
    with likely_tab:
        number = f"the first {MAX_LISTED}" if len(likely) == MAX_LISTED else str(len(likely))
        st.caption(f"{glossary.TERMS['false_negative'].definition} In this batch: {number}.")
        reasons = {"reason": [", ".join(one.reasons) for one in likely]}
        _draw_pairs(batch, likely, "Likely false negatives", before=reasons)
    with decisions_tab:
        _draw_decisions(source, decisions)


def _draw_pairs(
    batch: BatchView, pairs: Sequence[Any], name: str, *, before: Columns | None = None, after: Columns | None = None
) -> None:
    """Draw a table of pairs with further columns before and after the common ones."""
    if not pairs:
        st.caption("There are none in this batch.")
        return
    table = pd.DataFrame(
        {
            **(before or {}),
            "cosine": [one.similarity for one in pairs],
            "positive": [one.positive_similarity for one in pairs],
            "query": [batch.text("query", one.query_row) for one in pairs],
            "document": [batch.text("document", one.document_row) for one in pairs],
            **(after or {}),
        }
    )
    key = f"batches.{name.split()[0].lower()}.{batch.strategy}.{batch.number}"
    rows = [(one.query_row, one.document_row) for one in pairs]
    st.dataframe(
        table,
        key=key,
        hide_index=True,
        height=300,
        column_config={
            "cosine": st.column_config.NumberColumn(format="%.3f", width=70),
            "positive": st.column_config.NumberColumn(format="%.3f", width=70, help="Cosine of the positive."),
        },
        alt=name,
        selection_mode="single-row",
        on_select=lambda: _pin_selected(key, rows),
    )


def _pin_selected(key: str, rows: list[tuple[int, int]]) -> None:
    selected = st.session_state[key].selection.rows
    if selected and selected[0] < len(rows):
        _pin(*rows[selected[0]])


def _draw_decisions(source: BatchSource, decisions: list[Decision]) -> None:
    if not decisions:
        st.caption("Pairs that you decide or mark as false negatives appear here, from any batch.")
        return
    columns = ("decision", "query", "document", "who", "when")
    event = st.dataframe(
        pd.DataFrame([[getattr(one, name) for name in columns] for one in decisions], columns=columns),
        key=f"batches.marks.{len(decisions)}",
        hide_index=True,
        height=240,
        alt="Decisions",
        selection_mode="multi-row",
        on_select="rerun",
    )
    selected = [decisions[row] for row in event.selection.rows if row < len(decisions)]
    st.button(
        f"Undo {formatting.plural(len(selected), 'decision')}" if selected else "Undo selected decisions",
        key="batches.take_back",
        icon=":material/undo:",
        disabled=not selected,
        on_click=lambda: [_unmark(source, one.pair) for one in selected],
    )

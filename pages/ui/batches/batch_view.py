"""One batch: its selection, its similarity matrix, the pinned pair, hard negatives and false negatives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import PlanStats, hardest_negatives, likely_false_negatives
from bsc_core.data import PairDataset
from bsc_core.data.decisions import Decision, TextPair, applied_sentence
from bsc_core.figures.batches import similarity
from pages.ui.batches import decide, plans
from pages.ui.batches.source import BatchSource, revise
from pages.ui.components import display, glossary, page_layout, url
from pages.ui.components.browser.mount import matrix_canvas

BATCH = "batches.batch"  # parameter of the URL and key of the box, from 1; the hardest batch if there is none
PIN = "batches.pin"  # parameter of the URL: the row of the query and that of the document, see `row_name`
TAB, TABS = "batches.tab", ("Hardest negatives", "Likely false negatives", "Decisions")
MASK, MARGIN, NO_MASK = "batches.mask", "batches.mask_margin", "none"  # parameters of the URL, and the first option
DECIDED = "batches.decided"  # session key: whether a pair was just decided
WINDOW = 512
"""Maximum number of pairs in the matrix; a larger batch shows those around the pinned query."""
MAX_LISTED = 50
UNLABELED = "–"
Columns = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class PinnedPair:
    """The query of one row and the document of another. dataset: the planned rows, or all rows if one is left out."""

    dataset: PairDataset
    query_row: int
    document_row: int
    in_batch: bool

    @property
    def texts(self) -> TextPair:
        """The text of the query and that of the document."""
        return _text(self.dataset, "query", self.query_row), _text(self.dataset, "document", self.document_row)


def _text(dataset: PairDataset, side: str, row: int) -> str:
    return dataset.texts[int(getattr(dataset, side)[row])]


@dataclass(frozen=True, eq=False)
class BatchView:
    """The selected batch."""

    strategy: str
    number: int  # from 0
    rows: np.ndarray  # (B,) dataset rows, in group order
    groups: np.ndarray  # (B,) group ids
    dataset: PairDataset
    vectors: np.ndarray  # (U, D) vectors of the texts
    pinned: PinnedPair
    mask: similarity.BatchMask | None = None

    def text(self, side: str, row: int) -> str:
        """Return the text of a dataset row.

        Args:
            side: `query`, `document` or `negative`.
            row: Number of the row.
        """
        return _text(self.dataset, side, row)

    @property
    def pin(self) -> tuple[int, int] | None:
        """Row and column of the pinned pair in the batch; None if it is not in the batch."""
        if not self.pinned.in_batch:
            return None
        position = {row: position for position, row in enumerate(self.rows.tolist())}
        return position[self.pinned.query_row], position[self.pinned.document_row]


def select_mask(source: BatchSource) -> similarity.BatchMask | None:
    """Draw the mask of likely false negatives and its margin, at first those of the run; return the mask."""
    loss = None if source.run is None else source.run.config().loss
    kind = NO_MASK if getattr(loss, "mask", NO_MASK) == NO_MASK else loss.mask_margin_kind
    kinds = (NO_MASK, "absolute", "relative")
    about = (
        "Shows which negatives a false-negative mask of the loss would exclude with the similarities of this encoder: "
        "those more similar to the query than its positive, minus a margin. The margin is absolute, or relative to the "
        "cosine of the positive."
    )
    bound = url.bound(MASK, kinds)
    kind = st.segmented_control("False-negative mask", kinds, default=kind, required=True, help=about, **bound) or kind
    if kind == NO_MASK:
        return None
    margin = getattr(loss, "mask_margin", 0.0)
    bound = url.bound(MARGIN, limits=(-2, 2))
    margin = st.number_input("Margin", -2.0, 2.0, margin, 0.05, width=140, **bound)
    return similarity.BatchMask(float(margin), kind == "relative")


def select_batch(
    strategy: str,
    stats: PlanStats,
    dataset: PairDataset,
    vectors: np.ndarray,
    source: BatchSource,
    mask: similarity.BatchMask | None = None,
) -> BatchView:
    """Draw the controls that step through the batches, by default the hardest; return the selected one."""
    last, hardest = len(stats.positions), stats.hardest_batch(dataset) + 1
    linked = st.query_params.get(BATCH, "")
    if page_layout.arrived():
        url.check(BATCH, limits=(1, last))
    shown = min(max(1, int(linked)), last) if re.fullmatch(r"[0-9]{1,9}", linked) else hardest
    st.session_state[BATCH] = shown
    _step_button("back", ":material/chevron_left:", "Previous batch", -1, last)
    label = f"Batch (of {formatting.count(last)})"
    st.number_input(label, 1, last, key=BATCH, width=140, on_change=lambda: _show(st.session_state[BATCH]))
    _step_button("next", ":material/chevron_right:", "Next batch", 1, last)
    icon = ":material/local_fire_department:"
    st.button("Hardest", key="batches.hardest", icon=icon, on_click=_show, args=(hardest,))
    st.button(
        "Most likely false negatives",
        key="batches.likely",
        icon=":material/flag:",
        on_click=_show_likely,
        args=(stats, dataset, vectors),
    )
    number = shown - 1
    rows, groups = plans.batch_by_group(stats, number)
    pinned = _pinned_pair(rows, dataset, vectors, source)
    return BatchView(strategy, number, rows, groups, dataset, vectors, pinned, mask)


def _step_button(name: str, icon: str, about: str, by: int, last: int) -> None:
    st.button("", key=f"batches.{name}", icon=icon, help=about, on_click=_step, args=(by, last))


def _step(by: int, last: int) -> None:
    _show(min(max(1, st.session_state.get(BATCH, 1) + by), last))


def _show(number: int) -> None:
    """Show a batch, with its hardest negative pinned."""
    display.write_url({BATCH: str(number)}, (BATCH, PIN))


def _show_likely(stats: PlanStats, dataset: PairDataset, vectors: np.ndarray) -> None:
    """Show the batch with the most likely false negatives and their table, with the first of them pinned."""
    number = stats.batch_with_most_likely_false_negatives()
    likely = likely_false_negatives(dataset, vectors, plans.batch_by_group(stats, number)[0], top=1)
    if not likely:
        return _show(number + 1)
    url.open_tab(TAB, TABS[1])
    _pin(number, (dataset, likely[0].query_row, likely[0].document_row))


def _pinned_pair(rows: np.ndarray, dataset: PairDataset, vectors: np.ndarray, source: BatchSource) -> PinnedPair:
    """Return the pair of the URL, else the hardest negative of the batch.

    A pair that is not in the batch stays pinned only if it was just decided positive or dropped, since the rows of
    such a pair share no batch.
    """
    pinned = st.query_params.get(PIN, "")
    pair = [find_row(dataset, name) for name in pinned.split("-")]
    if len(pair) == 2 and all(row is not None and row in rows for row in pair):
        return PinnedPair(dataset, int(pair[0] or 0), int(pair[1] or 0), in_batch=True)
    pair = [find_row(source.train, name) for name in pinned.split("-")]
    if len(pair) == 2 and None not in pair:
        kept = PinnedPair(source.train, int(pair[0] or 0), int(pair[1] or 0), in_batch=False)
        if str(_pair_cells(kept, vectors).kinds()[0, 1]) == similarity.MARKED:
            return kept
    elif pinned:
        url.report(PIN, f"The pinned pair {url.shorten(pinned)} is not in these rows.")
    hardest = hardest_negatives(dataset, vectors, rows, top=1)
    query, document = (hardest[0].query_row, hardest[0].document_row) if hardest else (int(rows[0]), int(rows[0]))
    return PinnedPair(dataset, query, document, in_batch=True)


def row_name(dataset: PairDataset, row: int) -> str:
    """Return the line of a row, with the number of its file and its position among rows of one line if needed.

    Decisions that remove rows do not change it, as they would change the row's number.
    """
    file = "" if dataset.source is None else f"{int(dataset.source[row])}:"
    same = _rows_of_line(dataset, None if dataset.source is None else int(dataset.source[row]), int(dataset.line[row]))
    number = int(np.searchsorted(same, row))
    return f"{file}{int(dataset.line[row])}" + (f".{number}" if number else "")


def find_row(dataset: PairDataset, name: str) -> int | None:
    """Return the row with a name of `row_name`; None if there is none."""
    parts = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,18})(?:\.(\d{1,9}))?", name, re.ASCII)
    if parts is None or (parts[1] is None) != (dataset.source is None):
        return None
    same = _rows_of_line(dataset, None if parts[1] is None else int(parts[1]), int(parts[2]))
    number = int(parts[3] or 0)
    return int(same[number]) if number < len(same) else None


def _rows_of_line(dataset: PairDataset, file: int | None, line: int) -> np.ndarray:
    rows: np.ndarray = np.flatnonzero(dataset.line == line)
    return rows if file is None or dataset.source is None else rows[dataset.source[rows] == file]


def _pin(number: int, pair: tuple[PairDataset, int, int]) -> None:
    """Pin the rows of a pair in a batch. number: that of the batch, from 0."""
    dataset, query_row, document_row = pair
    pin = f"{row_name(dataset, int(query_row))}-{row_name(dataset, int(document_row))}"
    display.write_url({BATCH: str(number + 1), PIN: pin}, ())


def draw_matrix(batch: BatchView) -> None:
    """Draw the similarity matrix; a click on a cell pins its pair."""
    first, last = _window(batch)
    rows = batch.rows[first:last]
    cells = plans.batch_cells(rows, batch.groups[first:last], batch.dataset, batch.vectors, batch.mask)
    pin = batch.pin and (batch.pin[0] - first, batch.pin[1] - first)
    if pin and not (max(pin) < len(rows) and min(pin) >= 0):
        pin = (max(0, pin[0]), max(0, pin[0]))
    key = f"batches.cells.{batch.strategy}.{batch.number}.{first}.{len(batch.rows)}"
    on_pin = partial(_pin_clicked, key, batch, rows)
    draw_cells(cells, batch.dataset, pinned=pin, name=f"batch-{batch.number + 1}", key=key, on_pin=on_pin)


def _window(batch: BatchView) -> tuple[int, int]:
    """Return the range of positions to show: all, or WINDOW of them around the pinned query."""
    size = len(batch.rows)
    if size <= WINDOW:
        return 0, size
    first = min(max(0, (batch.pin or (0, 0))[0] - WINDOW // 2), size - WINDOW)
    shown = f"{formatting.count(first + 1)} to {formatting.count(first + WINDOW)} of {formatting.count(size)}"
    st.caption(f"Pairs {shown}, around the pinned query. Pin another pair in the tables below to move there.")
    return first, first + WINDOW


def draw_cells(
    cells: similarity.Cells,
    dataset: PairDataset,
    *,
    pinned: tuple[int, int] | None,
    name: str,
    key: str,
    on_pin: Callable[[], None],
    title: str = "",
) -> None:
    """Draw a similarity matrix, whose title is the sentence about it.

    Args:
        cells: The matrix of rows of `dataset`.
        dataset: The pairs.
        pinned: Row and column of the outlined cell.
        name: File name of the downloads.
        key: Session key of the matrix; `clicked_cell` reads the clicked cell.
        on_pin: Called when a cell is clicked.
        title: Text before the title.
    """
    queries, documents = ([_text(dataset, side, row) for row in cells.rows.tolist()] for side in ("query", "document"))
    sentence = f"{title}{matrix_sentence(cells)}"
    data = similarity.canvas_data(cells, queries, documents)
    data |= {"pinned": pinned and list(pinned), "label": f"{sentence} Move with the arrow keys, pin with Enter."}
    with display.figure_frame(sentence, name=name, data=partial(similarity.batch_table, cells), key=f"{key}.figure"):
        matrix_canvas(data, key=key, on_pin=on_pin)


def clicked_cell(key: str, size: int) -> tuple[int, int] | None:
    """Return row and column of the clicked cell of the matrix with this key; None if they are not below `size`."""
    match st.session_state[key].get("cell"):  # a client can send anything
        case [int(row), int(column)] if 0 <= row < size and 0 <= column < size:
            return row, column
    return None


def _pin_clicked(key: str, batch: BatchView, rows: np.ndarray) -> None:
    if cell := clicked_cell(key, len(rows)):
        _pin(batch.number, (batch.dataset, rows[cell[0]], rows[cell[1]]))


def matrix_sentence(cells: similarity.Cells) -> str:
    """Summarize the matrix in one sentence."""
    kinds = cells.kinds()
    counts = {name: int((kinds == name).sum()) for name in similarity.KIND_COLORS}
    collides = kinds == similarity.COLLISION
    number = counts[similarity.MARKED]
    marked = f", {formatting.plural(number, 'cell')} marked as false negative" if number else ""
    closer = formatting.plural(counts[similarity.CLOSER], "negative")
    masked = f", {formatting.count(counts[similarity.MASKED])} {similarity.MASKED}" if cells.mask else ""
    return (
        f"{formatting.plural(len(cells.rows), 'pair')}, {counts[similarity.POSITIVE]} positive; "
        f"{closer} closer than the positive{masked}, {_collisions(collides)}{marked}."
    )


def _collisions(collides: np.ndarray) -> str:
    """Return the number of pairs of rows, as in the table of plans, and of cells if both cells of a pair collide."""
    number, cells = int(np.triu(collides | collides.T).sum()), int(collides.sum())
    text = f"{formatting.plural(number, 'known false negative')} ({'collision' if number == 1 else 'collisions'})"
    return text if cells == number else f"{text} in {formatting.plural(cells, 'cell')}"


def draw_pinned_pair(batch: BatchView, source: BatchSource) -> None:
    """Draw the texts of the pinned pair, its cosine and label, and the decision about it."""
    pair, dataset = batch.pinned, batch.pinned.dataset
    query, document = pair.query_row, pair.document_row
    cells = _pair_cells(pair, batch.vectors, batch.mask)
    is_positive = query == document
    kind = str(cells.kinds()[0, 0 if is_positive else 1])
    with st.container(border=True):
        st.markdown(f"**Pinned pair** · {kind}")
        first, second, third = st.columns([2, 3, 2])  # the middle label is the longest
        first.metric("Cosine", formatting.metric(float(cells.similarity[0, 0 if is_positive else 1])))
        is_labeled_positive = bool(dataset.positive[query])
        own = "the positive" if is_labeled_positive else "its own document"
        second.metric(
            f"Cosine of {own}",
            formatting.metric(float(cells.similarity[0, 0])),
            help="Cosine of the query and the document of its row"
            + ("." if is_labeled_positive else f", which is labeled negative ({_label(dataset, query, query)})."),
        )
        third.metric("Label", _label(dataset, query, document), help="Label of these two texts in the data.")
        display.plain_text(f"Query · line {dataset.line[query]}", pair.texts[0])
        display.plain_text(f"Document · line {dataset.line[document]}", pair.texts[1])
        if not is_positive:
            name = "Positive document of the query" if is_labeled_positive else "Own document, labeled negative"
            display.plain_text(name, _text(dataset, "document", query))
            _draw_decision(pair, source, kind, batch.number)
        if not pair.in_batch:
            st.caption("This pair is not in this batch: the rows of a positive or dropped pair never share a batch.")
        st.caption("Click a cell to pin it.")


def _pair_cells(pair: PinnedPair, vectors: np.ndarray, mask: similarity.BatchMask | None = None) -> similarity.Cells:
    rows = np.array([pair.query_row, pair.document_row])
    return plans.batch_cells(rows, np.zeros(2, dtype=np.int32), pair.dataset, vectors, mask)


def _label(dataset: PairDataset, query_row: int, document_row: int) -> str:
    """Return the label of the row with both texts; a dash if there is none."""
    same = (dataset.query == dataset.query[query_row]) & (dataset.document == dataset.document[document_row])
    if not same.any():
        return UNLABELED
    return f"{dataset.label[int(same.argmax())]:g}" if dataset.label is not None else "positive"


def _draw_decision(pair: PinnedPair, source: BatchSource, kind: str, number: int) -> None:
    """Draw the control of the decision about the pinned pair, unless the data have it as a positive pair."""
    if st.session_state.pop(DECIDED, False) and (applied := applied_sentence(source.train)):
        st.toast(f"{applied}.", icon=":material/flag:")
    if kind == similarity.COLLISION:
        st.caption(
            "These texts are a positive pair of the data. By the setting Duplicates of the loss, the copy counts as a "
            "negative (keep), together with the positive (merge), or as a further positive (multi_positive)."
        )
    elif kind != similarity.POSITIVE:
        saved = {one.pair: one.decision for one in decide.saved_decisions(source.false_negatives)}.get(pair.texts)
        label = _label(pair.dataset, pair.query_row, pair.document_row)
        if saved is None and label != UNLABELED:
            st.caption(
                f"A row of the data has this pair, with the label {label}. Positive sets the label to 1. Drop leaves "
                "the row out of training."
            )

        def keep_pinned(sentence: str) -> None:
            _pin(number, (pair.dataset, pair.query_row, pair.document_row))
            st.session_state[DECIDED] = True
            st.toast(f"{sentence} The plans are being updated.", icon=":material/flag:")
            revise()

        decide.draw_control(source.false_negatives, pair.texts, saved, key="batches.decide", on_save=keep_pinned)


def draw_pair_tables(batch: BatchView, source: BatchSource) -> None:
    """Draw the hardest negatives, the likely false negatives and all decisions; selecting a row pins its pair."""
    hardest = hardest_negatives(batch.dataset, batch.vectors, batch.rows, top=MAX_LISTED)
    likely = likely_false_negatives(batch.dataset, batch.vectors, batch.rows, top=MAX_LISTED)
    decisions = decide.saved_decisions(source.false_negatives)
    hardest_tab, likely_tab, decisions_tab = st.tabs(TABS, on_change="rerun", **url.tabs(TAB, TABS))
    with hardest_tab:
        labels = {"label": [_label(batch.dataset, one.query_row, one.document_row) for one in hardest]}
        _draw_pairs(batch, hardest, "Hardest in-batch negatives", before=labels)
    with likely_tab:
        number = f"the first {MAX_LISTED}" if len(likely) == MAX_LISTED else str(len(likely))
        left_out = "queries without a positive document and pairs labeled negative are left out"
        st.caption(
            f"{glossary.TERMS['false_negative'].definition} In this batch: {number}; {left_out}. The strongest "
            "evidence is listed first; pairs that are only closer than the positive can be wrong answers."
        )
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
            "query": [display.cell(batch.text("query", one.query_row)) for one in pairs],
            "document": [display.cell(batch.text("document", one.document_row)) for one in pairs],
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
            "label": st.column_config.TextColumn(width=70, help="Label of these two texts in the data, if any."),
        },
        alt=name,
        selection_mode="single-row",
        on_select=lambda: _pin_selected(key, batch, rows),
    )


def _pin_selected(key: str, batch: BatchView, rows: list[tuple[int, int]]) -> None:
    selected = st.session_state[key].selection.rows
    if selected and selected[0] < len(rows):
        _pin(batch.number, (batch.dataset, *rows[selected[0]]))


def _undo(source: BatchSource, texts: TextPair) -> None:
    if source.false_negatives is not None:
        decide.save(source.false_negatives, texts, None, lambda _: revise())


def _draw_decisions(source: BatchSource, decisions: list[Decision]) -> None:
    if not decisions:
        st.caption("The pairs that you have decided appear here, from any batch.")
        return
    columns = ("decision", "query", "document", "who", "when")
    rows = [[one.decision.replace("_", " "), one.query, one.document, one.who, one.when] for one in decisions]
    event = st.dataframe(
        pd.DataFrame(rows, columns=columns),
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
        on_click=lambda: [_undo(source, one.pair) for one in selected],
    )

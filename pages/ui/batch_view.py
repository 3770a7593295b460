"""One batch looked at: the stepper through the batches, and its matrix with the pair that is pinned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.batching import MeasuredPlan, hardest_negatives
from bsc_core.data import PairDataset
from bsc_core.figures import matrix_pixels, similarity, theme
from pages.ui import matrix_canvas, plans, show

BATCH = "batches.batch"
PIN = "batches.pin"
AROUND = "batches.around"
AS_MARKS = 64
"""Pairs up to which the matrix is a chart of single cells; a larger one is an image on a canvas."""
WINDOW = 512
"""Pairs that the matrix shows at most; of a larger batch those around the pinned query."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The batch in view. rows, groups: (B,) in group order. pin: positions (row, column) of the pinned pair."""

    strategy: str
    number: int
    rows: np.ndarray
    groups: np.ndarray
    dataset: PairDataset
    vectors: np.ndarray
    pin: tuple[int, int]

    def text(self, side: str, row: int) -> str:
        """A text of a dataset row; side: query or document."""
        return self.dataset.texts[int(getattr(self.dataset, side)[row])]

    @property
    def pinned_rows(self) -> tuple[int, int]:
        """Dataset rows of the pinned query and of the pinned document."""
        return int(self.rows[self.pin[0]]), int(self.rows[self.pin[1]])


def step(strategy: str, look: MeasuredPlan, dataset: PairDataset, vectors: np.ndarray) -> Batch:
    """The stepper through the batches; returns the batch it stands at."""
    last = len(look.places)
    if BATCH not in st.session_state:
        st.session_state[BATCH] = look.hardest_batch(dataset) + 1
    st.session_state[BATCH] = min(max(1, st.session_state[BATCH]), last)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _arrow("back", -1, last)
        st.number_input(f"Batch, of {theme.count(last)}", 1, last, key=BATCH, width=140)
        _arrow("next", 1, last)
        for name, icon, number in (
            ("Hardest", "local_fire_department", look.hardest_batch(dataset)),
            ("Most suspicious", "flag", look.most_suspicious_batch()),
        ):
            key = f"batches.{name.split()[-1].lower()}"
            st.button(name, key=key, icon=f":material/{icon}:", on_click=_jump, args=(number,))
    number = int(st.session_state[BATCH]) - 1
    rows, groups = plans.by_group(look, number)
    return Batch(strategy, number, rows, groups, dataset, vectors, _pin(rows, dataset, vectors))


def _arrow(name: str, by: int, last: int) -> None:
    icon, words_ = (":material/chevron_left:", "Batch before") if by < 0 else (":material/chevron_right:", "Next batch")
    st.button("", key=f"batches.{name}", icon=icon, help=words_, on_click=_move, args=(by, last))


def _move(by: int, last: int) -> None:
    st.session_state[BATCH] = min(max(1, st.session_state.get(BATCH, 1) + by), last)


def _jump(number: int) -> None:
    st.session_state[BATCH] = number + 1


def _pin(rows: np.ndarray, dataset: PairDataset, vectors: np.ndarray) -> tuple[int, int]:
    """Positions of the pair that was pinned last where this batch holds it; else of the hardest negative."""
    places = {row: place for place, row in enumerate(rows.tolist())}
    query, document = st.session_state.get(PIN, (-1, -1))
    if query in places and document in places:
        return places[query], places[document]
    hardest = hardest_negatives(dataset, vectors, rows, top=1)
    return (places[hardest[0].query_row], places[hardest[0].document_row]) if hardest else (0, 0)


def pin(query_row: int, document_row: int) -> None:
    """Pin a pair, by the rows of the dataset that its texts stand in."""
    st.session_state[PIN] = (int(query_row), int(document_row))


def matrix(batch: Batch) -> None:
    """Draw the matrix; a click on a cell pins its pair."""
    first, last = _window(batch)
    rows = batch.rows[first:last]
    cells = plans.cells(rows, batch.groups[first:last], batch.dataset, batch.vectors)
    picked = (batch.pin[0] - first, batch.pin[1] - first)
    picked = picked if max(picked) < len(rows) and min(picked) >= 0 else (max(0, picked[0]), max(0, picked[0]))
    key = f"batches.cells.{batch.strategy}.{batch.number}.{first}.{len(batch.rows)}"
    with st.container(key="batches.matrix"):
        if len(rows) <= AS_MARKS:
            _chart(batch, cells, picked, key)
        else:
            _canvas(batch, cells, picked, key)


def _window(batch: Batch) -> tuple[int, int]:
    """The positions that are shown: all, or of a large batch WINDOW of them around the pinned query."""
    size = len(batch.rows)
    if size <= WINDOW:
        return 0, size
    first = min(max(0, batch.pin[0] - WINDOW // 2), size - WINDOW)
    st.caption(
        f"Pairs {theme.count(first + 1)} to {theme.count(first + WINDOW)} of {theme.count(size)}, around the pinned "
        "query; pin another in the tables below to move there."
    )
    return first, first + WINDOW


def _chart(batch: Batch, cells: similarity.Cells, picked: tuple[int, int], key: str) -> None:
    table = similarity.batch_table(cells)
    texts = pd.DataFrame({"position": range(len(cells.rows)), **_texts(batch, cells.rows)})
    figure = similarity.batch_matrix(table, texts, hardest=picked)
    name = f"batch-{batch.number + 1}"
    told = sentence(cells)
    show.figure(figure, name=name, alt=told, data=table, select=_on_pin(key, cells.rows, _clicked), key=key)


def _canvas(batch: Batch, cells: similarity.Cells, picked: tuple[int, int], key: str) -> None:
    texts = _texts(batch, cells.rows)
    data = matrix_pixels.pixels(cells, texts["query"], texts["document"])
    told = sentence(cells)
    data |= {"picked": list(picked), "label": f"{told} Move with the arrow keys, pin with Enter."}
    matrix_canvas.draw(data, key=key, on_pin=_on_pin(key, cells.rows, _touched))
    show.table_download(lambda: similarity.batch_table(cells), name=f"batch-{batch.number + 1}", key=f"{key}.data")


def _texts(batch: Batch, rows: np.ndarray) -> dict[str, list[str]]:
    return {side: [batch.text(side, row) for row in rows.tolist()] for side in ("query", "document")}


def _on_pin(key: str, rows: np.ndarray, read: Callable[[str], tuple[int, int] | None]) -> Callable[[], None]:
    def pinned() -> None:
        cell = read(key)
        if cell is not None and max(cell) < len(rows):
            pin(rows[cell[0]], rows[cell[1]])

    return pinned


def _clicked(key: str) -> tuple[int, int] | None:
    """The cell that was clicked in the chart; None where a click took the choice back."""
    found = st.session_state[key].selection.get(similarity.CELL) or []
    return (int(found[0]["row"]), int(found[0]["column"])) if found else None


def _touched(key: str) -> tuple[int, int] | None:
    found = st.session_state[key].get("cell")
    return (int(found[0]), int(found[1])) if found else None


def sentence(cells: similarity.Cells) -> str:
    """What the matrix shows, in one sentence with its numbers."""
    kinds = cells.kinds()
    counted = {name: int((kinds == name).sum()) for name in similarity.MARKED}
    by_hand = counted[similarity.BY_HAND]
    marked = f", {theme.many(by_hand, 'cell')} marked as false negative" if by_hand else ""
    return (
        f"{theme.many(len(cells.rows), 'pair')}, {counted[similarity.OWN]} of them positive; "
        f"{theme.many(counted[similarity.CLOSER], 'wrong document')} nearer to a query than its own, "
        f"{theme.many(counted[similarity.COLLISION], 'cell')} in truth positive{marked}."
    )

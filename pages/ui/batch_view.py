"""One batch looked at: the stepper, its matrix, the pair that is pinned, the hardest negatives, and its groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.batching import HardNegative, KnownPairs, hardest_negatives
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.figures import groups as group_figures
from bsc_core.figures import similarity, theme
from pages.ui import plans, show, words
from pages.ui.plans import Look

BATCH = "batches.batch"
GROUPS_SHOWN = 12
MARKS = "Green: own pair. Orange triangle: nearer than the own document. Pink cross: in truth a positive."


@dataclass(frozen=True, eq=False)
class Batch:
    """The batch in view: its cells in group order, and the dataset and vectors they come from."""

    number: int
    cells: similarity.Cells
    dataset: PairDataset
    vectors: np.ndarray

    def text(self, side: str, row: int) -> str:
        """A text of a dataset row; side: query or document."""
        return self.dataset.texts[int(getattr(self.dataset, side)[row])]


def step(look: Look, dataset: PairDataset, vectors: np.ndarray) -> Batch:
    """The stepper through the batches; returns the batch it stands at."""
    last = len(look.batches)
    if BATCH not in st.session_state:
        _jump(plans.hardest_batch, look, dataset, vectors)
    st.session_state[BATCH] = min(max(1, st.session_state[BATCH]), last)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _arrow("back", -1, last)
        st.number_input(f"Batch, of {last}", 1, last, key=BATCH, width=140)
        _arrow("next", 1, last)
        for name, icon, find in (
            ("Hardest", "local_fire_department", plans.hardest_batch),
            ("Most suspicious", "flag", plans.most_suspicious_batch),
        ):
            key = f"batches.{name.split()[-1].lower()}"
            st.button(name, key=key, icon=f":material/{icon}:", on_click=_jump, args=(find, look, dataset, vectors))
    number = int(st.session_state[BATCH]) - 1
    rows, groups = plans.by_group(look, number)
    return Batch(number, plans.cells(rows, groups, dataset, vectors, KnownPairs(dataset)), dataset, vectors)


def _arrow(name: str, by: int, last: int) -> None:
    icon, words_ = (":material/chevron_left:", "Batch before") if by < 0 else (":material/chevron_right:", "Next batch")
    st.button("", key=f"batches.{name}", icon=icon, help=words_, on_click=_move, args=(by, last))


def _move(by: int, last: int) -> None:
    st.session_state[BATCH] = min(max(1, st.session_state.get(BATCH, 1) + by), last)


def _jump(
    find: Callable[[Look, PairDataset, np.ndarray], int], look: Look, dataset: PairDataset, vectors: np.ndarray
) -> None:
    st.session_state[BATCH] = find(look, dataset, vectors) + 1


def matrix(batch: Batch) -> tuple[int, int]:
    """Draw the matrix and return the pinned cell: the one clicked, else the hardest negative's."""
    cells = batch.cells
    table = similarity.batch_table(cells)
    texts = pd.DataFrame(
        {
            "position": range(len(cells.rows)),
            "query": [batch.text("query", row) for row in cells.rows],
            "document": [batch.text("document", row) for row in cells.rows],
        }
    )
    hardest = _hardest_cell(table)
    figure = similarity.batch_matrix(table, texts, hardest=hardest)
    event = show.figure(
        figure, name=f"batch-{batch.number + 1}", alt=sentence(table), data=table, select=True, key="batches.matrix"
    )
    clicked = event.selection.get(similarity.CELL) or []
    if clicked and clicked[0]["row"] < len(cells.rows) and clicked[0]["column"] < len(cells.rows):
        return int(clicked[0]["row"]), int(clicked[0]["column"])
    return hardest


def _hardest_cell(table: pd.DataFrame) -> tuple[int, int]:
    wrong = table[~table["kind"].isin([similarity.OWN, similarity.OWN_NEGATIVE])]
    asked = wrong[wrong["row"].isin(table.loc[table["kind"] == similarity.OWN, "row"])]
    line = (asked if len(asked) else wrong).sort_values("similarity", ascending=False).iloc[0]
    return int(line["row"]), int(line["column"])


def sentence(table: pd.DataFrame) -> str:
    """What the matrix shows, in one sentence with its numbers."""
    kinds = table["kind"].value_counts()
    size = int(table["row"].max()) + 1
    positive, closer = int(kinds.get(similarity.OWN, 0)), int(kinds.get(similarity.CLOSER, 0))
    crossed = theme.many(int(kinds.get(similarity.COLLISION, 0)), "cell")
    return (
        f"{theme.many(size, 'pair')}, {positive} of them positive; {theme.many(closer, 'wrong document')} "
        f"nearer to a query than its own, {crossed} in truth positive."
    )


def pinned(batch: Batch, cell: tuple[int, int]) -> None:
    """The two texts of the pinned cell, with what is known of them."""
    cells = batch.cells
    row, column = cell
    query, document = int(cells.rows[row]), int(cells.rows[column])
    with st.container(border=True):
        st.markdown(f"**Pinned pair** · {cells.kinds()[row, column]}")
        first, second = st.columns(2)
        first.metric("Cosine", theme.metric(float(cells.similarity[row, column])))
        second.metric("Own document", theme.metric(float(cells.similarity[row, row])), help="The query's own document.")
        show.text(f"Query · line {batch.dataset.line[query]}", batch.text("query", query))
        show.text(f"Document · line {batch.dataset.line[document]}", batch.text("document", document))
        if row != column:
            show.text(f"The query's own document{_label(batch.dataset, query)}", batch.text("document", query))
        st.caption("Click a cell to pin it.")


def _label(dataset: PairDataset, row: int) -> str:
    return "" if dataset.label is None else f" · label {dataset.label[row]:g}"


def negatives(batch: Batch) -> None:
    """Tables of the hardest negatives and of those suspected to be no negatives at all."""
    found = hardest_negatives(batch.dataset, batch.vectors, batch.cells.rows, top=20)
    suspects = [one for one in found if one.suspected]
    hard, false = st.tabs(["Hardest negatives", f"Suspected false negatives ({len(suspects)})"])
    with hard:
        _negatives_table(batch, found, "batches.hard", "No query of this batch is positive, so none has a negative.")
    with false:
        st.caption(words.WORDS["false_negative"].definition)
        _negatives_table(batch, suspects, "batches.false", "None among the hardest 20 of this batch.")


def _negatives_table(batch: Batch, found: list[HardNegative], key: str, nothing: str) -> None:
    if not found:
        st.caption(nothing)
        return
    frame = pd.DataFrame(
        {
            "cosine": [one.similarity for one in found],
            "own": [one.own_similarity for one in found],
            "query": [batch.text("query", one.query_row) for one in found],
            "document": [batch.text("document", one.document_row) for one in found],
            "labelled negative": [one.labelled_negative for one in found],
        }
    )
    numbers = {name: st.column_config.NumberColumn(format="%.3f", width="small") for name in ("cosine", "own")}
    st.dataframe(frame, key=key, hide_index=True, height=300, column_config=numbers, alt="Hardest in-batch negatives")


def group_multiples(batch: Batch, look: Look, config: BatchingConfig) -> None:
    """The batch's groups of two rows or more as small multiples, whole even where the batch's edge cuts them."""
    groups = []
    for group in dict.fromkeys(batch.cells.groups.tolist()):
        rows = plans.group_rows(look, group, config)
        if len(rows) >= 2:
            ids = getattr(batch.dataset, config.by)[rows]
            groups.append((group, rows, batch.vectors[ids], batch.dataset.texts.take(ids)))
    if not groups:
        st.caption(
            "This strategy makes no groups: every row stands alone. With examples, near neighbours stand together."
        )
        return
    table = group_figures.group_table(groups[:GROUPS_SHOWN])
    mean = float(table.loc[table["role"] == group_figures.NEIGHBOUR, "cosine"].mean())
    count = theme.many(len(groups), "group")
    words_ = f"{count} in this batch; neighbours have a mean cosine of {mean:.3f} to their anchor."
    show.figure(group_figures.group_figure(table), name="groups", alt=words_, data=table, key="batches.groups")
    st.caption(words_ + " The distance from the middle is 1 minus cosine; the direction means nothing.")

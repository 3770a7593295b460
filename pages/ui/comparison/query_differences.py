"""Wins and losses between two settings, by query with the texts, or by pair."""

from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import BscError
from bsc_core.evaluation.comparison import QueryDifferences, first_documents
from pages.ui.comparison import settings
from pages.ui.comparison.settings import ComparisonView, Setting
from pages.ui.components import display, run_data, url, users

PARAMETERS = WITH, SHOW = "with", "show"
ORDERS = {"all": "Largest changes", "wins": "Wins", "losses": "Losses"}
MAX_ROWS = 100
WIDTHS = {"Query": 240, "Relevant document": 220, "Document": 240}
TOP, TOP_WIDTH = "Top document, ", 240  # start of a column's name, and pixels


def draw(view: ComparisonView) -> None:
    """Draw a table of the queries or pairs that changed by the selected metric."""
    if view.metric is None or not view.others:
        return
    st.header("Wins and losses", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        other = _select_other(view)
        order = st.segmented_control(
            "Show", list(ORDERS), format_func=ORDERS.__getitem__, default="all", **url.bound(SHOW, ORDERS.values())
        )
    try:
        changes = settings.query_changes(view.base, other, view.split, view.metric)
    except BscError as error:
        reason = display.escaped(users.without_paths(str(error)).removeprefix("comparison: "))
        st.caption(f"Wins and losses are not available: {reason}")
        return
    st.caption(display.escaped(summary_sentence(changes, view, other)))
    selected = select_changes(changes, order or "all")
    if not len(selected):
        st.caption("There are no such queries or pairs.")
        return
    rows = _rows(changes, selected[:MAX_ROWS], view, other)
    widths = WIDTHS | {name: TOP_WIDTH for name in rows[0] if name.startswith(TOP)}
    st.dataframe(
        display.fitted_rows(rows, widths),
        hide_index=True,
        key=f"runs.changes.{view.metric}.{other.key}",
        column_config={name: st.column_config.TextColumn(width=width) for name, width in widths.items()},
        row_height=display.TEXT_ROW,
        alt="Queries on which the settings differ, with their texts",
    )
    display.csv_button(lambda: _rows(changes, selected, view, other), name="wins-and-losses", key="runs.changes.save")


def _select_other(view: ComparisonView) -> Setting:
    """Return the setting that is compared with the base."""
    names = {one.key: one.name for one in view.others}
    key = settings.select("Setting", names, WITH) if len(names) > 1 else view.others[0].key
    return next(one for one in view.others if one.key == key)


def url_parameters(view: ComparisonView) -> list[tuple[str, str]]:
    """Return the selection of this table as the URL stores it, without defaults."""
    other = next((one.name for one in view.others if one.key == st.session_state.get(WITH)), None)
    order = st.session_state.get(SHOW)
    shown = [(SHOW, ORDERS[order])] if order in ORDERS and order != "all" else []
    return ([(WITH, other)] if other and len(view.others) > 1 else []) + shown


def summary_sentence(changes: QueryDifferences, view: ComparisonView, other: Setting) -> str:
    """Return how many queries or pairs are better, worse and equal."""
    wins, losses = len(changes.wins()), len(changes.losses())
    equal = len(changes.rows) - wins - losses
    noun = ("query", "queries") if changes.unit == "query" else ("pair", "pairs")
    sentence = (
        f"Compared with {view.base.name}, {other.name} is better on {formatting.count(wins)}, worse on "
        f"{formatting.count(losses)} and equal on {formatting.count(equal)} of "
        f"{formatting.plural(len(changes.rows), *noun)}."
    )
    if changes.unit == "pair":
        metric = formatting.metric_name(view.metric or "")
        sentence += f" {metric} is computed over all pairs; the table shows the score of each, 0 to 1 (best)."
    return sentence + (f" The first {MAX_ROWS} are shown; the download has all." if wins + losses > MAX_ROWS else "")


def select_changes(changes: QueryDifferences, order: str) -> np.ndarray:
    """Return positions in `changes`, the largest changes first: (n,)."""
    if order == "wins":
        return changes.wins()
    if order == "losses":
        return changes.losses()
    by_size = np.argsort(-np.abs(changes.gained), kind="stable")
    changed: np.ndarray = by_size[changes.gained[by_size] != 0]
    return changed


def _rows(
    changes: QueryDifferences, selected: np.ndarray, view: ComparisonView, other: Setting
) -> list[dict[str, Any]]:
    """Return a table row per position, with its texts if the data can still be read."""
    data = _data(view.base)
    rows = [_row(changes, position, view, other, data) for position in selected.tolist()]
    if data is not None and changes.unit == "query":
        for setting in (view.base, other):
            top = _top_documents(setting, view.split, changes.rows[selected])
            for row, text in zip(rows, top, strict=False):
                row[f"{TOP}{setting.name}"] = text
    return rows


def _row(
    changes: QueryDifferences, position: int, view: ComparisonView, other: Setting, data: DatasetSplits | None
) -> dict[str, Any]:
    row = int(changes.rows[position])
    values = {
        view.base.name: formatting.metric(float(changes.first[position])),
        other.name: formatting.metric(float(changes.second[position])),
        "Change": formatting.signed(float(changes.gained[position])),
    }
    if data is None:
        return {"Row": row + 1, **values}
    part = data.splits[view.split]
    query, document = (data.texts[int(column[row])] for column in (part.query, part.document))
    if changes.first_cosine is None or changes.second_cosine is None:
        relevant = document if part.positive[row] else _relevant_document(data, view.split, row)
        return {"Query": query, "Relevant document": relevant, **values}
    label = 1.0 if part.label is None else float(part.label[row])
    cosines = {
        f"Cosine {view.base.name}": f"{changes.first_cosine[position]:.3f}",
        f"Cosine {other.name}": f"{changes.second_cosine[position]:.3f}",
    }
    return {"Query": query, "Document": document, "Label": f"{label:.2f}", **cosines, **values}


def _relevant_document(data: DatasetSplits, split: str, row: int) -> str:
    """Return the first relevant document of a row's query."""
    part = data.splits[split]
    rows = np.flatnonzero((part.query_group == part.query_group[row]) & part.positive)
    return data.texts[int(part.document[rows[0]])] if len(rows) else "none"


def _data(setting: Setting) -> DatasetSplits | None:
    """Return the evaluated rows; None, with a message, if they cannot be read."""
    try:
        return run_data.load_splits(setting.runs[0])
    except BscError as error:
        st.caption(f"The texts cannot be shown: {display.escaped(users.without_paths(str(error)))}")
        return None


def _top_documents(setting: Setting, split: str, rows: np.ndarray) -> list[str]:
    """Return the top document of the setting's first run for the query of each row; empty without vectors."""
    run = setting.runs[0]
    vectors = run.embeddings(setting.when)
    if vectors is None:
        return []
    try:
        data = run_data.load_splits(run)
    except BscError:
        return []
    return data.texts.take(first_documents(vectors, data.splits[split], data.corpus, rows))

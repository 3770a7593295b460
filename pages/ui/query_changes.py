"""Wins and losses between two settings, query by query with the texts, or pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from pages.ui import compared, run_data, show
from pages.ui.compare_view import View
from pages.ui.compared import Setting

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData
    from bsc_core.evaluation.changes import Changes

WITH, SHOW = "with", "show"
ORDERS = {"all": "Largest changes", "wins": "Wins", "losses": "Losses"}
MOST = 100
WIDTHS = {"Query": 240, "Right document": 220, "Document": 240}


def draw(view: View) -> None:
    """The table of what was won and lost by the chosen metric."""
    if view.metric is None or not view.others:
        return
    st.subheader("Wins and losses", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        other = _other(view)
        order = st.segmented_control(
            "Show", list(ORDERS), format_func=ORDERS.__getitem__, default="all", key=SHOW, bind="query-params"
        )
    try:
        found = compared.changed(view.base, other, view.split, view.metric)
    except BscError as fault:
        st.caption(f"No wins and losses: {str(fault).removeprefix('comparison: ')}")
        return
    st.caption(sentence(found, view, other))
    places = chosen(found, order or "all")
    if not len(places):
        st.caption("None.")
        return
    lines = table(found, places[:MOST], view, other)
    st.dataframe(
        lines,
        hide_index=True,
        key=f"runs.changes.{view.metric}.{other.key}",
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Queries on which the settings differ, with their texts",
    )
    show.table_download(
        lambda: _frame(table(found, places, view, other)), name="wins-and-losses", key="runs.changes.save"
    )


def _other(view: View) -> Setting:
    """Which of the others is looked at."""
    names = {one.key: one.name for one in view.others}
    if len(names) == 1:
        return view.others[0]
    if st.session_state.get(WITH) not in names:
        st.session_state.pop(WITH, None)
    key = st.selectbox("Setting", list(names), format_func=names.__getitem__, key=WITH, bind="query-params")
    return next((one for one in view.others if one.key == key), view.others[0])


def asked(view: View) -> list[tuple[str, str]]:
    """The choices of this table as they stand in the URL; those that are the first of their kind are left out."""
    other = next((one.name for one in view.others if one.key == st.session_state.get(WITH)), None)
    order = st.session_state.get(SHOW)
    shown = [(SHOW, ORDERS[order])] if order in ORDERS and order != "all" else []
    return ([(WITH, other)] if other and len(view.others) > 1 else []) + shown


def sentence(found: Changes, view: View, other: Setting) -> str:
    """How many were won and lost, and of what the numbers are."""
    wins, losses = len(found.wins()), len(found.losses())
    equal = len(found.rows) - wins - losses
    noun = ("query", "queries") if found.unit == "query" else ("pair", "pairs")
    told = (
        f"Of {theme.many(len(found.rows), *noun)} {other.name} is better on {theme.count(wins)}, worse on "
        f"{theme.count(losses)} and equal on {theme.count(equal)}, against {view.base.name}."
    )
    if found.unit == "pair":
        told += f" No single pair has {view.metric}: the numbers say how well each stands, 1 at best."
    return told + (f" The first {MOST} are shown; the file has all." if wins + losses > MOST else "")


def chosen(found: Changes, order: str) -> np.ndarray:
    """Places of `found`, the largest changes first: (n,)."""
    if order == "wins":
        return found.wins()
    if order == "losses":
        return found.losses()
    places = np.argsort(-np.abs(found.gained), kind="stable")
    moved: np.ndarray = places[found.gained[places] != 0]
    return moved


def table(found: Changes, places: np.ndarray, view: View, other: Setting) -> list[dict[str, Any]]:
    """One line for each place, with its texts where the data can still be read."""
    data = _data(view.base)
    lines = [_line(found, place, view, other, data) for place in places.tolist()]
    if data is not None and found.unit == "query":
        for setting in (view.base, other):
            first = _first(setting, view.split, found.rows[places])
            for line, text in zip(lines, first, strict=False):
                line[f"First by {setting.name}"] = text
    return lines


def _line(found: Changes, place: int, view: View, other: Setting, data: ExperimentData | None) -> dict[str, Any]:
    row = int(found.rows[place])
    numbers = {
        view.base.name: theme.metric(float(found.first[place])),
        other.name: theme.metric(float(found.second[place])),
        "Change": theme.change(float(found.gained[place])),
    }
    if data is None:
        return {"Row": row + 1, **numbers}
    part = data.parts[view.split]
    query, document = data.texts[int(part.query[row])], data.texts[int(part.document[row])]
    if found.first_cosine is None or found.second_cosine is None:
        return {
            "Query": query,
            "Right document": document if part.positive[row] else _right(data, view.split, row),
            **numbers,
        }
    label = 1.0 if part.label is None else float(part.label[row])
    cosines = {
        f"Cosine {view.base.name}": f"{found.first_cosine[place]:.3f}",
        f"Cosine {other.name}": f"{found.second_cosine[place]:.3f}",
    }
    return {"Query": query, "Document": document, "Label": f"{label:.2f}", **cosines, **numbers}


def _right(data: ExperimentData, split: str, row: int) -> str:
    """The first right document of a row's query."""
    part = data.parts[split]
    rows = np.flatnonzero((part.query_group == part.query_group[row]) & part.positive)
    return data.texts[int(part.document[rows[0]])] if len(rows) else "none is right"


def _data(setting: Setting) -> ExperimentData | None:
    """The rows that were measured; None, saying why, where they cannot be read any more."""
    try:
        return run_data.rows_of(setting.runs[0])
    except BscError as fault:
        st.caption(f"The texts cannot be shown: {fault}")
        return None


def _first(setting: Setting, split: str, rows: np.ndarray) -> list[str]:
    """What the first run of a setting puts first for the query of each row; empty where its vectors are gone."""
    from bsc_core.evaluation.changes import first_documents

    run = setting.runs[0]
    vectors = run.array(f"embeddings_{setting.when}")
    if vectors is None:
        return []
    try:
        data = run_data.rows_of(run)
    except BscError:
        return []
    return data.texts.take(first_documents(vectors, data.parts[split], data.corpus, rows))


def _frame(lines: list[dict[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(lines)

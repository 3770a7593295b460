"""Where a model fails: the queries whose gold document it does not put first, and what it put there."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from pages.ui.searching import QUERY, Search

MOST_FAILURES = 200
WIDTHS = {"Query": 230, "Rank left": 70, "Rank right": 76, "Gold": 210, "Came first": 210}


def failures(search: Search) -> list[dict[str, Any]]:
    """Queries whose gold the right model does not put first, the worst first, with what came first instead."""
    result = search.results[1]
    far = len(search.task.corpus) + 1
    ranked = np.where(result.first_rank > 0, result.first_rank, far)
    worst = [place for place in np.argsort(-ranked, kind="stable").tolist() if ranked[place] != 1]
    return [_failure(search, place) for place in worst[:MOST_FAILURES]]


def _failure(search: Search, place: int) -> dict[str, Any]:
    vectors = search.models[1].vectors()
    query, gold = vectors[search.task.query[place]], search.task.relevant(place)
    first = int(search.results[1].top_ids[place, 0])
    cosines = [_cosine(query, vectors[search.task.corpus[position]]) for position in gold.tolist()]
    best = int(np.argmax(cosines)) if cosines else None
    return {
        "Query": search.text(search.task.query[place]),
        "Rank left": _rank(search.results[0].first_rank[place]),
        "Rank right": _rank(search.results[1].first_rank[place]),
        "Gold": search.text(search.task.corpus[gold[best]]) if best is not None else "not in the corpus",
        "Came first": search.text(first),
        "Cosine of gold": f"{cosines[best]:.3f}" if best is not None else "",
        "Cosine of first": f"{_cosine(query, vectors[first]):.3f}",
    }


def _rank(value: int) -> str:
    return str(int(value)) if value else "none"


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def table(search: Search, split: str) -> None:
    """The failures as a table; choosing one searches for it."""
    lines = failures(search)
    total = theme.many(len(search.task.query), "query", "queries")
    st.subheader(f"Where the right model fails: {theme.count(len(lines))} of {total}", anchor=False)
    if not lines:
        st.caption("Gold comes first for every query.")
        return
    key = f"retrieval.failures.{search.models[1].key}.{search.models[0].key}.{split}"
    st.dataframe(
        lines,
        key=key,
        on_select=lambda: _take(key, [line["Query"] for line in lines]),
        selection_mode="single-row",
        hide_index=True,
        height=320,
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Queries whose gold document is not first, with what came first",
    )


def _take(key: str, queries: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        st.session_state[QUERY] = queries[rows[0]]

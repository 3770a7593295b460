"""Where a model fails: queries whose gold is not first, what came first, and why that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from pages.ui.searching import QUERY, Search

if TYPE_CHECKING:
    from bsc_core.evaluation.failures import Failure

MOST_FAILURES = 200
WIDTHS = {"Query": 196, "Gold": 196, "Came first": 196, "Why": 220, "Rank left": 72, "Rank right": 78}
ABOUT_WHY = "What texts and labels tell of the document that came first. Whether it is wrong, a person decides."


def failures(search: Search) -> list[dict[str, Any]]:
    """Queries whose gold the right model does not put first, the worst first, with what came first instead."""
    return [_line(search, failure) for failure in _found(search.stamp, search)]


@st.cache_resource(max_entries=8, show_spinner=False)
def _found(stamp: tuple[str, ...], _search: Search) -> list[Failure]:
    from bsc_core.evaluation.failures import find_failures

    vectors = _search.models[1].vectors()
    return find_failures(_search.task, _search.results[1], _search.dataset, vectors, most=MOST_FAILURES)


def _line(search: Search, failure: Failure) -> dict[str, Any]:
    corpus, near = search.task.corpus, failure.gold_cosine
    return {
        "Query": search.text(search.task.query[failure.query]),
        "Gold": "not in the corpus" if failure.gold is None else search.text(corpus[failure.gold]),
        "Came first": search.text(corpus[failure.first]),
        "Why": failure.cause.value,
        "Rank left": _rank(search.results[0].first_rank[failure.query]),
        "Rank right": _rank(failure.rank),
        "Cosine of gold": "" if near is None else f"{near:.3f}",
        "Cosine of first": f"{failure.first_cosine:.3f}",
    }


def _rank(value: int) -> str:
    return str(int(value)) if value else "none"


def table(search: Search, split: str) -> None:
    """The failures as a table; choosing one searches for it."""
    lines = failures(search)
    count = int((search.results[1].first_rank != 1).sum())
    queries, documents = theme.many(len(search.task.query), "query", "queries"), theme.count(len(search.task.corpus))
    st.caption(
        f"Of {queries}, gold is not first on the right for {theme.count(count)}; {documents} documents are searched."
    )
    if not lines:
        st.caption("Nothing comes before gold.")
        return
    causes, counts = np.unique([line["Why"] for line in lines], return_counts=True)
    kinds = st.pills(
        "Why",
        [causes[place] for place in np.argsort(-counts, kind="stable")],
        selection_mode="multi",
        key=f"retrieval.causes.{search.models[1].key}.{split}",
        format_func=lambda cause: f"{cause} · {counts[causes == cause][0] if cause in causes else 0}",
        help=ABOUT_WHY,
    )
    shown = [line for line in lines if not kinds or line["Why"] in kinds]
    key = f"retrieval.failures.{search.models[1].key}.{search.models[0].key}.{split}.{'.'.join(kinds)}"
    st.dataframe(
        shown,
        key=key,
        on_select=lambda: take(key, [line["Query"] for line in shown]),
        selection_mode="single-row",
        hide_index=True,
        height=min(360, 38 + 36 * len(shown)),
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Queries whose gold document is not first, with what came first and why that may be",
    )
    if count > len(lines):
        st.caption(f"The {theme.count(len(lines))} worst are shown. Choose a row to search for its query.")
    else:
        st.caption("Choose a row to search for its query.")


def take(key: str, queries: list[str]) -> None:
    """Search for the query of the row that was chosen in the table of this key."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        st.session_state[QUERY] = queries[rows[0]]

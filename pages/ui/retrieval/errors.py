"""Retrieval errors: queries whose relevant document is not ranked first, with a probable cause."""

from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation.retrieval.failures import Cause, Failure, find_failures
from pages.ui.components import display, turns, url
from pages.ui.retrieval.search import CACHE_KEY, Search, search_for

MAX_ERRORS = 200
ACTIONS = {  # what a user can do about a cause
    Cause.ABSENT: "Add the document to the corpus, or correct the document ids.",
    Cause.LABELED: "The model fails here. Train with more hard negatives, for example with the strategy nearest.",
    Cause.NEAR_GOLD: "Probably relevant. Label both documents as relevant, or remove one of them.",
    Cause.NEAR_QUERY: "Read the top document. If it answers this query too, label it as relevant.",
    Cause.TIE: "Compare both documents. If their texts are equal, keep one of them.",
    Cause.WORDS: "Read the top document. If it is not relevant, add it to the data as a negative of this query.",
    Cause.UNJUDGED: "Read the top document. Label it as relevant or as a negative of this query.",
}
WIDTHS = {"Query": 196, "Relevant document": 196, "Top document": 196, "Cause": 220, "Rank left": 72, "Rank right": 78}


def error_rows(search: Search) -> list[dict[str, Any]]:
    """Return a table row with the whole texts per error of the right model, the worst first."""
    return [_row(search, failure) for failure in _failures(search)]


@turns.cached(max_entries=8, show_spinner=False, hash_funcs=CACHE_KEY)
def _failures(search: Search) -> list[Failure]:
    vectors = search.models[1].vectors()
    return find_failures(search.task, search.results[1], search.dataset, vectors, max_failures=MAX_ERRORS)


def _row(search: Search, failure: Failure) -> dict[str, Any]:
    corpus, cosine = search.task.corpus, failure.gold_cosine
    query, first, gold = search.task.query[failure.query], corpus[failure.first], failure.gold
    return {
        "Query": search.text(query),
        "Relevant document": "not in the corpus" if gold is None else search.text(corpus[gold]),
        "Top document": search.text(first),
        "Cause": failure.cause.value,
        "Rank left": rank_text(search.results[0].first_rank[failure.query]),
        "Rank right": rank_text(failure.rank),
        "Cosine relevant": "" if cosine is None else f"{cosine:.3f}",
        "Cosine top": f"{failure.first_cosine:.3f}",
    }


def rank_text(rank: int) -> str:
    """Format a rank; 0 means none."""
    return str(int(rank)) if rank else "none"


def draw(search: Search, split: str) -> None:
    """Draw the errors as a table; selecting one searches for its query."""
    rows = error_rows(search)
    if search.single:
        rows = [{name: value for name, value in row.items() if name != "Rank left"} for row in rows]
        rows = [{"Rank" if name == "Rank right" else name: value for name, value in row.items()} for row in rows]
    count = int((search.results[1].first_rank != 1).sum())
    queries = formatting.plural(len(search.task.query), "query", "queries")
    documents = formatting.plural(len(search.task.corpus), "document")
    model = "The model" if search.single else "The model on the right"
    st.caption(
        f"{model} does not rank a relevant document first for {formatting.count(count)} of {queries} "
        f"({documents} searched).",
        help="Probable cause of each, derived from the texts and labels of the top document. Check it yourself.",
    )
    if not rows:
        st.caption("There are no errors.")
        return
    causes, counts = np.unique([row["Cause"] for row in rows], return_counts=True)
    by_count = [causes[position] for position in np.argsort(-counts, kind="stable")]

    def label(cause: str) -> str:
        return f"{cause} · {counts[causes == cause][0] if cause in causes else 0}"

    selected = st.pills(
        "Cause",
        by_count,
        selection_mode="multi",
        format_func=label,
        label_visibility="collapsed",
        **url.bound(f"retrieval.causes.{search.models[1].key}.{split}", map(label, by_count)),
    )
    st.caption(
        "\n".join(f"- {cause}: {ACTIONS[Cause(cause)]}" for cause in by_count if cause in (selected or by_count))
    )
    shown = [row for row in rows if not selected or row["Cause"] in selected]
    key = f"retrieval.failures.{search.models[1].key}.{search.models[0].key}.{split}.{'.'.join(selected)}"
    st.dataframe(
        display.fitted_rows(shown, WIDTHS),
        key=key,
        on_select=lambda: search_selected(key, [row["Query"] for row in shown]),
        selection_mode="single-row",
        hide_index=True,
        height=min(420, 38 + (display.TEXT_ROW + 1) * len(shown)),
        row_height=display.TEXT_ROW,
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Queries whose relevant document is not first, with the top document and a probable cause",
    )
    worst = f"The {formatting.count(len(rows))} worst are shown. " if count > len(rows) else ""
    side = "" if search.single else " on the right"
    st.caption(f"{worst}Sorted by the rank{side}. Select a row to search for its query.")
    display.csv_button(shown, name="retrieval_errors", key="retrieval.failures.data")


def search_selected(key: str, queries: list[str]) -> None:
    """Search for the query of the selected row of a table."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        search_for(queries[rows[0]])

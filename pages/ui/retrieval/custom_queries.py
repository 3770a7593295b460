"""User-supplied queries: the answers of both models, with metrics where relevant documents are known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.data.queries import QuerySet, parse_queries, read_queries
from bsc_core.errors import InputError
from bsc_core.evaluation import rank
from bsc_core.evaluation.retrieval.adhoc_queries import adhoc_task, answer_overlap
from bsc_core.neighbors import TextRows, top_k
from pages.ui.components import display, run_data, turns, url, users
from pages.ui.data import uploads
from pages.ui.retrieval import metric_cards
from pages.ui.retrieval.search import (
    CACHE_KEY,
    LINES,
    MAX_IN_URL,
    TOP,
    Search,
    rank_text,
    search_selected,
    searched_documents,
)

STUDENT_CHARACTERS = 20_000  # of pasted queries
SUFFIXES = ["csv", "tsv", "jsonl", "txt", "gz", "parquet"]
WIDTHS = {"Query": 240, "Top document, left": 240, "Top document, right": 240, "Shared": 80, "Rank left": 80}


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of both models to Q queries."""

    first: np.ndarray  # (2, Q) positions of the top documents among those that were searched
    shared: np.ndarray  # (Q,) share of the top documents that both models return
    ranks: np.ndarray  # (2, Q) rank of the first relevant document, 0 if there is none
    cards: list[metric_cards.MetricCard]  # of the queries with a known relevant document
    listed: int  # length of each result list: 10, or fewer if there are fewer documents
    missing: int  # number of relevant documents that were not searched


def draw(search: Search) -> None:
    """Draw the inputs and the answers of both models."""
    queries = _read_queries()
    if queries is None:
        return
    answers = answer_queries(search, queries)
    _draw_summary(search, queries, answers)
    if answers.cards:
        st.caption("Queries with a known relevant document:")
        metric_cards.draw_cards(answers.cards, metric_cards.RANKED, single=search.single)
    rows = answer_rows(search, queries, answers)
    key = "retrieval.own.table"
    st.dataframe(
        display.fitted_rows(rows, WIDTHS),
        key=key,
        on_select=lambda: search_selected(key, list(queries.texts)),
        selection_mode="single-row",
        hide_index=True,
        height=min(420, 38 + (display.TEXT_ROW + 1) * len(rows)),
        row_height=display.TEXT_ROW,
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Your queries with the top documents of both models",
    )
    st.caption("Select a row to open its results.")
    display.csv_button(rows, name="your_queries", key="retrieval.own.data")


def _read_queries() -> QuerySet | None:
    """Return the queries of the file, else of the pasted lines; None if both are empty."""
    left, right = display.columns(2, min_width=300)
    file = users.current_user().may_launch and left.file_uploader(
        "Upload queries (CSV, TSV, JSONL, Parquet, or .txt with one per line)",
        SUFFIXES,
        key="retrieval.own.file",
        help="A column `query`, and optionally a column `document` with the relevant document, whose text must be in "
        "the corpus. Files may be compressed (.gz). Nothing leaves this machine.",
    )
    if LINES not in st.session_state or url.is_history_navigation():
        st.session_state[LINES] = st.query_params.get(LINES, "")
    pasted = right.text_area(
        "Or paste queries, one per line",
        key=LINES,
        on_change=_write_lines,
        height=150,
        placeholder="how do I keep bread fresh",
        help="To add the relevant document, separate it from the query with a tab.",
    )
    if len(pasted) > MAX_IN_URL:
        st.caption("These queries are too long for the link; it opens the page without them.")
    with display.show_errors(stop=False):
        if file:
            return read_queries(uploads.save_file(file.name, file.getvalue()))
        if pasted.strip():
            if len(pasted) > STUDENT_CHARACTERS and not users.current_user().may_launch:
                raise InputError(f"paste at most {STUDENT_CHARACTERS:,} characters; the server is shared")
            return parse_queries(pasted)
    return None


def _write_lines() -> None:
    """Write the pasted queries into the URL, unless they are too long for a link."""
    pasted = st.session_state[LINES]
    display.write_url({LINES: pasted} if pasted.strip() and len(pasted) <= MAX_IN_URL else {}, (LINES,))


QUERIES_KEY = {QuerySet: lambda queries: (queries.texts, queries.gold)}


@st.cache_resource(max_entries=8, show_spinner="Searching with both models …", hash_funcs=CACHE_KEY | QUERIES_KEY)
def answer_queries(search: Search, queries: QuerySet) -> Answers:
    """Answer the queries with both models, cached across sessions."""
    documents = [TextRows(vectors, search.documents) for vectors in search.vectors]
    encoded = [run_data.encode_queries(model, list(queries.texts)) for model in search.models]
    known = np.flatnonzero([bool(one) for one in queries.gold])
    with turns.turn(draw=False):
        tops = [top_k(vectors, corpus, TOP)[0] for vectors, corpus in zip(encoded, documents, strict=True)]
        task = adhoc_task([queries.gold[row] for row in known], [search.text(text) for text in search.documents])
        results = [rank(vectors[known], corpus, task) for vectors, corpus in zip(encoded, documents, strict=True)]
    ranks = np.zeros((2, len(queries.texts)), dtype=np.int32)
    ranks[:, known] = [result.first_rank for result in results]
    cards = []
    if len(known):
        cards = metric_cards.query_cards(results[0].per_query, results[1].per_query, metric_cards.RANKED)
    first, listed = np.stack([top[:, 0] for top in tops]), tops[0].shape[1]
    return Answers(first, answer_overlap(*tops), ranks, cards, listed, task.missing)


def _draw_summary(search: Search, queries: QuerySet, answers: Answers) -> None:
    same = int((answers.first[0] == answers.first[1]).sum())
    known = "no relevant documents are known"
    if queries.with_gold:
        known = f"{formatting.plural(queries.with_gold, 'query has', 'queries have')} a relevant document"
    both = (
        f" Both models return the same top document for {formatting.plural(same, 'query', 'queries')}; on average, "
        f"{formatting.percent(float(answers.shared.mean()))} of their first {answers.listed} documents are the same."
    )
    total = formatting.plural(len(queries), "query", "queries")
    st.caption(f"{total}; {known}. Searched: {searched_documents(search)}.{'' if search.single else both}")
    if answers.missing:
        missing = formatting.plural(answers.missing, "relevant document is", "relevant documents are")
        st.caption(f"{missing} not in the corpus and counted as not retrieved.")
    if queries.rejected:
        first = display.escaped("; ".join(rejection.sentence() for rejection in queries.rejected[:3]))
        st.caption(f"{formatting.plural(len(queries.rejected), 'row')} left out: {first}.")


def answer_rows(search: Search, queries: QuerySet, answers: Answers) -> list[dict[str, Any]]:
    """Return a table row per query: top documents, overlap, and ranks of the relevant document."""
    rows = []
    for number, query in enumerate(queries.texts):
        first = [search.text(search.documents[position]) for position in answers.first[:, number]]
        row = {"Query": query, "Top document, left": first[0], "Top document, right": first[1]}
        row["Shared"] = f"{answers.shared[number] * answers.listed:.0f} of {answers.listed}"
        if queries.with_gold:
            known = bool(queries.gold[number])
            ranks = [rank_text(rank) if known else "" for rank in answers.ranks[:, number]]
            row |= {"Rank left": ranks[0], "Rank right": ranks[1]}
        rows.append(row)
    if search.single:
        single = {"Query": "Query", "Top document, left": "Top document", "Rank left": "Rank"}
        return [{single[name]: value for name, value in row.items() if name in single} for row in rows]
    return rows

"""Queries that a visitor brings: asked of both models at once, with metrics where the right documents are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from pages.ui import failing, metric_cards, run_data, show, uploads
from pages.ui.searching import TOP, Search

if TYPE_CHECKING:
    from bsc_core.data.asked import AskedQueries

SUFFIXES = ["csv", "tsv", "jsonl", "txt", "gz", "parquet"]
WIDTHS = {"Query": 240, "First on the left": 240, "First on the right": 240, "Shared": 80, "Rank left": 80}


@dataclass(frozen=True, eq=False)
class Answers:
    """What both models answer. first: (2, Q) positions in the corpus; shared: (Q,) share of the first ten that both
    name; ranks: (2, Q) of the first right document, 0 for none; cards: of the queries whose right document is known;
    listed: documents in each list, the first ten or the whole corpus; missing: right documents that it lacks."""

    first: np.ndarray
    shared: np.ndarray
    ranks: np.ndarray
    cards: list[metric_cards.Card]
    listed: int
    missing: int


def draw(search: Search) -> None:
    """Bring a file or lines, and see what both models answer."""
    asked = _brought()
    if asked is None:
        return
    answers = answered(search, asked)
    _tell(asked, answers)
    if answers.cards:
        st.caption("The queries whose right document is known:")
        metric_cards.draw(answers.cards, metric_cards.RANKED)
    lines = table(search, asked, answers)
    key = "retrieval.own.table"
    st.dataframe(
        lines,
        key=key,
        on_select=lambda: failing.take(key, list(asked.texts)),
        selection_mode="single-row",
        hide_index=True,
        height=min(360, 38 + 36 * len(lines)),
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        alt="Your queries with what both models put first",
    )
    st.caption("Choose a row to see its whole answer above.")
    show.table_download(lambda: _frame(lines), name="own_queries", key="retrieval.own.data")


def _brought() -> AskedQueries | None:
    """The queries of the file, else of the pasted lines; None while there is neither."""
    from bsc_core.data.asked import pasted_queries, read_queries

    left, right = show.columns(2, least=300)
    file = left.file_uploader(
        "A file of queries: CSV, TSV, JSONL (also .gz), Parquet, or one a line as .txt",
        SUFFIXES,
        key="retrieval.own.file",
        help="A column `query`, and a column `document` with the right answer where it is known; its text must stand "
        "among the documents that are searched. Nothing leaves this machine.",
    )
    pasted = right.text_area(
        "or queries, one a line",
        key="retrieval.own.lines",
        height=100,
        placeholder="how do I keep bread fresh",
        help="A tab parts a query from its right document.",
    )
    with show.calm_errors(stop=False):
        if file is not None:
            return read_queries(uploads.save_file(file.name, file.getvalue()))
        if pasted.strip():
            return pasted_queries(pasted)
    return None


def answered(search: Search, asked: AskedQueries) -> Answers:
    """What both models answer; once for all sessions."""
    return _answered(asked.texts, asked.gold, search.stamp, search)


@st.cache_resource(max_entries=8, show_spinner="Asking both models …")
def _answered(
    texts: tuple[str, ...], gold: tuple[tuple[str, ...], ...], stamp: tuple[str, ...], _search: Search
) -> Answers:
    from bsc_core.evaluation import TextRows, rank, search
    from bsc_core.evaluation.asking import asked_task, shared_answers

    documents = [TextRows(model.vectors(), _search.task.corpus) for model in _search.models]
    queries = [run_data.encode_texts(model, list(texts)) for model in _search.models]
    tops = [search(mine, corpus, top=TOP)[0] for mine, corpus in zip(queries, documents, strict=True)]
    told = np.flatnonzero([bool(found) for found in gold])
    task = asked_task([gold[place] for place in told], [_search.text(text) for text in _search.task.corpus])
    results = [rank(mine[told], corpus, task) for mine, corpus in zip(queries, documents, strict=True)]
    ranks = np.zeros((2, len(texts)), dtype=np.int32)
    ranks[:, told] = [result.first_rank for result in results]
    cards = (
        metric_cards.of_queries(results[0].per_query, results[1].per_query, metric_cards.RANKED) if len(told) else []
    )
    first, listed = np.stack([top[:, 0] for top in tops]), tops[0].shape[1]
    return Answers(first, shared_answers(*tops), ranks, cards, listed, task.missing)


def _tell(asked: AskedQueries, answers: Answers) -> None:
    same = int((answers.first[0] == answers.first[1]).sum())
    told = (
        f"{theme.many(asked.told, 'query has', 'queries have')} a right document" if asked.told else "no gold is known"
    )
    st.caption(
        f"{theme.many(len(asked), 'query', 'queries')}, {told}. Both models put the same document first for "
        f"{theme.count(same)}, and share {theme.share(float(answers.shared.mean()))} of their first {answers.listed}."
    )
    if answers.missing:
        lost = theme.many(answers.missing, "right document is", "right documents are")
        st.caption(f"{lost} not in the corpus: no model can find what is not there, so each counts as not found.")
    if asked.rejected:
        first = "; ".join(fault.sentence() for fault in asked.rejected[:3])
        st.caption(f"{theme.many(len(asked.rejected), 'row')} left out: {first}.")


def table(search: Search, asked: AskedQueries, answers: Answers) -> list[dict[str, Any]]:
    """One line a query: what both models put first, how much they share, and where gold stands."""
    lines = []
    for place, query in enumerate(asked.texts):
        first = [search.text(search.task.corpus[position]) for position in answers.first[:, place]]
        line = {"Query": query, "First on the left": first[0], "First on the right": first[1]}
        line |= {"Shared": f"{answers.shared[place] * answers.listed:.0f} of {answers.listed}"}
        if asked.told:
            known = (
                [str(rank) if rank else "none" for rank in answers.ranks[:, place]] if asked.gold[place] else ["", ""]
            )
            line |= {"Rank left": known[0], "Rank right": known[1]}
        lines.append(line)
    return lines


def _frame(lines: list[dict[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(lines)

"""Retrieval errors: queries whose relevant document is not ranked first, with a probable cause."""

from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation.retrieval.failures import Cause, Failure, find_failures
from pages.ui.components import display, page_layout, run_data, turns, url, users
from pages.ui.retrieval.search import CACHE_KEY, Search, rank_text, search_selected

MAX_ERRORS = 200
ADVICE = {  # what a cause means, and what a user can do about it
    Cause.ABSENT: "No model can return this document. Add it to the file of the corpus, or correct the document ids.",
    Cause.LABELED: "The model is wrong here.",
    Cause.NEAR_GOLD: "The top document is probably relevant too. Label both as relevant in the dataset, or remove one.",
    Cause.NEAR_QUERY: "If the top document answers this query too, add the pair to the dataset as positive.",
    Cause.TIE: "The cosines are equal, so their order is arbitrary. If the texts are equal too, remove one of them.",
    Cause.WORDS: "If the top document is not relevant, the model ranks by common words. Add such pairs to the training "
    "rows as negatives, unless their negatives already contain more words of the query than positives do (Data page).",
    Cause.UNJUDGED: "The top document may be relevant. If it is, add the pair to the dataset as positive.",
}
TO_DATA = {cause for cause in Cause if cause is not Cause.LABELED}  # what can be done is in the files of the dataset
TO_TRIAGE = {Cause.NEAR_GOLD, Cause.NEAR_QUERY, Cause.UNJUDGED}  # false negatives, which training rows have as well
WIDTHS = {"Query": 196, "Relevant document": 196, "Top document": 196, "Cause": 220, "Rank left": 72, "Rank right": 78}


def advice(cause: Cause, strategy: str | None) -> str:
    """Return what a cause means and what can be done. strategy: that of the run of the model, None for no run."""
    if cause is not Cause.LABELED:
        return ADVICE[cause]
    if strategy is None:
        return f"{ADVICE[cause]} Train a run with hard negatives in its batches (strategy nearest)."
    if strategy == "nearest":
        nearest = "Its batches have hard negatives (strategy nearest)"
        return f"{ADVICE[cause]} {nearest}; try larger groups, or mined hard negatives."
    return f"{ADVICE[cause]} Its run used the strategy {strategy}; try nearest, whose batches have harder negatives."


def _strategy(model: run_data.AnyModel) -> str | None:
    """Return the batching strategy that a model was trained with; None for a model without training."""
    if isinstance(model, run_data.Model) and model.part == "after":
        return model.run.config().batching.strategy
    return None


def _draw_links(causes: set[Cause]) -> None:
    """Draw the buttons that open the pages where something can be done about causes."""
    links = (
        ("data", "Open the dataset", TO_DATA),
        ("batches", "Decide likely false negatives of the training rows", TO_TRIAGE),
        ("train", "Set up a run", {Cause.LABELED}),
    )
    with st.container(horizontal=True):
        for page, label, of_causes in links:
            key, icon = f"retrieval.failures.open.{page}", ":material/arrow_forward:"
            if not causes & of_causes or not users.may_open(page):
                continue
            if st.button(label, key=key, type="tertiary", icon=icon):
                page_layout.switch_page(page)


def error_rows(search: Search) -> list[dict[str, Any]]:
    """Return a table row with the whole texts per error of the right model, the worst first."""
    return [_row(search, failure) for failure in _failures(search)]


@turns.cached(max_entries=8, show_spinner=False, hash_funcs=CACHE_KEY)
def _failures(search: Search) -> list[Failure]:
    _, vectors = search.vectors
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
    chosen, strategy = [Cause(cause) for cause in selected or by_count], _strategy(search.models[1])
    st.caption("\n".join(f"- {cause.value}: {advice(cause, strategy)}" for cause in chosen))
    _draw_links(set(chosen))
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

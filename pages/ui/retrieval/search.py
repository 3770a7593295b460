"""Search with two models: their selection, and their results for one query side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core.data import PairDataset
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import BscError
from bsc_core.evaluation import RetrievalResult, RetrievalTask, rank, retrieval_task
from bsc_core.evaluation.retrieval.adhoc_queries import Answer, compare_answers
from bsc_core.figures.evaluation import ranks
from bsc_core.neighbors import TextRows
from bsc_core.runs import Run
from pages.ui.components import data_cache, display, run_data, url

TOP = 10
QUERY, SPLIT, PART = "retrieval.query", "retrieval.split", "retrieval.part"
PARAMETERS = (QUERY, SPLIT, PART, "retrieval.left.*", "retrieval.right.*", "retrieval.causes.*")
ModelPair = tuple[run_data.Model, run_data.Model]
TEXT_COLORS = {"light": "#1B2530", "dark": "#E6EAEE"}


@dataclass(frozen=True)
class Search:
    """A retrieval task, the queries of a split, ranked by the left and the right model."""

    data: DatasetSplits
    split: str
    task: RetrievalTask
    models: ModelPair
    results: tuple[RetrievalResult, RetrievalResult]

    @property
    def dataset(self) -> PairDataset:
        """The pairs of the split."""
        return self.data.splits[self.split]

    @property
    def cache_key(self) -> tuple[str, ...]:
        """Key that changes with the models, the queries or the documents."""
        corpus = "" if self.data.corpus is None else self.data.corpus.digest
        return (*(model.stamp for model in self.models), self.split, self.dataset.digest, corpus)

    def text(self, text_id: int) -> str:
        """Return a text by its id."""
        return self.data.texts[int(text_id)]


CACHE_KEY = {Search: lambda search: search.cache_key}


@dataclass(frozen=True)
class Results:
    """Top documents of both models for one query."""

    left: list[ranks.Hit]
    right: list[ranks.Hit]
    relevant: frozenset[int]  # corpus positions
    known: bool  # whether the query is in the data


def acknowledge() -> None:
    """Show that a query was received, before the page is drawn again; a callback of its box."""
    st.toast("Searching …", icon=":material/search:")


def select_models(run: Run, cells: Sequence[DeltaGenerator]) -> ModelPair | None:
    """Select two models of the run, or of runs on the same texts, in two cells; None if the run has no embeddings."""
    models = available_models(run)
    if not models:
        return None
    labels = {model.key: _label(model, run) for model in models}
    by_key = {model.key: model for model in models}
    default_right = 1 if len(models) > 1 and models[1].run.id == run.id else 0
    selected = []
    for cell, name, index in zip(cells, ("Left", "Right"), (0, default_right), strict=True):
        key = cell.selectbox(
            f"{name} model",
            list(labels),
            index=index,
            format_func=lambda key: labels.get(key, key),
            **url.bound(f"retrieval.{name.lower()}.{run.id}", labels.values()),
        )
        selected.append(by_key[key])
    return selected[0], selected[1]


def available_models(run: Run) -> list[run_data.Model]:
    """Return the models that can search the run's texts: its models first, then those of runs on the same texts.

    The untrained encoder of another run is included if it differs. Empty if the run has no embeddings.
    """
    models = run_data.models(run)
    if not models:
        return []
    encoder = run.config().encoder
    others = [model for other in run_data.runs_on_same_texts(run) for model in _models_of_other_run(other)]
    return models + [one for one in others if one.part == "after" or one.run.config().encoder != encoder]


def _models_of_other_run(run: Run) -> list[run_data.Model]:
    """Return the models of another run; none if its files are damaged, which its page reports."""
    try:
        return run_data.models(run)
    except BscError:
        return []


def _label(model: run_data.Model, run: Run) -> str:
    part = run_data.PARTS[model.part].capitalize()
    return part if model.run.id == run.id else f"{part} · {data_cache.short_id(model.run.id)}"


def model_names(search: Search) -> tuple[str, str]:
    """Return the names of the two models, with their runs if these differ."""
    left, right = search.models
    return _label(left, right.run), _label(right, left.run)


DATA_KEY = {
    run_data.Model: lambda model: model.stamp,
    DatasetSplits: lambda data: [part.digest for part in (*data.splits.values(), data.corpus) if part is not None],
}


@st.cache_resource(max_entries=8, show_spinner="Searching with both models …", hash_funcs=DATA_KEY)
def search_split(data: DatasetSplits, models: ModelPair, split: str) -> Search:
    """Rank the corpus for every query of a split with both models, cached across sessions."""
    task = retrieval_task(data.splits[split], data.corpus)
    first, second = (
        rank(vectors[task.query], TextRows(vectors, task.corpus), task, top=TOP)
        for vectors in (model.vectors() for model in models)
    )
    return Search(data, split, task, models, (first, second))


def example_query(search: Search) -> str:
    """Return the query whose relevant document moved most between the two models; empty if there is no query."""
    first, last = (result.first_rank.astype(np.int64) for result in search.results)
    not_found = len(search.task.corpus) + 1
    gain = np.log(np.where(first > 0, first, not_found)) - np.log(np.where(last > 0, last, not_found))
    return search.text(search.task.query[int(np.abs(gain).argmax())]) if len(gain) else ""


def draw_results(search: Search, query: str) -> None:
    """Draw the results of the typed query, or of an example from the data."""
    example = example_query(search)
    if query.strip():
        _draw_query(search, query)
    elif example:
        first, last = (result.first_rank for result in search.results)
        reason = ", the query whose relevant document moved most" if (first != last).any() else ""
        display.plain_text(f"Example{reason}", example)
        _draw_query(search, example)
    else:
        st.caption(f"No {search.split} pair is positive, so there is no example query. Type a query above.")


def _draw_query(search: Search, query: str) -> None:
    """Draw the top documents of both models side by side."""
    results, names = answer(search, query), model_names(search)
    figure = ranks.rank_lines(results.left, results.right, names)
    if st.context.theme.type in TEXT_COLORS:
        figure.update_layout(font_color=TEXT_COLORS[st.context.theme.type])  # document texts, not axis labels
    alt = f"First {TOP} documents of {names[0]} and {names[1]}; lines connect a document's ranks"
    display.figure(figure, alt=alt, name="answers")
    st.caption(_summary(results))
    display.csv_button(_rows(results, names), name="answers", key="retrieval.answers.data")


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=CACHE_KEY)
def answer(search: Search, query: str) -> Results:
    """Return the results of both models for a query of the data or a typed one, cached across sessions."""
    task, position = search.task, _query_position(search, query)
    left, right = search.models
    vectors = _query_vector(search, left, query, position), _query_vector(search, right, query, position)
    corpora = TextRows(left.vectors(), task.corpus), TextRows(right.vectors(), task.corpus)
    relevant = frozenset(() if position is None else task.relevant(position).tolist())
    hits = [_hits(search, one, relevant) for one in compare_answers(vectors, corpora, top=TOP)]
    return Results(*hits, relevant, known=position is not None)


def _query_position(search: Search, query: str) -> int | None:
    """Return the position of a query in the task, ignoring case; None if it is not in the data."""
    wanted = " ".join(query.split()).casefold()
    for position, text_id in enumerate(search.task.query.tolist()):
        if " ".join(search.text(text_id).split()).casefold() == wanted:
            return position
    return None


def _query_vector(search: Search, model: run_data.Model, query: str, position: int | None) -> np.ndarray:
    if position is not None:
        return np.asarray(model.vectors()[search.task.query[position]])
    return np.asarray(run_data.encode_queries(model, [query])[0])


def _hits(search: Search, answer: Answer, relevant: frozenset[int]) -> list[ranks.Hit]:
    lines = zip(answer.positions.tolist(), answer.cosines.tolist(), answer.other_ranks.tolist(), strict=True)
    return [
        ranks.Hit(position, search.text(search.task.corpus[position]), score, position in relevant, other_rank)
        for position, score, other_rank in lines
    ]


def _summary(results: Results) -> str:
    dotted = "A dotted line shows the document's rank in the other list."
    if not results.known:
        return f"This query is not in the dataset, so its relevant documents are unknown. {dotted}"
    if not results.relevant:
        return "The relevant document of this query is not in the corpus."
    positions = []
    for side, hits in (("on the left", results.left), ("on the right", results.right)):
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.gold), None)
        positions.append(f"rank {rank} {side}" if rank else f"not in the top {TOP} {side}")
    return f"★ relevant document: {', '.join(positions)}. {dotted}"


def _rows(results: Results, names: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "model": name,
            "rank": rank,
            "cosine": hit.score,
            "relevant": hit.gold,
            "rank in the other list": hit.other_rank,
            "document": hit.text,
        }
        for name, hits in zip(names, (results.left, results.right), strict=True)
        for rank, hit in enumerate(hits, 1)
    ]

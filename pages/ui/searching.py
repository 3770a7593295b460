"""Two models to search with, and their answers to one query beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import ranks
from bsc_core.runs import Run
from pages.ui import run_data, run_list, show

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from bsc_core.data import PairDataset
    from bsc_core.data.experiment import ExperimentData
    from bsc_core.evaluation import RetrievalResult, RetrievalTask
    from bsc_core.evaluation.asking import Answer

TOP = 10
QUERY = "retrieval.query"
STUBS = "The number at a dotted line is the document's rank in the other list."
TEXT_COLOURS = {"light": "#1B2530", "dark": "#E6EAEE"}


@dataclass(frozen=True)
class Search:
    """One task searched by two models. split: whose queries; results: as each model ranks the task's queries."""

    data: ExperimentData
    split: str
    task: RetrievalTask
    models: tuple[run_data.Model, run_data.Model]
    results: tuple[RetrievalResult, RetrievalResult]

    @property
    def dataset(self) -> PairDataset:
        """The pairs that set the task."""
        return self.data.parts[self.split]

    @property
    def stamp(self) -> tuple[str, ...]:
        """What changes when other models, queries or documents do."""
        return _stamp(self.data, self.models, self.split)

    def text(self, text_id: int) -> str:
        """A text by its id."""
        return self.data.texts[int(text_id)]


@dataclass(frozen=True)
class Found:
    """Both answers to a query. left, right: the first documents of each model; gold: positions in the corpus of what
    is right; known: whether the query stands in the data."""

    left: list[ranks.Hit]
    right: list[ranks.Hit]
    gold: frozenset[int]
    known: bool


def pick_models(run: Run, places: Sequence[DeltaGenerator]) -> tuple[run_data.Model, run_data.Model] | None:
    """Choose two models of the run, or of runs on the same texts; None while the run has measured nothing.

    places: where the two choices are drawn.
    """
    offered = models_of(run)
    if not offered:
        return None
    labels = {model.key: _label(model, run) for model in offered}
    by_key = {model.key: model for model in offered}
    last = 1 if len(offered) > 1 and offered[1].run.id == run.id else 0
    keys = (f"retrieval.left.{run.id}", f"retrieval.right.{run.id}")
    with places[0]:
        first = st.selectbox(
            "Left", list(labels), format_func=lambda key: labels.get(key, key), key=keys[0], bind="query-params"
        )
    with places[1]:
        second = st.selectbox(
            "Right",
            list(labels),
            index=last,
            format_func=lambda key: labels.get(key, key),
            key=keys[1],
            bind="query-params",
        )
    return by_key[first], by_key[second]


def models_of(run: Run) -> list[run_data.Model]:
    """The models that can search the run's texts: its own first, then those of other runs on the same texts.

    Of another run the untrained encoder is offered where it is not this one's. Empty while the run has no vectors.
    """
    own = run_data.models(run)
    if not own:
        return []
    start = run.config().encoder
    others = [model for other in run_data.same_texts(run) for model in _sound_models(other)]
    return own + [model for model in others if model.part == "after" or model.run.config().encoder != start]


def _sound_models(run: Run) -> list[run_data.Model]:
    """The models of another run; none where its files are damaged, which its own page tells."""
    try:
        return run_data.models(run)
    except BscError:
        return []


def _label(model: run_data.Model, run: Run) -> str:
    part = run_data.PARTS[model.part].capitalize()
    return part if model.run.id == run.id else f"{part} · {run_list.name(model.run)}"


def names(search: Search) -> tuple[str, str]:
    """How the two models are called: by their part, and by their run where the runs differ."""
    left, right = search.models
    return _label(left, right.run), _label(right, left.run)


def searched(data: ExperimentData, models: tuple[run_data.Model, run_data.Model], split: str) -> Search:
    """Rank the corpus for every query of a split with both models; once for all sessions."""
    return _searched(_stamp(data, models, split), data, models, split)


def _stamp(data: ExperimentData, models: tuple[run_data.Model, run_data.Model], split: str) -> tuple[str, ...]:
    corpus = "" if data.corpus is None else data.corpus.digest
    return (*(model.stamp for model in models), split, data.parts[split].digest, corpus)


@st.cache_resource(max_entries=8, show_spinner="Searching with both models …")
def _searched(
    stamp: tuple[str, ...],
    _data: ExperimentData,
    _models: tuple[run_data.Model, run_data.Model],
    _split: str,
) -> Search:
    from bsc_core.evaluation import TextRows, rank, retrieval_task

    task = retrieval_task(_data.parts[_split], _data.corpus)
    first, second = (
        rank(vectors[task.query], TextRows(vectors, task.corpus), task, top=TOP)
        for vectors in (model.vectors() for model in _models)
    )
    return Search(_data, _split, task, _models, (first, second))


def typical(search: Search) -> str:
    """A query to begin with: the one whose gold document moved most between the two models."""
    first, last = (result.first_rank.astype(np.int64) for result in search.results)
    far = len(search.task.corpus) + 1
    gain = np.log(np.where(first > 0, first, far)) - np.log(np.where(last > 0, last, far))
    return search.text(search.task.query[int(np.abs(gain).argmax())]) if len(gain) else ""


def picture(search: Search, query: str) -> None:
    """The answers to the query, or where none is typed to an example of the data."""
    example = typical(search)
    if query.strip():
        answer(search, query)
    elif example:
        show.text(f"An example, {_why_shown(search)}", example)
        answer(search, example)
    else:
        st.caption(f"No {search.split} pair is positive, so these data hold no query to begin with. Type one above.")


def _why_shown(search: Search) -> str:
    first, last = (result.first_rank for result in search.results)
    return "the query whose gold moved most" if (first != last).any() else "one of the queries, whose gold never moved"


def answer(search: Search, query: str) -> None:
    """The first ten of both models side by side, for a query of the data or a typed one."""
    found, called = answers(search, query), names(search)
    figure = ranks.rank_lines(found.left, found.right, called)
    if st.context.theme.type in TEXT_COLOURS:
        figure.update_layout(font_color=TEXT_COLOURS[st.context.theme.type])  # texts to read, not labels of an axis
    alt = f"First {TOP} documents of {called[0]} and {called[1]}, ranks that moved joined by lines"
    show.figure(figure, alt=alt, name="answers")
    st.caption(_summary(found))
    show.table_download(_table(found, called), name="answers", key="retrieval.answers.data")


def answers(search: Search, query: str) -> Found:
    """What both models find for a query of the data or a typed one; once for all sessions."""
    return _answers(search.stamp, query, search)


@st.cache_resource(max_entries=64, show_spinner=False)
def _answers(stamp: tuple[str, ...], query: str, _search: Search) -> Found:
    from bsc_core.evaluation import TextRows
    from bsc_core.evaluation.asking import answers_beside

    task, place = _search.task, _known(_search, query)
    left, right = _search.models
    asked = _vector(_search, left, query, place), _vector(_search, right, query, place)
    corpora = TextRows(left.vectors(), task.corpus), TextRows(right.vectors(), task.corpus)
    gold = frozenset(() if place is None else task.relevant(place).tolist())
    lists = [_hits(_search, found, gold) for found in answers_beside(asked, corpora, top=TOP)]
    return Found(*lists, gold, known=place is not None)


def _known(search: Search, query: str) -> int | None:
    """The place in the task of a query that stands in the data, in any case; None for one that does not."""
    wanted = " ".join(query.split()).casefold()
    for place, text_id in enumerate(search.task.query.tolist()):
        if " ".join(search.text(text_id).split()).casefold() == wanted:
            return place
    return None


def _vector(search: Search, model: run_data.Model, query: str, place: int | None) -> np.ndarray:
    if place is not None:
        return np.asarray(model.vectors()[search.task.query[place]])
    return run_data.encode_text(model, query)


def _hits(search: Search, found: Answer, gold: frozenset[int]) -> list[ranks.Hit]:
    lines = zip(found.positions.tolist(), found.cosines.tolist(), found.other_ranks.tolist(), strict=True)
    return [
        ranks.Hit(position, search.text(search.task.corpus[position]), score, position in gold, other_rank)
        for position, score, other_rank in lines
    ]


def _summary(found: Found) -> str:
    if not found.known:
        return f"A query of your own: no gold is known for it. {STUBS}"
    if not found.gold:
        return "The gold document of this query is not in the corpus."
    where = []
    for name, hits in (("left", found.left), ("right", found.right)):
        places = [rank for rank, hit in enumerate(hits, 1) if hit.gold]
        where.append(f"{name} at rank {places[0]}" if places else f"{name} beyond rank {TOP}")
    return f"★ gold: {', '.join(where)}. {STUBS}"


def _table(found: Found, called: tuple[str, str]) -> Any:
    import pandas as pd

    lines = [
        {"model": name, "rank": rank, "cosine": hit.score, "gold": hit.gold, "rank in the other": hit.other_rank}
        | {"document": hit.text}
        for name, hits in zip(called, (found.left, found.right), strict=True)
        for rank, hit in enumerate(hits, 1)
    ]
    return pd.DataFrame(lines)

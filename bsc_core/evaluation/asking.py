"""Queries from outside a data set, asked of its documents: what is right for them, and how two models answer."""

# Q queries, M documents, D dimensions, k documents of a list

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.retrieval import Ids, RetrievalTask, Vectors, query_cosines
from bsc_core.evaluation.rows import Documents
from bsc_core.evaluation.top import TopDocuments


def asked_task(gold: Sequence[Sequence[str]], documents: Sequence[str]) -> RetrievalTask:
    """The task that queries with known right documents set, query i being the i-th given.

    gold: for each of the Q queries the texts of its right documents; documents: the M texts searched. Texts are the
    same when they differ in case and spaces alone, and one that stands in the corpus twice is right twice. A right
    document that the corpus lacks is counted as absent; a query without any right document is a miss.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(documents):
        places[_form(text)].append(place)
    wanted = [dict.fromkeys(_form(text) for text in texts) for texts in gold]
    found = [sorted(place for form in forms for place in places.get(form, ())) for forms in wanted]
    queries = np.arange(len(gold), dtype=np.int32)
    return RetrievalTask(
        query=queries,
        corpus=np.arange(len(documents), dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum([len(mine) for mine in found])]).astype(np.int64),
        gold=np.asarray([place for mine in found for place in mine], dtype=np.int32),
        absent=np.asarray([sum(form not in places for form in forms) for forms in wanted], dtype=np.int32),
        rows=queries,
    )


def shared_answers(left: Ids, right: Ids) -> Numbers:
    """Share of the k documents of each query that both lists name, whatever their order: (Q,).

    left, right: (Q, k) documents, each once in a row.
    """
    both = (left[:, :, None] == right[:, None, :]).any(axis=2)
    return np.asarray(both.mean(axis=1), dtype=np.float64) if left.size else np.ones(len(left))


@dataclass(frozen=True, eq=False)
class Answer:
    """A model's first documents. positions: (k,) in the corpus, best first, equal ones by position; cosines: (k,);
    other_ranks: (k,) their ranks, from 1, in the whole list of another model."""

    positions: Ids
    cosines: Vectors
    other_ranks: Ids


def answers_beside(
    queries: tuple[Vectors, Vectors], corpora: tuple[Documents, Documents], *, top: int = 10
) -> tuple[Answer, Answer]:
    """How two models answer one query, each with its first min(top, M) documents.

    queries: (D,) the query as each model sees it; corpora: (M, D) the same documents as each sees them; D may differ.
    Ranks are places in the order of `search`. Raises DataError for vectors that are not finite.
    """
    left, right = (query_cosines(query, corpus) for query, corpus in zip(queries, corpora, strict=True))
    return _answer(left, right, top), _answer(right, left, top)


def _answer(own: Vectors, other: Vectors, top: int) -> Answer:
    best = TopDocuments(1, min(top, len(own)))
    best.add(slice(0, 1), 0, own[None])
    positions = best.positions()[0]
    ranks = [_place(other, position) for position in positions.tolist()]
    return Answer(positions, best.cosines()[0], np.asarray(ranks, dtype=np.int32))


def _place(cosines: Vectors, position: int) -> int:
    """Rank of a document from 1: higher cosines come before it, and equal ones at earlier positions."""
    own = cosines[position]
    return 1 + int(np.count_nonzero(cosines > own)) + int(np.count_nonzero(cosines[:position] == own))


def _form(text: str) -> str:
    return " ".join(text.split()).casefold()

"""What a model gets wrong, as one word for each text, so that a map can be coloured by it."""

# N texts, D dimensions

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.evaluation.retrieval import Ids, RetrievalTask, Vectors, rank, retrieval_task, search
from bsc_core.evaluation.rows import TextRows

FIRST = "found first"
LATER = "found in the first 10"
MISSED = "not in the first 10"
INSTEAD = "came first instead"
OTHERS = "not asked"
FAR = 10


def search_errors(
    parts: Sequence[PairDataset], corpus: Corpus | None, vectors: Vectors, *, texts: NDArray[np.int32] | None = None
) -> list[str]:
    """How a search with every query of some parts ends, told of each text: (N,) names.

    A query whose gold document comes first is FIRST, one where it has rank 2 to 10 LATER, else it is MISSED; the best
    document that is not gold is then INSTEAD; every other text is OTHERS. Each part is searched among the corpus, or
    without one among its own documents. A text that is several of these is what went wrong. vectors: (N, D), of the
    text ids `texts`, ascending, or of all texts; queries and documents that have none are left out.
    """
    found = np.full(len(vectors), OTHERS, dtype=object)
    for part in parts:
        task = retrieval_task(part, corpus)
        if texts is not None:
            task = _held(task, texts)
        if not len(task.query) or not len(task.corpus):
            continue
        queries, documents = task.query, task.corpus
        if texts is not None:
            queries, documents = (np.searchsorted(texts, ids).astype(np.int32) for ids in (queries, documents))
        searched = TextRows(vectors, documents)
        result = rank(vectors[queries], searched, task, k=(1,), top=1)
        right, missed = result.first_rank == 1, (result.first_rank == 0) | (result.first_rank > FAR)
        for name, chosen in ((FIRST, right), (LATER, ~right & ~missed), (MISSED, missed)):
            found[queries[chosen]] = name
        wrong = np.flatnonzero(~right).astype(np.int32)
        found[documents[_came_first(task, wrong, result.top_positions[wrong, 0], vectors[queries], searched)]] = INSTEAD
    return list(found.tolist())


def _came_first(task: RetrievalTask, asked: Ids, first: Ids, queries: Vectors, documents: TextRows) -> Ids:
    """Positions of the best document of each query in `asked` that is not gold for it.

    first: the best of all, which is gold where another is as near: ties count against it. queries: (Q, D).
    """
    size = len(task.corpus)
    tied = np.isin(asked.astype(np.int64) * size + first, task.owner * size + task.gold)
    if not tied.any():
        return first
    again = asked[tied]
    most = max(len(task.relevant(query)) for query in again.tolist())
    best, _ = search(queries[again], documents, top=most + 1)
    others = [task.others(query, mine)[0] for query, mine in zip(again.tolist(), best, strict=True)]
    return np.concatenate([first[~tied], np.asarray(others, dtype=np.int32)])


def _held(task: RetrievalTask, texts: NDArray[np.int32]) -> RetrievalTask:
    """The task among some texts: queries that are among them, documents that are, and gold that is left."""
    held, asked = np.isin(task.corpus, texts), np.flatnonzero(np.isin(task.query, texts))
    place = np.cumsum(held) - 1
    gold = [place[task.relevant(query)[held[task.relevant(query)]]] for query in asked.tolist()]
    offsets = np.zeros(len(asked) + 1, dtype=np.int64)
    np.cumsum([len(positions) for positions in gold], out=offsets[1:])
    lost = np.array([len(task.relevant(query)) for query in asked.tolist()], dtype=np.int32) - np.diff(offsets)
    return RetrievalTask(
        query=task.query[asked],
        corpus=task.corpus[held],
        offsets=offsets,
        gold=np.concatenate(gold).astype(np.int32) if gold else np.empty(0, dtype=np.int32),
        absent=(task.absent[asked] + lost).astype(np.int32),
        rows=task.rows[asked],
    )

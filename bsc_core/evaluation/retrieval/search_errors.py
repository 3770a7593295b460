"""Search outcome of each text, as a category for coloring a map."""

# N texts, D dimensions

from collections.abc import Sequence

import numpy as np

from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.evaluation.retrieval.rank import RetrievalTask, rank, retrieval_task
from bsc_core.neighbors import TextRows, top_k
from bsc_core.types import Ids, Vectors

FIRST = "ranked first"
IN_TOP_10 = "ranked 2 to 10"
MISSED = "not in the top 10"
ABOVE_RELEVANT = "ranked above the relevant document"
NOT_SEARCHED = "not searched"
TOP = 10


CELLS = 1_000_000  # documents of a block of queries


def search_errors(
    splits: Sequence[PairDataset], corpus: Corpus | None, vectors: Vectors, *, texts: Ids | None = None
) -> list[str]:
    """Return the search outcome of each text: (N,) names.

    A query is FIRST if its gold document has rank 1, IN_TOP_10 for rank 2 to 10, else MISSED. Unless it is FIRST, its
    best document that is not gold is ABOVE_RELEVANT. All other texts are NOT_SEARCHED. If several apply, errors take
    precedence.

    Args:
        splits: splits whose queries are searched; without a corpus, among the documents of the split.
        corpus: the documents.
        vectors: (N, D) vectors of `texts`.
        texts: text ids of the vectors, ascending; None for all texts. Other queries and documents are ignored.
    """
    outcomes = np.full(len(vectors), NOT_SEARCHED, dtype=object)
    for split in splits:
        task = retrieval_task(split, corpus)
        if texts is not None:
            task = _restrict(task, texts)
        if not len(task.query) or not len(task.corpus):
            continue
        queries, documents = task.query, task.corpus
        if texts is not None:
            queries, documents = (np.searchsorted(texts, ids).astype(np.int32) for ids in (queries, documents))
        searched = TextRows(vectors, documents)
        result = rank(vectors[queries], searched, task, k=(1,), top=1)
        right, missed = result.first_rank == 1, (result.first_rank == 0) | (result.first_rank > TOP)
        for name, selected in ((FIRST, right), (IN_TOP_10, ~right & ~missed), (MISSED, missed)):
            outcomes[queries[selected]] = name
        wrong = np.flatnonzero(~right).astype(np.int32)
        first = _first_not_gold(task, wrong, result.top_positions[wrong, 0], vectors[queries], searched)
        outcomes[documents[first]] = ABOVE_RELEVANT
    return list(outcomes.tolist())


def _first_not_gold(task: RetrievalTask, wrong: Ids, first: Ids, queries: Vectors, documents: TextRows) -> Ids:
    """Return the position of the best document that is not gold for each query in `wrong`, in any order.

    first: the best of all documents, which may be a gold document tied with another. queries: (Q, D).
    """
    size = len(task.corpus)
    tied = np.isin(wrong.astype(np.int64) * size + first, task.owner * size + task.gold)
    if not tied.any():
        return first
    others: list[int] = []
    depths = np.diff(task.offsets) + 1  # (Q,)
    left = wrong[tied][np.argsort(-depths[wrong[tied]], kind="stable")]
    while len(left):
        depth = int(depths[left[0]])
        block, left = np.split(left, [max(1, CELLS // depth)])
        best, _ = top_k(queries[block], documents, depth)
        others += [task.others(query, found)[0] for query, found in zip(block.tolist(), best, strict=True)]
    return np.concatenate([first[~tied], np.asarray(others, dtype=np.int32)])


def _restrict(task: RetrievalTask, texts: Ids) -> RetrievalTask:
    """Restrict a task to the queries, documents and gold documents that are among some texts."""
    documents, queries = np.isin(task.corpus, texts), np.flatnonzero(np.isin(task.query, texts))
    position = np.cumsum(documents) - 1  # (M,) new position of each document
    relevant = [task.relevant(query) for query in queries.tolist()]
    gold = [position[positions[documents[positions]]] for positions in relevant]
    counts = np.array([len(positions) for positions in gold], dtype=np.int64)
    dropped = np.array([len(positions) for positions in relevant], dtype=np.int64) - counts
    return RetrievalTask(
        query=task.query[queries],
        corpus=task.corpus[documents],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        gold=np.concatenate([np.empty(0, dtype=np.int32), *gold]).astype(np.int32),
        absent=(task.absent[queries] + dropped).astype(np.int32),
        rows=task.rows[queries],
    )

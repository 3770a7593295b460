"""User-supplied queries with optional relevant documents, and comparison of two models' answers to one query."""

# Q queries, M documents, D dimensions, k documents of a list

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bsc_core.evaluation.retrieval.rank import RetrievalTask, check_gold
from bsc_core.neighbors import Documents, top_k
from bsc_core.types import Ids, Numbers, Vectors


def adhoc_task(gold: Sequence[Sequence[str]], documents: Sequence[str]) -> RetrievalTask:
    """Build the retrieval task of queries with known relevant documents, in the given order.

    Texts that differ only in case and whitespace are equal; every occurrence of a relevant text in the corpus is
    relevant. Relevant documents missing from the corpus count as absent, and a query without any relevant document as a
    miss.

    Args:
        gold: Texts of the relevant documents of each of the Q queries.
        documents: The M texts of the corpus.

    Raises:
        DataError: There are more relevant documents than MAX_GOLD.
    """
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(documents):
        positions[_normalized(text)].append(position)
    distinct = [dict.fromkeys(_normalized(text) for text in texts) for texts in gold]
    check_gold(sum(len(positions.get(text, ())) for texts in distinct for text in texts))
    relevant = [sorted(position for text in texts for position in positions.get(text, ())) for texts in distinct]
    queries = np.arange(len(gold), dtype=np.int32)
    return RetrievalTask(
        query=queries,
        corpus=np.arange(len(documents), dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum([len(result) for result in relevant])]).astype(np.int64),
        gold=np.asarray([position for result in relevant for position in result], dtype=np.int32),
        absent=np.asarray([sum(text not in positions for text in texts) for texts in distinct], dtype=np.int32),
        rows=queries,
    )


def answer_overlap(left: Ids, right: Ids) -> Numbers:
    """Return the share of the k documents of each query that are in both lists, in any order: (Q,).

    Args:
        left: (Q, k) documents, distinct within a row.
        right: (Q, k) documents, distinct within a row.
    """
    both = (left[:, :, None] == right[:, None, :]).any(axis=2)
    return np.asarray(both.mean(axis=1), dtype=np.float64) if left.size else np.ones(len(left))


@dataclass(frozen=True, eq=False)
class Answer:
    """The top documents of a model."""

    positions: Ids  # (k,) in the corpus, best first as in `top_k`
    cosines: Vectors  # (k,)
    other_ranks: Ids  # (k,) ranks, from 1, in the full list of the other model


def compare_answers(
    queries: tuple[Vectors, Vectors], corpora: tuple[Documents, Documents], *, top: int = 10
) -> tuple[Answer, Answer]:
    """Return the first min(top, M) documents of two models for one query.

    Args:
        queries: (D,) the query as each model encodes it; D may differ.
        corpora: (M, D) the same documents as each model encodes them.
        top: Maximum number of documents.

    Raises:
        DataError: A vector is not finite.
    """
    ranked = [top_k(query[None], corpus, len(corpus)) for query, corpus in zip(queries, corpora, strict=True)]
    ranks = [np.argsort(positions[0]).astype(np.int32) + 1 for positions, _ in ranked]  # (M,) of each document
    first, second = (
        Answer(positions[0, :top], cosines[0, :top], other_ranks[positions[0, :top]])
        for (positions, cosines), other_ranks in zip(ranked, ranks[::-1], strict=True)
    )
    return first, second


def _normalized(text: str) -> str:
    return " ".join(text.split()).casefold()

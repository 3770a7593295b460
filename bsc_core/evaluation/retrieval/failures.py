"""Retrieval errors by query, with a likely cause for each.

A dataset labels only some of the relevant documents, so a failure may be an error of the model or a missing label. The
causes are derived from texts and labels; a person makes the final decision.
"""

# Q queries, M documents of the corpus, U distinct texts, D dimensions

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from bsc_core.batching.likely_false_negatives import have_nearly_equal_words
from bsc_core.data.dataset import PairDataset
from bsc_core.data.text_normalization import words_of
from bsc_core.evaluation.retrieval.rank import RetrievalResult, RetrievalTask
from bsc_core.neighbors import TIE, finite_unit_rows, first_highest
from bsc_core.types import Vectors

MAX_QUERIES = 100
"""Queries of a document, beside the failing one, whose texts are compared with its text."""


class Cause(StrEnum):
    """Likely reason why a document ranks above gold; the first one that applies is reported."""

    ABSENT = "relevant document missing from the corpus"
    LABELED = "labeled negative ranked first"
    NEAR_GOLD = "near duplicate of the relevant document ranked first"
    NEAR_QUERY = "relevant document of a nearly equal query ranked first"
    TIE = "tied with the relevant document"
    WORDS = "document with more words of the query ranked first"
    UNJUDGED = "first document has no label for this query"


@dataclass(frozen=True)
class Failure:
    """A query whose gold document is not ranked first."""

    query: int  # its number in the task
    rank: int  # rank of its best gold document, from 1; 0 if the corpus contains none
    gold: int | None  # corpus position of that document; None if there is none
    first: int  # corpus position of the best document that is not gold
    gold_cosine: float | None  # cosine of the gold document with the query
    first_cosine: float  # cosine of the other document with the query
    cause: Cause  # likely cause


def find_failures(
    task: RetrievalTask, result: RetrievalResult, dataset: PairDataset, vectors: Vectors, *, max_failures: int = 200
) -> list[Failure]:
    """Return the queries whose gold document is not first, worst first.

    Queries without gold in the corpus come before all others. Queries without any document that is not gold are
    excluded.

    Args:
        task: The retrieval task.
        result: The ranking of the task.
        dataset: The pairs from which the task was built.
        vectors: (U, D) the ranked vectors, row i for text i.
        max_failures: Number of failing queries to analyze.
    """
    search = _Search(task, result, dataset, vectors)
    ranks = np.where(result.first_rank > 0, result.first_rank, len(task.corpus) + 1)
    worst = [query for query in np.argsort(-ranks, kind="stable").tolist() if ranks[query] != 1]
    return [failure for query in worst[:max_failures] if (failure := search.failure(query)) is not None]


class _Search:
    """A retrieval task with its labels."""

    def __init__(self, task: RetrievalTask, result: RetrievalResult, dataset: PairDataset, vectors: Vectors) -> None:
        self.task, self.result, self.dataset, self.vectors = task, result, dataset, vectors
        self.words_of = lru_cache(maxsize=64)(words_of)  # a document can be long, and above gold for many queries
        self.queries_of: defaultdict[int, list[int]] = defaultdict(list)  # position -> queries it is relevant for
        for query, position in zip(task.owner.tolist(), task.gold.tolist(), strict=True):
            self.queries_of[position].append(query)
        rows = np.flatnonzero(~dataset.positive)
        self.negatives = set(zip(dataset.query_group[rows].tolist(), dataset.document[rows].tolist(), strict=True))

    def failure(self, query: int) -> Failure | None:
        """Return the failure of a query; None if every listed document is gold."""
        relevant = self.task.relevant(query).tolist()
        others = self.task.others(query, self.result.top_positions[query]).tolist()
        if not others:
            return None
        texts = np.r_[self.task.query[query], self.task.corpus[[*relevant, others[0]]]]
        units = finite_unit_rows(self.vectors[texts])
        cosines = (units[1:] @ units[0]).tolist()
        best = first_highest(np.asarray(cosines[:-1])) if relevant else None
        gold = None if best is None else relevant[best]
        gold_cosine = None if best is None else cosines[best]
        cause = self._cause(query, gold, others[0], (gold_cosine, cosines[-1]))
        return Failure(query, int(self.result.first_rank[query]), gold, others[0], gold_cosine, cosines[-1], cause)

    def _cause(self, query: int, gold: int | None, first: int, cosines: tuple[float | None, float]) -> Cause:
        if gold is None or cosines[0] is None:
            return Cause.ABSENT
        texts, task = self.dataset.texts, self.task
        group = int(self.dataset.query_group[task.rows[query]])
        query_text, gold_text, first_text = texts.take([task.query[query], task.corpus[gold], task.corpus[first]])
        others = texts.take(task.query[self.queries_of[first][:MAX_QUERIES]])
        words = {text: self.words_of(text) for text in (query_text, gold_text, first_text, *others)}

        def are_near(left: str, right: str) -> bool:
            return left == right or have_nearly_equal_words(words[left], words[right])

        def shared_words(document: str) -> int:
            return len(words[query_text] & words[document])

        causes = {
            Cause.LABELED: (group, int(task.corpus[first])) in self.negatives,
            Cause.NEAR_GOLD: are_near(gold_text, first_text),
            Cause.NEAR_QUERY: any(are_near(query_text, other) for other in others),
            Cause.TIE: cosines[1] - cosines[0] <= TIE,
            Cause.WORDS: shared_words(first_text) > shared_words(gold_text),
        }
        return next((cause for cause, applies in causes.items() if applies), Cause.UNJUDGED)

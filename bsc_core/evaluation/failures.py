"""Where retrieval fails, query by query: what came before gold, and why that may be.

A gold standard names some right documents and never all of them, so a failure is the model's fault or the data's; what
texts and labels tell of each is said, and a person decides.
"""

# Q queries, M documents of the corpus, U distinct texts, D dimensions

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bsc_core.batching.suspects import WORD, alike
from bsc_core.data.pairs import PairDataset
from bsc_core.evaluation.retrieval import TIE, RetrievalResult, RetrievalTask, Vectors, unit_rows


class Cause(StrEnum):
    """Why a document may have come before gold; the first that holds is told."""

    ABSENT = "gold is not in the corpus"
    LABELLED = "labelled wrong for this query: a hard negative"
    NEAR_GOLD = "nearly the text of gold: may be right too"
    NEAR_QUERY = "answers nearly the same query: may be right too"
    TIE = "as near as gold: ties count against it"
    WORDS = "shares more of the query's words than gold does"
    UNJUDGED = "nobody has judged it for this query"


@dataclass(frozen=True)
class Failure:
    """A query whose gold is not first.

    query: its number in the task; rank: of its nearest gold document from 1, 0 where the corpus has none; gold, first:
    positions in the corpus of that document, None where there is none, and of the best one that is not gold; their
    cosines with the query.
    """

    query: int
    rank: int
    gold: int | None
    first: int
    gold_cosine: float | None
    first_cosine: float
    cause: Cause


def find_failures(
    task: RetrievalTask, result: RetrievalResult, dataset: PairDataset, vectors: Vectors, *, most: int = 200
) -> list[Failure]:
    """The queries whose gold is not first, the worst first and those without gold before them; at most `most`.

    dataset: the pairs that set the task. vectors: (U, D), row i for text i of their table, those that were ranked. A
    corpus of gold documents alone has nothing that could come before them.
    """
    search = _Search(task, result, dataset, vectors)
    ranks = np.where(result.first_rank > 0, result.first_rank, len(task.corpus) + 1)
    worst = [query for query in np.argsort(-ranks, kind="stable").tolist() if ranks[query] != 1]
    found = (search.failure(query) for query in worst[:most])
    return [failure for failure in found if failure is not None]


class _Search:
    """The task with what its labels say."""

    def __init__(self, task: RetrievalTask, result: RetrievalResult, dataset: PairDataset, vectors: Vectors) -> None:
        self.task, self.result, self.dataset, self.vectors = task, result, dataset, vectors
        self.answers: defaultdict[int, list[int]] = defaultdict(list)  # position -> queries that it answers
        for query, position in zip(task.owner.tolist(), task.gold.tolist(), strict=True):
            self.answers[position].append(query)
        wrong = np.flatnonzero(~dataset.positive)
        self.wrong = set(zip(dataset.query_group[wrong].tolist(), dataset.document[wrong].tolist(), strict=True))

    def failure(self, query: int) -> Failure | None:
        """What came before the gold of a query; None where nothing did."""
        relevant = self.task.relevant(query).tolist()
        others = self.task.others(query, self.result.top_positions[query]).tolist()
        if not others:
            return None
        cosines = self._cosines(query, [*relevant, others[0]])
        best = int(np.argmax(cosines[:-1])) if relevant else None
        gold = None if best is None else relevant[best]
        near = None if best is None else cosines[best]
        cause = self._cause(query, gold, others[0], (near, cosines[-1]))
        return Failure(query, int(self.result.first_rank[query]), gold, others[0], near, cosines[-1], cause)

    def _cosines(self, query: int, positions: list[int]) -> list[float]:
        texts = np.r_[self.task.query[query], self.task.corpus[positions]]
        units = unit_rows(np.asarray(self.vectors[texts], dtype=np.float32))
        cosines: list[float] = (units[1:] @ units[0]).tolist()
        return cosines

    def _cause(self, query: int, gold: int | None, first: int, cosines: tuple[float | None, float]) -> Cause:
        group = int(self.dataset.query_group[self.task.rows[query]])
        asked, came = self._text(self.task.query[query]), self._text(self.task.corpus[first])
        if gold is None or cosines[0] is None:
            return Cause.ABSENT
        wanted = self._text(self.task.corpus[gold])
        others = [self._text(self.task.query[other]) for other in self.answers[first]]
        reasons = {
            Cause.LABELLED: (group, int(self.task.corpus[first])) in self.wrong,
            Cause.NEAR_GOLD: bool(alike([wanted, came])[0, 1]) or wanted == came,
            Cause.NEAR_QUERY: any(alike([asked, other])[0, 1] or asked == other for other in others),
            Cause.TIE: cosines[1] - cosines[0] <= TIE,
            Cause.WORDS: _shared(asked, came) > _shared(asked, wanted),
        }
        return next((cause for cause, holds in reasons.items() if holds), Cause.UNJUDGED)

    def _text(self, text_id: int) -> str:
        return self.dataset.texts[int(text_id)]


def _shared(query: str, document: str) -> int:
    """Distinct words, without case, that a query and a document share."""
    asked, told = (set(WORD.findall(text.casefold())) for text in (query, document))
    return len(asked & told)

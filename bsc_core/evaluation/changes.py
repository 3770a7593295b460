"""Where one setting is better than another: query by query, or pair by pair for a metric that no single query has."""

# Q queries, N pairs, S seeds, U distinct texts, D dimensions, n of the rows

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.evaluation.drawn_pairs import DECIDED, ScoredPairs
from bsc_core.evaluation.evaluator import cosines, searches_corpus
from bsc_core.evaluation.measured import Measured
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.pairs import average_ranks
from bsc_core.evaluation.retrieval import Vectors, search
from bsc_core.evaluation.rows import TextRows


@dataclass(frozen=True, eq=False)
class Changes:
    """What each query, or each pair, has under two settings.

    unit: what `rows` are: (n,) the dataset row where the query first stands, or that of the pair. first, second: (n,)
    values, means over the seeds, higher is better. first_cosine, second_cosine: (n,) of pairs, None for queries.
    """

    unit: Literal["query", "pair"]
    rows: NDArray[np.int64]
    first: Numbers
    second: Numbers
    first_cosine: Numbers | None = None
    second_cosine: Numbers | None = None

    @property
    def gained(self) -> Numbers:
        """(n,) second - first."""
        return self.second - self.first

    def wins(self) -> NDArray[np.int64]:
        """Places in `rows` where the second is better, the most first."""
        order = np.argsort(-self.gained, kind="stable")
        return order[self.gained[order] > 0]

    def losses(self) -> NDArray[np.int64]:
        """Places in `rows` where the second is worse, the most first."""
        order = np.argsort(self.gained, kind="stable")
        return order[self.gained[order] < 0]


def changes(first: Sequence[Measured], second: Sequence[Measured], metric: str) -> Changes:
    """The values behind a difference. first, second: the seeds of each setting, all measured on the same rows.

    A ranking metric is taken query by query. For one of all pairs each pair has its `rightness`. Raises DataError for a
    metric that one of them does not define.
    """
    if all(found.has_queries_of(metric) for found in (*first, *second)):
        rows = np.sort(np.asarray(first[0].queries.query if first[0].queries else (), dtype=np.int64))
        sides = [np.mean([found.of_queries(metric) for found in side], axis=0) for side in (first, second)]
        return Changes("query", rows, sides[0], sides[1])
    sides = [np.mean([rightness(found.of_pairs(metric), metric) for found in side], axis=0) for side in (first, second)]
    scores = [np.mean([found.cosines for found in side], axis=0) for side in (first, second)]
    return Changes("pair", np.arange(len(sides[0])), sides[0], sides[1], scores[0], scores[1])


def rightness(pairs: ScoredPairs, metric: str) -> Numbers:
    """How well each pair stands, (N,) in [0, 1]; the metric must be one of PAIR_METRICS.

    Metrics that decide: 1 where the pair is called what it is. `auc`, `average_precision`: the share of the pairs of
    the other kind that stand on the right side of it, equal scores counting half, whose mean over the positive pairs is
    AUC. Correlations: 1 - |rank of the score - rank of the label| / (N - 1).
    """
    if metric in DECIDED:
        cut = pairs.cut(metric)
        return np.asarray((pairs.scores >= (np.inf if cut is None else cut)) == pairs.positive, dtype=np.float64)
    if metric in ("auc", "average_precision"):
        return _right_side(pairs.scores, pairs.positive)
    ranks, wanted = average_ranks(pairs.scores), average_ranks(np.asarray(pairs.labels, dtype=np.float64))
    return np.asarray(1 - np.abs(ranks - wanted) / max(1, len(ranks) - 1))


def first_documents(
    vectors: Vectors, dataset: PairDataset, corpus: Corpus | None, rows: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The text (n,) that a model puts first for the query of each of these rows (n,), as `evaluate` ranks.

    vectors: (U, D), row i for text i of the shared table.
    """
    queries = vectors[dataset.query[rows]]
    if searches_corpus(dataset, corpus):
        documents = np.unique(dataset.document) if corpus is None else corpus.document
        positions, _ = search(queries, TextRows(vectors, documents), top=1)
        return documents[positions[:, 0]]
    scores = cosines(vectors, dataset)
    order = np.lexsort((-scores, dataset.query_group))
    groups, begins = np.unique(dataset.query_group[order], return_index=True)
    best = order[begins[np.searchsorted(groups, dataset.query_group[rows])]]
    return dataset.document[best]


def _right_side(scores: Numbers, positive: NDArray[np.bool_]) -> Numbers:
    """For a positive pair the share of negatives below it, for a negative one that of positives above it."""
    right = np.ones(len(scores))
    for kind, sign in ((True, 1.0), (False, -1.0)):
        own, other = sign * scores[positive == kind], np.sort(sign * scores[positive != kind])
        below = np.searchsorted(other, own, side="left") + np.searchsorted(other, own, side="right")
        right[positive == kind] = below / 2 / max(1, len(other))
    return right

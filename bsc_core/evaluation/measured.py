"""What one model was measured to be on one split, kept so that intervals and comparisons need no vectors."""

# N pairs, Q queries, U distinct texts, D dimensions

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import Interval, fitting_draws, query_intervals
from bsc_core.evaluation.drawn_pairs import ScoredPairs, pair_intervals
from bsc_core.evaluation.evaluator import cosines, evaluate_queries
from bsc_core.evaluation.measures import CUTOFFS, Metrics, Numbers, QueryValues
from bsc_core.evaluation.retrieval import Vectors

INTERVAL_SEED = 0
CELLS = 2 * 10**7  # queries times draws, above which fewer are drawn


@dataclass(frozen=True, eq=False)
class Measured:
    """One model on one split, dev or test.

    digest: SHA-256 (hex) of what is measured, equal where two runs were measured on the same rows and documents,
    whatever they were trained on. queries: the ranking metrics of each query, None where the data have no rankings.
    cosines: (N,) of each pair, labels: (N,) grades in [0, 1], groups: (N,) equal for the pairs of one query; labels is
    None where every pair is positive. threshold: a pair is positive when its label is above it. decision,
    accuracy_decision: the cosines from which a pair is called positive, chosen on dev for F1 and for accuracy; None
    where dev gives none.
    """

    split: str
    digest: str
    queries: QueryValues | None
    cosines: Numbers
    labels: NDArray[np.float32] | None
    groups: NDArray[np.int32]
    threshold: float
    decision: float | None
    accuracy_decision: float | None

    @cached_property
    def pairs(self) -> ScoredPairs | None:
        """The pairs with their scores where the labels differ, so that the metrics of all pairs exist; else None."""
        if self.labels is None or not len(self.labels) or not np.ptp(self.labels) > 0:
            return None
        return ScoredPairs(self.cosines, self.labels, self.threshold, self.decision, self.accuracy_decision)

    @cached_property
    def metrics(self) -> Metrics:
        """Every metric that has an interval, as `Evaluator.evaluate` gives it; None where one is not defined."""
        found = {} if self.pairs is None else self.pairs.metrics
        return found | ({} if self.queries is None else self.queries.means())

    def has_queries_of(self, metric: str) -> bool:
        """Whether every query has a value of this metric."""
        return self.queries is not None and metric in self.queries.values

    def of_queries(self, metric: str) -> Numbers:
        """(Q,) a ranking metric by the row where each query first stands. Raises DataError for one it lacks."""
        if self.queries is None or metric not in self.queries.values:
            raise self._missing(metric)
        return self.queries.values[metric][np.argsort(np.asarray(self.queries.query), kind="stable")]

    def of_pairs(self, metric: str) -> ScoredPairs:
        """The pairs, which define this metric of all of them. Raises DataError where they do not."""
        if self.pairs is None or self.pairs.metrics.get(metric) is None:
            raise self._missing(metric)
        return self.pairs

    def _missing(self, metric: str) -> DataError:
        known = ", ".join(name for name, value in self.metrics.items() if value is not None) or "none"
        return DataError(f"comparison: {metric!r} is not defined for these {self.split} pairs; there are {known}")


def measure_split(
    vectors: Vectors,
    dataset: PairDataset,
    corpus: Corpus | None = None,
    *,
    split: str = "dev",
    k: Sequence[int] = CUTOFFS,
    dev: Metrics,
) -> Measured:
    """Measure one split. vectors: (U, D), row i for text i of the shared table; dev: the model's metrics on dev."""
    return Measured(
        split=split,
        digest=split_digest(dataset, corpus),
        queries=evaluate_queries(vectors, dataset, corpus, k=tuple(k)),
        cosines=cosines(vectors, dataset),
        labels=dataset.label,
        groups=_first_rows(dataset),
        threshold=dataset.threshold,
        decision=dev.get("f1_threshold"),
        accuracy_decision=dev.get("accuracy_threshold"),
    )


def split_digest(dataset: PairDataset, corpus: Corpus | None = None) -> str:
    """SHA-256 (hex) of the rows and documents that are measured, in order, by their texts and not by their numbers."""
    digest = hashlib.sha256(repr((len(dataset), dataset.threshold, dataset.document_key)).encode())
    columns = [dataset.query, dataset.document] + ([] if corpus is None else [corpus.document])
    for column in columns:
        digest.update(b"column")
        for text in dataset.texts.take(column):
            raw = text.encode("utf-8")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    digest.update(_first_rows(dataset).tobytes())
    digest.update(b"none" if dataset.label is None else dataset.label.tobytes())
    digest.update(repr(None if corpus is None else corpus.key).encode())
    return digest.hexdigest()


def _first_rows(dataset: PairDataset) -> NDArray[np.int32]:
    """(N,) the row where the query of each row first stands: a number that does not depend on the rest of its file."""
    _, first, place = np.unique(dataset.query_group, return_index=True, return_inverse=True)
    return first[place].astype(np.int32)


def intervals(measured: Measured, *, seed: int) -> dict[str, Interval]:
    """Every defined metric with its 95% interval over queries drawn anew; pairs of one query are drawn together.

    Thresholds stay as they were chosen on dev. With one query there are values and no ranges.
    """
    found = {} if measured.pairs is None else pair_intervals(measured.pairs, measured.groups, seed=seed)
    if measured.queries is None:
        return found
    draws = fitting_draws(len(measured.queries.query), CELLS)
    return found | query_intervals(measured.queries, seed=seed, draws=draws)

"""Evaluation result of one model on one split; intervals and comparisons are computed from it, without vectors."""

# N pairs, Q queries, U distinct texts, D dimensions

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.evaluator import evaluate_queries, first_rows, pair_cosines
from bsc_core.evaluation.metrics.ranking import CUTOFFS, Metrics, QueryValues
from bsc_core.evaluation.stats.bootstrap import Interval, fitting_resamples, query_intervals
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs, pair_intervals
from bsc_core.types import Ids, Numbers, Vectors

INTERVAL_SEED = 0
CELLS = 2 * 10**7  # queries x resamples, above which there are fewer resamples


@dataclass(frozen=True, eq=False)
class EvalResult:
    """One model on one split, dev or test."""

    split: str
    digest: str  # SHA-256 (hex) of the evaluated rows and documents, equal for results that can be compared
    queries: QueryValues | None  # ranking metrics of each query; None if the data have no rankings
    cosines: Numbers  # (N,) of each pair
    labels: Vectors | None  # (N,) grades in [0, 1]; None if every pair is positive
    groups: Ids  # (N,) equal for the pairs of one query
    threshold: float  # a pair is positive if its label is above it
    decision: float | None  # cosine from which a pair is predicted positive, chosen on dev for F1; None if dev has none
    accuracy_decision: float | None  # the same for accuracy

    @cached_property
    def pairs(self) -> ScoredPairs | None:
        """Scored pairs; None if all labels are equal, so that metrics of all pairs are undefined."""
        if self.labels is None or not len(self.labels) or not np.ptp(self.labels) > 0:
            return None
        return ScoredPairs(self.cosines, self.labels, self.threshold, self.decision, self.accuracy_decision)

    @cached_property
    def metrics(self) -> Metrics:
        """Every metric that has an interval, as `Evaluator.evaluate` computes it; None if it is undefined."""
        metrics: Metrics = {} if self.pairs is None else dict(self.pairs.metrics)
        return metrics | ({} if self.queries is None else self.queries.means())

    def has_per_query(self, metric: str) -> bool:
        """Return whether every query has a value of this metric."""
        return self.queries is not None and metric in self.queries.values

    def per_query(self, metric: str) -> Numbers:
        """Return a ranking metric (Q,), ordered by the first row of each query. Raises DataError if it is missing."""
        if self.queries is None or metric not in self.queries.values:
            raise self._missing(metric)
        return self.queries.values[metric][np.argsort(np.asarray(self.queries.query), kind="stable")]

    def scored_pairs(self, metric: str) -> ScoredPairs:
        """Return the scored pairs. Raises DataError unless they define this metric."""
        if self.pairs is None or self.pairs.metrics.get(metric) is None:
            raise self._missing(metric)
        return self.pairs

    def _missing(self, metric: str) -> DataError:
        defined = ", ".join(name for name, value in self.metrics.items() if value is not None) or "none"
        return DataError(f"comparison: {metric!r} is not defined for these {self.split} pairs; there are {defined}")


def evaluate_split(
    vectors: Vectors,
    dataset: PairDataset,
    corpus: Corpus | None = None,
    *,
    split: str = "dev",
    k: Sequence[int] = CUTOFFS,
    dev: Metrics,
) -> EvalResult:
    """Evaluate one split. vectors: (U, D), row i for text i of the shared table; dev: the model's metrics on dev."""
    return EvalResult(
        split=split,
        digest=split_digest(dataset, corpus),
        queries=evaluate_queries(vectors, dataset, corpus, k=tuple(k)),
        cosines=pair_cosines(vectors, dataset),
        labels=dataset.label,
        groups=first_rows(dataset),
        threshold=dataset.threshold,
        decision=dev.get("f1_threshold"),
        accuracy_decision=dev.get("accuracy_threshold"),
    )


def split_digest(dataset: PairDataset, corpus: Corpus | None = None) -> str:
    """Return the SHA-256 (hex) of the evaluated rows and documents, in order, by their texts and not their ids."""
    digest = hashlib.sha256(repr((len(dataset), dataset.threshold, dataset.document_key)).encode())
    columns = [dataset.query, dataset.document] + ([] if corpus is None else [corpus.document])
    for column in columns:
        digest.update(b"column")
        for text in dataset.texts.take(column):
            raw = text.encode("utf-8")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    digest.update(first_rows(dataset).tobytes())
    digest.update(b"none" if dataset.label is None else dataset.label.tobytes())
    digest.update(repr(None if corpus is None else corpus.key).encode())
    return digest.hexdigest()


def result_intervals(result: EvalResult, *, seed: int) -> dict[str, Interval]:
    """Return every defined metric with its 95% interval over queries; pairs of one query are resampled together.

    Thresholds stay those chosen on dev. With one query there are values and no intervals.
    """
    intervals = {} if result.pairs is None else pair_intervals(result.pairs, result.groups, seed=seed)
    if result.queries is None:
        return intervals
    n_resamples = fitting_resamples(len(result.queries.query), CELLS)
    return intervals | query_intervals(result.queries, seed=seed, n_resamples=n_resamples)

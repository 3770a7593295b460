"""Evaluation of vectors on dev and test pairs, and the metric that compares checkpoints."""

# N pairs, U distinct texts, D dimensions

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bsc_core.config import EvaluationConfig
from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import ConfigError, DataError
from bsc_core.evaluation.metrics.pairs import pair_metrics
from bsc_core.evaluation.metrics.ranking import CUTOFFS, Metrics, QueryValues, query_ranking_metrics, ranking_metrics
from bsc_core.evaluation.retrieval.rank import rank, retrieval_task
from bsc_core.evaluation.stats.bootstrap import Interval, fitting_resamples, query_intervals
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs, pair_intervals
from bsc_core.neighbors import TextRows, paired_cosines
from bsc_core.types import Ids, Numbers, Vectors

MAIN_METRICS = ("mrr", "spearman", "f1")
"""Default metrics for comparing checkpoints: the first one that is defined is used."""
THRESHOLD_METRICS = ("f1", "precision", "recall", "accuracy", "f1_threshold", "best_accuracy", "accuracy_threshold")
"""The pair metrics that need a threshold."""
SHARED_QUERIES = "queries_in_dev"
"""Number of test queries whose text also occurs in dev; absent if there are none."""
INTERVAL_SEED = 0
CELLS = 5 * 10**6  # queries x resamples, above which there are fewer resamples


@dataclass(frozen=True)
class Evaluator:
    """Evaluator of the dev and test pairs of an experiment."""

    data: DatasetSplits
    config: EvaluationConfig

    @property
    def text_ids(self) -> Ids:
        """Text ids that `evaluate` reads, ascending; other rows of `vectors` are ignored."""
        splits = [self.data.dev] if self.data.test is None else [self.data.dev, self.data.test]
        return np.unique(np.concatenate([text_ids(split, self.data.corpus) for split in splits]))

    def evaluate(self, vectors: Vectors) -> dict[str, Metrics]:
        """Return the metrics of each split.

        The thresholds of F1 and of accuracy are chosen on dev and applied to test.

        Args:
            vectors: (U, D), row i for text i of the experiment.
        """
        corpus, k = self.data.corpus, self.config.k
        results = {"dev": evaluate(vectors, self.data.dev, corpus, k=k)}
        if self.data.test is not None:
            dev = results["dev"]
            decision, accuracy_decision = dev.get("f1_threshold"), dev.get("accuracy_threshold")
            test = evaluate(
                vectors, self.data.test, corpus, k=k, decision=decision, accuracy_decision=accuracy_decision
            )
            if decision is None and "f1" in test:
                test |= dict.fromkeys(THRESHOLD_METRICS)  # dev gives no threshold, and none may be chosen on test
            shared = shared_queries(self.data.dev, self.data.test)
            results["test"] = test | ({SHARED_QUERIES: float(shared)} if shared else {})
        return results

    def main_metric(self, results: Mapping[str, Metrics]) -> tuple[str, float]:
        """Return the name and value of the dev metric that compares checkpoints; see `main_metric`."""
        return main_metric(results.get("dev") or {}, self.config.metric)


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
        """Return a ranking metric (Q,), ordered by the first row of each query.

        Raises:
            DataError: The metric is missing.
        """
        if self.queries is None or metric not in self.queries.values:
            raise self._missing(metric)
        return self.queries.values[metric][np.argsort(np.asarray(self.queries.query), kind="stable")]

    def scored_pairs(self, metric: str) -> ScoredPairs:
        """Return the scored pairs.

        Raises:
            DataError: The pairs do not define this metric.
        """
        if self.pairs is None or self.pairs.metrics.get(metric) is None:
            raise self._missing(metric)
        return self.pairs

    def _missing(self, metric: str) -> DataError:
        defined = ", ".join(name for name, value in self.metrics.items() if value is not None) or "none"
        return DataError(f"comparison: {metric!r} is not defined for these {self.split} pairs; there are {defined}")


def shared_queries(dev: PairDataset, test: PairDataset) -> int:
    """Count the distinct query texts of test that also occur in dev; both splits must share one text table."""
    return len(np.intersect1d(dev.query, test.query))


def text_ids(dataset: PairDataset, corpus: Corpus | None = None) -> Ids:
    """Return the ids of the texts needed to evaluate the dataset, ascending."""
    columns = [dataset.query, dataset.document, *([] if corpus is None else [corpus.document])]
    return np.unique(np.concatenate(columns))


def evaluate(
    vectors: Vectors,
    dataset: PairDataset,
    corpus: Corpus | None = None,
    *,
    k: tuple[int, ...] = CUTOFFS,
    decision: float | None = None,
    accuracy_decision: float | None = None,
) -> Metrics:
    """Compute the metrics that fit the data; similarity is cosine.

    If the labels differ, `pair_metrics` are included. Ranking metrics are added as follows:

    - With a corpus: retrieval from the corpus.
    - With labeled negatives, if most queries have several candidates: ranking of each query's candidates.
    - With positive pairs only: retrieval from the documents of the dataset.

    Args:
        vectors: (U, D), row i for text i of the shared table.
        dataset: the pairs.
        corpus: the documents to search.
        k: cutoffs of the ranking metrics.
        decision: threshold of F1; None chooses it on these pairs.
        accuracy_decision: threshold of `best_accuracy`; None chooses it on these pairs if `decision` is None too.
    """
    metrics: Metrics = {}
    labels = dataset.label
    graded = labels is not None and len(labels) > 0 and bool(np.ptp(labels) > 0)
    similarities = pair_cosines(vectors, dataset)
    if graded and labels is not None:
        thresholds = {"decision": decision, "accuracy_decision": accuracy_decision}
        metrics |= pair_metrics(similarities, labels, threshold=dataset.threshold, **thresholds)
    if searches_corpus(dataset, corpus):
        task = retrieval_task(dataset, corpus)
        metrics |= rank(vectors[task.query], TextRows(vectors, task.corpus), task, k=k, top=0).metrics
    elif _has_lists(dataset):
        metrics |= ranking_metrics(dataset.query_group, similarities, dataset.positive, k=k, grades=labels)
    return metrics


def evaluate_queries(
    vectors: Vectors, dataset: PairDataset, corpus: Corpus | None = None, *, k: tuple[int, ...] = CUTOFFS
) -> QueryValues | None:
    """Compute the ranking metrics of `evaluate` for each query; None if the data have no rankings.

    A query's id is the first row of the dataset that contains it; for retrieval, its first positive row. Two models
    evaluated on one dataset therefore have the same ids. Arguments as in `evaluate`.
    """
    if searches_corpus(dataset, corpus):
        task = retrieval_task(dataset, corpus)
        return rank(vectors[task.query], TextRows(vectors, task.corpus), task, k=k, top=0).per_query
    if not _has_lists(dataset):
        return None
    cosines = pair_cosines(vectors, dataset)
    return query_ranking_metrics(first_rows(dataset), cosines, dataset.positive, k=k, grades=dataset.label)


def main_metric(metrics: Metrics, wanted: str | None = None) -> tuple[str, float]:
    """Return the name and value of the metric used for comparison; higher is better.

    Args:
        metrics: Metrics by name.
        wanted: Name of the metric; None selects the first of MAIN_METRICS that is defined.

    Raises:
        ConfigError: The wanted metric, or every default, is undefined for the data.
    """
    for name in MAIN_METRICS if wanted is None else (wanted,):
        value = metrics.get(name)
        if value is not None:
            return name, value
    defined = ", ".join(name for name, value in metrics.items() if value is not None) or "none"
    undefined = "any of its defaults" if wanted is None else repr(wanted)
    raise ConfigError(f"evaluation.metric: the dev pairs do not define {undefined}; metrics they define: {defined}")


def pair_cosines(vectors: Vectors, dataset: PairDataset) -> Numbers:
    """Return the cosine (N,) of each pair.

    Args:
        vectors: (U, D), row i for text i of the shared table.
        dataset: The N pairs.
    """
    return paired_cosines(vectors[dataset.query], vectors[dataset.document])


def first_rows(dataset: PairDataset) -> Ids:
    """Return the first row of each row's query (N,), which does not depend on the other splits of its file."""
    _, first, query = np.unique(dataset.query_group, return_index=True, return_inverse=True)
    return first[query].astype(np.int32)


def searches_corpus(dataset: PairDataset, corpus: Corpus | None) -> bool:
    """Return whether documents are searched: a corpus, or the dataset's documents if every pair is positive."""
    return corpus is not None or not dataset.has_negatives


def evaluate_split(
    vectors: Vectors,
    dataset: PairDataset,
    corpus: Corpus | None = None,
    *,
    split: str = "dev",
    k: Sequence[int] = CUTOFFS,
    dev: Metrics,
) -> EvalResult:
    """Evaluate one split.

    Args:
        vectors: (U, D), row i for text i of the shared table.
        dataset: The pairs of the split.
        corpus: The documents to search, or None.
        split: Name of the split.
        k: Cutoffs.
        dev: Metrics of the model on dev, with the thresholds to apply.
    """
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


def split_digest(dataset: PairDataset, corpus: Corpus | None = None, *, of_all_decisions: bool = False) -> str:
    """Return the SHA-256 (hex) of the evaluated rows and documents, in order, by their texts and not their ids.

    of_all_decisions: also of decisions about queries of other splits, as in runs of earlier versions.
    """
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
    decided = np.zeros((0, 2), np.int32) if dataset.decided_positives is None else dataset.decided_positives
    if not of_all_decisions:
        decided = decided[np.isin(decided[:, 0], dataset.query)]
    if len(decided):  # they count as relevant
        pairs = zip(*(dataset.texts.take(side) for side in decided.T), strict=True)
        digest.update(repr(sorted(pairs)).encode("utf-8"))
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


def _has_lists(dataset: PairDataset) -> bool:
    """Return whether most queries have several candidates."""
    _, sizes = np.unique(dataset.query_group, return_counts=True)
    return bool(len(sizes)) and float(np.median(sizes)) >= 2

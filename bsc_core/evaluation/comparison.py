"""Comparison of evaluation results: a metric over all queries or pairs, and the single queries or pairs behind it."""

# Q queries, N pairs, S seeds, U distinct texts, D dimensions, n of the rows

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.evaluator import CELLS, INTERVAL_SEED, EvalResult, pair_cosines, searches_corpus
from bsc_core.evaluation.metrics.pairs import average_ranks
from bsc_core.evaluation.stats.bootstrap import Interval, bootstrap_seeds, fitting_resamples
from bsc_core.evaluation.stats.bootstrap_pairs import (
    CLASSIFICATION_METRICS,
    ScoredPairs,
    compare_pairs,
    mean_pair_interval,
)
from bsc_core.evaluation.stats.significance import Comparison, compare, compare_seeds
from bsc_core.neighbors import TIE, TextRows, top_k
from bsc_core.types import Ids, Indices, Mask, Numbers, Vectors

HIGHEST = 0.995  # of metrics, whose maximum is 1: training can hardly increase a value from here on
SIGNED_METRICS = ("spearman", "pearson")  # metrics between -1 and 1; the others are between 0 and 1


def compare_results(
    first: Sequence[EvalResult], second: Sequence[EvalResult], metric: str, *, seed: int = INTERVAL_SEED
) -> Comparison:
    """Compare two settings by a metric, second - first.

    A metric that each query has is compared query by query: `compare` for one run on both sides, else `compare_seeds`.
    Metrics of all pairs, such as `spearman`, are compared by `compare_pairs`, the pairs of one query being resampled
    together, with the thresholds each run chose on dev.

    Args:
        first: Results of the first setting, one for each training seed; equal ones, such as those of an untrained
            encoder that several runs share, count once.
        second: Results of the second setting.
        metric: Name of the metric.
        seed: Seed of the resampling.

    Raises:
        DataError: The results are of different data, or one does not define the metric.
    """
    one, two = _distinct(first), _distinct(second)
    check_same_data([*one, *two])
    if all(result.has_per_query(metric) for result in (*one, *two)):
        tables = [np.stack([result.per_query(metric) for result in side]) for side in (one, two)]
        n_resamples = fitting_resamples(tables[0].shape[1], CELLS)
        if len(one) == len(two) == 1:
            return compare(tables[0][0], tables[1][0], seed=seed, n_resamples=n_resamples)
        return compare_seeds(tables[0], tables[1], seed=seed, n_resamples=n_resamples)
    pairs = [[result.scored_pairs(metric) for result in side] for side in (one, two)]
    return compare_pairs(pairs[0], pairs[1], metric, one[0].groups, seed=seed)


def setting_interval(results: Sequence[EvalResult], metric: str, *, seed: int = INTERVAL_SEED) -> Interval:
    """Return the mean of a metric over the training seeds of a setting, with its interval over seeds and queries.

    The interval is cut at the ends of the range of the metric, which that of two or three seeds can exceed.

    Raises:
        DataError: As `compare_results`.
    """
    distinct = _distinct(results)
    check_same_data(distinct)
    if all(result.has_per_query(metric) for result in distinct):
        table = np.stack([result.per_query(metric) for result in distinct])
        mean = bootstrap_seeds(table, seed=seed, n_resamples=fitting_resamples(table.shape[1], CELLS)).both
    else:
        pairs = [result.scored_pairs(metric) for result in distinct]
        mean = mean_pair_interval(pairs, metric, distinct[0].groups, seed=seed)
    if mean.low is None or mean.high is None:
        return mean
    return replace(mean, low=max(mean.low, -1.0 if metric in SIGNED_METRICS else 0.0), high=min(mean.high, 1.0))


def check_same_data(results: Sequence[EvalResult]) -> None:
    """Raise DataError unless all results are of the same rows and documents."""
    if not results:
        raise DataError("comparison: no run is given; give at least one on each side")
    if len({result.digest for result in results}) > 1:
        sizes = " and ".join(dict.fromkeys(f"{len(result.cosines):,}" for result in results)) + " pairs"
        split = results[0].split
        raise DataError(
            f"comparison: the runs were evaluated on different {split} data ({sizes}); compare runs whose {split} "
            "pairs and corpus are the same"
        )


def shared_metrics(results: Sequence[EvalResult]) -> list[str]:
    """Return the metrics that all results define, those of all pairs first."""
    defined = [{name for name, value in result.metrics.items() if value is not None} for result in results]
    return [name for name in results[0].metrics if all(name in names for names in defined)] if results else []


@dataclass(frozen=True, eq=False)
class QueryDifferences:
    """The values of each query, or each pair, under two settings."""

    unit: Literal["query", "pair"]
    rows: Indices  # (n,) first dataset row of the query, or row of the pair
    first: Numbers  # (n,) values, means over the seeds; higher is better
    second: Numbers  # (n,)
    first_cosine: Numbers | None = None  # (n,) of pairs, None for queries
    second_cosine: Numbers | None = None  # (n,)

    @property
    def gained(self) -> Numbers:
        """Difference second - first, (n,)."""
        return self.second - self.first

    def wins(self) -> Indices:
        """Return indices into `rows` where the second is better, the largest difference first."""
        return _largest_first(self.gained)

    def losses(self) -> Indices:
        """Return indices into `rows` where the second is worse, the largest difference first."""
        return _largest_first(-self.gained)


def query_differences(first: Sequence[EvalResult], second: Sequence[EvalResult], metric: str) -> QueryDifferences:
    """Return the values behind a difference: of each query, or for a metric of all pairs `pair_correctness`.

    Args:
        first: Results of the first setting, one for each seed, all of the same rows.
        second: Results of the second setting.
        metric: Name of the metric.

    Raises:
        DataError: One of the results does not define the metric.
    """
    if all(result.has_per_query(metric) for result in (*first, *second)):
        rows = np.sort(np.asarray(first[0].queries.query if first[0].queries else (), dtype=np.int64))
        sides = [np.mean([result.per_query(metric) for result in side], axis=0) for side in (first, second)]
        return QueryDifferences("query", rows, sides[0], sides[1])
    sides = [
        np.mean([pair_correctness(result.scored_pairs(metric), metric) for result in side], axis=0)
        for side in (first, second)
    ]
    cosines = [np.mean([result.cosines for result in side], axis=0) for side in (first, second)]
    return QueryDifferences("pair", np.arange(len(sides[0])), sides[0], sides[1], cosines[0], cosines[1])


def pair_correctness(pairs: ScoredPairs, metric: str) -> Numbers:
    """Return how well each pair is scored, (N,) in [0, 1], in the sense of one of PAIR_METRICS.

    Classification metrics: 1 where the prediction is right. `auc`, `average_precision`: the share of the pairs of the
    other class on the right side of it, equal scores counting half; its mean over the positive pairs is AUC.
    Correlations: 1 - |rank of the score - rank of the label| / (N - 1).
    """
    if metric in CLASSIFICATION_METRICS:
        cut = pairs.cut(metric)
        return np.asarray((pairs.scores >= (np.inf if cut is None else cut)) == pairs.positive, dtype=np.float64)
    if metric in ("auc", "average_precision"):
        return _right_side(pairs.scores, pairs.positive)
    ranks, expected = average_ranks(pairs.scores), average_ranks(np.asarray(pairs.labels, dtype=np.float64))
    return np.asarray(1 - np.abs(ranks - expected) / max(1, len(ranks) - 1))


def first_documents(vectors: Vectors, dataset: PairDataset, corpus: Corpus | None, rows: Indices) -> Ids:
    """Return the text id (n,) that a model ranks first for the query of each row, as `evaluate` ranks.

    Of documents that are tied within 1e-6 the first one is returned, by position in the corpus or, for candidate lists,
    by row.

    Args:
        vectors: (U, D), row i for text i of the shared table.
        dataset: The pairs.
        corpus: The documents to search; None: the documents of each query in the dataset.
        rows: (n,) rows of the dataset.
    """
    if searches_corpus(dataset, corpus):
        documents = np.unique(dataset.document) if corpus is None else corpus.document
        positions, _ = top_k(vectors[dataset.query[rows]], TextRows(vectors, documents), 1)
        return documents[positions[:, 0]]
    cosines = pair_cosines(vectors, dataset)
    groups, group = np.unique(dataset.query_group, return_inverse=True)
    highest = np.full(len(groups), -np.inf)
    np.maximum.at(highest, group, cosines)
    tied = np.flatnonzero(cosines >= highest[group] - TIE)
    _, first = np.unique(group[tied], return_index=True)
    best = tied[first]  # a row for each group
    return dataset.document[best[np.searchsorted(groups, dataset.query_group[rows])]]


def _largest_first(gained: Numbers) -> Indices:
    """Return the indices of positive values, largest first, rounded so that equal means over seeds are ties."""
    order = np.argsort(-np.round(gained, 12), kind="stable")
    return order[gained[order] > 0]


def _distinct(side: Sequence[EvalResult]) -> list[EvalResult]:
    """Drop results with equal cosines: runs that start from one encoder share its result."""
    distinct: list[EvalResult] = []
    for result in side:
        if not any(
            result.digest == other.digest and np.array_equal(result.cosines, other.cosines) for other in distinct
        ):
            distinct.append(result)
    return distinct


def _right_side(scores: Numbers, positive: Mask) -> Numbers:
    """Return the share of negatives below each positive pair, and of positives above each negative one: (N,)."""
    right = np.ones(len(scores))
    for kind, sign in ((True, 1.0), (False, -1.0)):
        same, other = sign * scores[positive == kind], np.sort(sign * scores[positive != kind])
        below = np.searchsorted(other, same, side="left") + np.searchsorted(other, same, side="right")
        right[positive == kind] = below / 2 / max(1, len(other))
    return right

"""Which metrics fit which data, and one number to compare checkpoints by."""

# N pairs, U distinct texts, D dimensions

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import EvaluationConfig
from bsc_core.data.experiment import ExperimentData
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.errors import ConfigError
from bsc_core.evaluation.measures import CUTOFFS, Metrics, Numbers, QueryValues
from bsc_core.evaluation.pairs import pair_metrics
from bsc_core.evaluation.ranking import list_values, ranking_metrics
from bsc_core.evaluation.retrieval import Vectors, rank, retrieval_task, unit_rows
from bsc_core.evaluation.rows import TextRows

MAIN_METRICS = ("mrr", "spearman", "f1")
"""What checkpoints are compared by unless the config names another: the first of these that is defined."""
DECIDED = ("f1", "precision", "recall", "accuracy", "f1_threshold", "best_accuracy", "accuracy_threshold")
"""The pair metrics that need a threshold."""
SHARED = "queries_in_dev"
"""How many of the test queries stand in dev too, by their text; absent where none does. An id counts in one split."""


@dataclass(frozen=True)
class Evaluator:
    """Measures the dev and test pairs of an experiment, always the same way."""

    data: ExperimentData
    config: EvaluationConfig

    @property
    def text_ids(self) -> NDArray[np.int32]:
        """The texts whose vectors `evaluate` reads, ascending; other rows of `vectors` may hold anything."""
        parts = [self.data.dev] if self.data.test is None else [self.data.dev, self.data.test]
        return np.unique(np.concatenate([text_ids(part, self.data.corpus) for part in parts]))

    def evaluate(self, vectors: Vectors) -> dict[str, Metrics]:
        """Metrics by split. vectors: (U, D), row i for text i of the experiment.

        The thresholds of F1 and of accuracy are chosen on dev and applied to test.
        """
        corpus, cuts = self.data.corpus, self.config.k
        results = {"dev": evaluate(vectors, self.data.dev, corpus, k=cuts)}
        if self.data.test is not None:
            dev = results["dev"]
            decision, accurate = dev.get("f1_threshold"), dev.get("accuracy_threshold")
            test = evaluate(vectors, self.data.test, corpus, k=cuts, decision=decision, accuracy_decision=accurate)
            if decision is None and "f1" in test:
                test |= dict.fromkeys(DECIDED)  # dev gives no threshold, and test may not choose its own
            shared = shared_queries(self.data.dev, self.data.test)
            results["test"] = test | ({SHARED: float(shared)} if shared else {})
        return results

    def main(self, results: Mapping[str, Metrics]) -> tuple[str, float]:
        """Name and value of the dev metric that checkpoints are compared by; see `main_metric`."""
        return main_metric(results["dev"], self.config.metric)


def shared_queries(dev: PairDataset, test: PairDataset) -> int:
    """Distinct query texts of test that stand in dev too: what is chosen on dev has then seen them.

    Both parts must share one text table.
    """
    return len(np.intersect1d(dev.query, test.query))


def text_ids(dataset: PairDataset, corpus: Corpus | None = None) -> NDArray[np.int32]:
    """The texts that measuring this dataset reads, ascending."""
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
    """The metrics that fit the data. vectors: (U, D), row i for text i of the shared table; similarity is cosine.

    Labels that differ give `pair_metrics` (decision, accuracy_decision: its thresholds, None to choose them here).
    Beside them stand ranking metrics: with a corpus those of retrieval from it; without one those of each query's
    labelled candidates, where most queries have several; and for positive pairs alone those of retrieval from the
    dataset's own documents.
    """
    metrics: Metrics = {}
    labels = dataset.label
    graded = labels is not None and len(labels) > 0 and bool(np.ptp(labels) > 0)
    similarities = cosines(vectors, dataset)
    if graded and labels is not None:
        thresholds = {"decision": decision, "accuracy_decision": accuracy_decision}
        metrics |= pair_metrics(similarities, labels, threshold=dataset.threshold, **thresholds)
    if searches_corpus(dataset, corpus):
        task = retrieval_task(dataset, corpus)
        metrics |= rank(vectors[task.query], TextRows(vectors, task.corpus), task, k=k, top=1).metrics
    elif _has_lists(dataset):
        metrics |= ranking_metrics(dataset.query_group, similarities, dataset.positive, k=k, grades=labels)
    return metrics


def evaluate_queries(
    vectors: Vectors, dataset: PairDataset, corpus: Corpus | None = None, *, k: tuple[int, ...] = CUTOFFS
) -> QueryValues | None:
    """The ranking metrics of `evaluate` for each query, to compare runs by; None where the data have no rankings.

    A query's id is the row of the dataset where it first stands, for retrieval where it first has a positive pair; two
    models measured on one dataset so have the same ids, and `rows` of the dataset tell the texts.
    """
    if searches_corpus(dataset, corpus):
        task = retrieval_task(dataset, corpus)
        return rank(vectors[task.query], TextRows(vectors, task.corpus), task, k=k, top=1).per_query
    if not _has_lists(dataset):
        return None
    _, first, place = np.unique(dataset.query_group, return_index=True, return_inverse=True)
    return list_values(first[place], cosines(vectors, dataset), dataset.positive, k=k, grades=dataset.label)


def main_metric(metrics: Metrics, wanted: str | None = None) -> tuple[str, float]:
    """Name and value of the metric to compare by; higher is better.

    wanted: its name, None for the first of MAIN_METRICS that is defined. Raises ConfigError, naming what there is,
    where the wanted metric (or every default) is absent or undefined for the data.
    """
    for name in MAIN_METRICS if wanted is None else (wanted,):
        value = metrics.get(name)
        if value is not None:
            return name, value
    defined = ", ".join(name for name, value in metrics.items() if value is not None) or "none"
    asked = "none of its defaults" if wanted is None else repr(wanted)
    raise ConfigError(f"evaluation.metric: the dev pairs do not define {asked}; metrics they define: {defined}")


def cosines(vectors: Vectors, dataset: PairDataset) -> Numbers:
    """Cosine of each pair: (N,). vectors: (U, D), row i for text i of the shared table."""
    queries, documents = unit_rows(vectors[dataset.query]), unit_rows(vectors[dataset.document])
    similarities: Numbers = np.einsum("nd,nd->n", queries, documents, dtype=np.float64)
    return similarities


def searches_corpus(dataset: PairDataset, corpus: Corpus | None) -> bool:
    """Whether documents are searched: those of a corpus, or the dataset's own where every pair is positive."""
    return corpus is not None or not dataset.has_negatives


def _has_lists(dataset: PairDataset) -> bool:
    """Whether most queries have several candidates."""
    _, sizes = np.unique(dataset.query_group, return_counts=True)
    return bool(len(sizes)) and float(np.median(sizes)) >= 2

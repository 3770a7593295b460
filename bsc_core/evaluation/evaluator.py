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
from bsc_core.evaluation.pairs import pair_metrics
from bsc_core.evaluation.ranking import CUTOFFS, Metrics, ranking_metrics
from bsc_core.evaluation.retrieval import Vectors, rank, retrieval_task, unit_rows

MAIN_METRICS = ("mrr", "spearman", "f1")
"""What checkpoints are compared by unless the config names another: the first of these that is defined."""
DECIDED = ("f1", "precision", "recall", "accuracy", "f1_threshold")
"""The pair metrics that need a threshold."""


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

        The threshold of F1 is chosen on dev and applied to test.
        """
        corpus, cuts = self.data.corpus, self.config.k
        results = {"dev": evaluate(vectors, self.data.dev, corpus, k=cuts)}
        if self.data.test is not None:
            decision = results["dev"].get("f1_threshold")
            results["test"] = evaluate(vectors, self.data.test, corpus, k=cuts, decision=decision)
            if decision is None and "f1" in results["test"]:
                results["test"] |= dict.fromkeys(DECIDED)  # dev gives no threshold, and test may not choose its own
        return results

    def main(self, results: Mapping[str, Metrics]) -> tuple[str, float]:
        """Name and value of the dev metric that checkpoints are compared by; see `main_metric`."""
        return main_metric(results["dev"], self.config.metric)


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
) -> Metrics:
    """The metrics that fit the data. vectors: (U, D), row i for text i of the shared table; similarity is cosine.

    Labels that differ give `pair_metrics` (decision: its threshold for F1, None to choose it here). Beside them stand
    ranking metrics: with a corpus those of retrieval from it; without one those of each query's labelled candidates,
    where most queries have several; and for positive pairs alone those of retrieval from the dataset's own documents.
    """
    metrics: Metrics = {}
    labels = dataset.label
    graded = labels is not None and len(labels) > 0 and bool(np.ptp(labels) > 0)
    similarities = _cosines(vectors, dataset)
    if graded and labels is not None:
        metrics |= pair_metrics(similarities, labels, threshold=dataset.threshold, decision=decision)
    if corpus is not None or not dataset.has_negatives:
        task = retrieval_task(dataset, corpus)
        metrics |= rank(vectors[task.query], vectors[task.corpus], task, k=k, top=1).metrics
    elif _has_lists(dataset):
        metrics |= ranking_metrics(dataset.query_group, similarities, dataset.positive, k=k)
    return metrics


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


def _cosines(vectors: Vectors, dataset: PairDataset) -> NDArray[np.float64]:
    """Cosine of each pair: (N,)."""
    queries, documents = unit_rows(vectors[dataset.query]), unit_rows(vectors[dataset.document])
    similarities: NDArray[np.float64] = np.einsum("nd,nd->n", queries, documents, dtype=np.float64)
    return similarities


def _has_lists(dataset: PairDataset) -> bool:
    """Whether most queries have several candidates."""
    _, sizes = np.unique(dataset.query_group, return_counts=True)
    return bool(len(sizes)) and float(np.median(sizes)) >= 2

"""Evaluators of sentence-transformers on this project's datasets, for SentenceTransformerTrainer and scripts.

They encode texts themselves and have neither tie handling nor intervals. Without tied scores their metrics equal those
of `bsc_core.evaluation`.
"""

from collections import defaultdict

import numpy as np
from sentence_transformers.sentence_transformer.evaluation import (
    BinaryClassificationEvaluator,
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    RerankingEvaluator,
)

from bsc_core.data import Corpus, PairDataset
from bsc_core.evaluation import retrieval_task

CUTOFFS = (1, 3, 5, 10)


def retrieval_evaluator(
    dataset: PairDataset, corpus: Corpus | None = None, *, k: tuple[int, ...] = CUTOFFS, name: str = ""
) -> InformationRetrievalEvaluator:
    """Return an evaluator that searches a corpus for each query that has a positive pair.

    MRR and MAP use the complete ranking. Relevant documents that the corpus lacks are ignored, and so are queries
    without any other.

    Args:
        dataset: The pairs.
        corpus: Texts to search; by default the documents of the dataset.
        k: Cutoffs of the other metrics.
        name: Prefix of the metrics' names.
    """
    task = retrieval_task(dataset, corpus)
    queries = [query for query in range(len(task.query)) if len(task.relevant(query))]
    size = len(task.corpus)
    return InformationRetrievalEvaluator(
        {str(query): dataset.texts[int(task.query[query])] for query in queries},
        {str(index): text for index, text in enumerate(dataset.texts.take(task.corpus))},
        {str(query): {str(index) for index in task.relevant(query)} for query in queries},
        accuracy_at_k=list(k),
        precision_recall_at_k=list(k),
        ndcg_at_k=list(k),
        mrr_at_k=[size],
        map_at_k=[size],
        name=name,
        write_csv=False,
    )


def similarity_evaluator(dataset: PairDataset, *, name: str = "") -> EmbeddingSimilarityEvaluator:
    """Return an evaluator of the correlations of similarities and labels (1 if the dataset has no labels)."""
    labels = np.ones(len(dataset)) if dataset.label is None else dataset.label
    return EmbeddingSimilarityEvaluator(*_sides(dataset), labels.tolist(), name=name, write_csv=False)


def binary_evaluator(dataset: PairDataset, *, name: str = "") -> BinaryClassificationEvaluator:
    """Return an evaluator of accuracy, F1 and average precision; labels above the dataset's threshold are positive.

    It chooses the similarity thresholds on the evaluated pairs themselves.
    """
    labels = dataset.positive.astype(int).tolist()
    return BinaryClassificationEvaluator(*_sides(dataset), labels, name=name, write_csv=False)


def reranking_evaluator(dataset: PairDataset, *, k: int = 10, name: str = "") -> RerankingEvaluator:
    """Return an evaluator that ranks each query's labeled candidates, for queries with positives and negatives."""
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, query in enumerate(dataset.query_group.tolist()):
        rows[query].append(row)
    samples: list[dict[str, str | list[str]]] = [
        {
            "query": dataset.texts[int(dataset.query[group[0]])],
            "positive": [dataset.texts[int(dataset.document[row])] for row in group if dataset.positive[row]],
            "negative": [dataset.texts[int(dataset.document[row])] for row in group if not dataset.positive[row]],
        }
        for group in rows.values()
    ]
    return RerankingEvaluator(samples, at_k=k, name=name, write_csv=False)


def _sides(dataset: PairDataset) -> tuple[list[str], list[str]]:
    return dataset.texts.take(dataset.query), dataset.texts.take(dataset.document)

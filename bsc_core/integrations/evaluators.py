"""The evaluators of sentence-transformers on the data of this project, for SentenceTransformerTrainer and scripts.

They encode for themselves and know neither ties nor intervals; where no scores are tied their numbers are those of
`bsc_core.evaluation`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.data import Corpus, PairDataset
from bsc_core.evaluation import retrieval_task

if TYPE_CHECKING:
    from sentence_transformers.sentence_transformer.evaluation import (
        BinaryClassificationEvaluator,
        EmbeddingSimilarityEvaluator,
        InformationRetrievalEvaluator,
        RerankingEvaluator,
    )

CUTOFFS = (1, 3, 5, 10)


def retrieval_evaluator(
    dataset: PairDataset, corpus: Corpus | None = None, *, k: tuple[int, ...] = CUTOFFS, name: str = ""
) -> InformationRetrievalEvaluator:
    """Searches a corpus, or the dataset's own documents, for each query that has a positive pair.

    MRR and MAP are taken over the whole corpus. Gold documents that the corpus lacks cannot be told to it: their
    queries count what is left, and queries without any are left out.
    """
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    task = retrieval_task(dataset, corpus)
    found = [query for query in range(len(task.query)) if len(task.relevant(query))]
    size = len(task.corpus)
    return InformationRetrievalEvaluator(
        {str(query): dataset.texts[int(task.query[query])] for query in found},
        {str(place): text for place, text in enumerate(dataset.texts.take(task.corpus))},
        {str(query): {str(place) for place in task.relevant(query)} for query in found},
        accuracy_at_k=list(k),
        precision_recall_at_k=list(k),
        ndcg_at_k=list(k),
        mrr_at_k=[size],
        map_at_k=[size],
        name=name,
        write_csv=False,
    )


def similarity_evaluator(dataset: PairDataset, *, name: str = "") -> EmbeddingSimilarityEvaluator:
    """Spearman and Pearson of the pairs' similarities with their labels; 1 where the dataset has none."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    labels = np.ones(len(dataset)) if dataset.label is None else dataset.label
    return EmbeddingSimilarityEvaluator(*_sides(dataset), labels.tolist(), name=name, write_csv=False)


def binary_evaluator(dataset: PairDataset, *, name: str = "") -> BinaryClassificationEvaluator:
    """Accuracy, F1 and average precision of the pairs, positive where their label is above the dataset's threshold.

    It chooses its thresholds on the pairs that it measures.
    """
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

    labels = dataset.positive.astype(int).tolist()
    return BinaryClassificationEvaluator(*_sides(dataset), labels, name=name, write_csv=False)


def reranking_evaluator(dataset: PairDataset, *, k: int = 10, name: str = "") -> RerankingEvaluator:
    """Ranks each query's labelled candidates; queries without a positive or without a negative are left out by it."""
    from sentence_transformers.sentence_transformer.evaluation import RerankingEvaluator

    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(dataset.query_group.tolist()):
        rows[group].append(row)
    samples: list[dict[str, str | list[str]]] = [
        {
            "query": dataset.texts[int(dataset.query[own[0]])],
            "positive": [dataset.texts[int(dataset.document[row])] for row in own if dataset.positive[row]],
            "negative": [dataset.texts[int(dataset.document[row])] for row in own if not dataset.positive[row]],
        }
        for own in rows.values()
    ]
    return RerankingEvaluator(samples, at_k=k, name=name, write_csv=False)


def _sides(dataset: PairDataset) -> tuple[list[str], list[str]]:
    return dataset.texts.take(dataset.query), dataset.texts.take(dataset.document)

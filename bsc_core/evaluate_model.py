"""Evaluation of an encoder on a pair file, without training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.data import Corpus, PairDataset, load_evaluation_data
from bsc_core.data.read_report import rejected_rows
from bsc_core.encoders import cached_vectors, embed
from bsc_core.errors import InputError
from bsc_core.evaluation import evaluate
from bsc_core.evaluation.evaluator import INTERVAL_SEED, evaluate_split, result_intervals
from bsc_core.types import Vectors


def evaluate_model(
    encoder: EncoderConfig,
    data: DataConfig,
    *,
    decision: float | None = None,
    accuracy_decision: float | None = None,
    dimensions: Sequence[int] = (),
) -> dict[str, Any]:
    """Evaluate an encoder on all pairs of `data.train`.

    Args:
        encoder: the encoder.
        data: the pair file, its columns, and the corpus.
        decision: cosine from which a pair is predicted positive, such as a run's `f1_threshold` on its dev pairs; None
            chooses it on these pairs, so that F1 is optimistic.
        accuracy_decision: the same for `best_accuracy`.
        dimensions: numbers d of coordinates: the metrics of the vectors truncated to their first d are added, with
            thresholds chosen on these pairs.

    Returns:
        model, data, rows, rejected, metrics, f1_threshold_from, intervals: the 95% interval [low, high] of every
        metric over resampled queries, with fixed thresholds; and with `dimensions`, the metrics by dimension.

    Raises:
        InputError: The vectors have fewer dimensions.
    """
    data = data.model_copy(update={"separate_sides": encoder.has_prompts})
    dataset, documents = load_evaluation_data(data)
    vectors = embed_with_corpus(encoder, dataset, documents)
    if max(dimensions, default=0) > vectors.shape[1]:
        raise InputError(f"dimensions has {max(dimensions)}, and the vectors of {encoder.name} have {vectors.shape[1]}")
    metrics = evaluate(vectors, dataset, documents, decision=decision, accuracy_decision=accuracy_decision)
    result = evaluate_split(vectors, dataset, documents, dev=metrics)
    intervals = result_intervals(result, seed=INTERVAL_SEED)
    truncated = {one: evaluate(np.ascontiguousarray(vectors[:, :one]), dataset, documents) for one in dimensions}
    return {
        "model": encoder.name,
        "data": data.train,
        "rows": len(dataset),
        "rejected": rejected_rows([dataset.report]),
        "metrics": metrics,
        "intervals": {name: [interval.low, interval.high] for name, interval in intervals.items()},
        "f1_threshold_from": "these pairs" if decision is None else "the dev pairs of the run",
        **({"dimensions": {str(one): values for one, values in truncated.items()}} if truncated else {}),
    }


def embed_with_corpus(encoder: EncoderConfig, dataset: PairDataset, corpus: Corpus | None) -> Vectors:
    """Return the vectors (U, D) of the table that dataset and corpus share, row i for text i.

    The vectors of the documents are cached separately, so a corpus is encoded once per model for any queries.
    """
    if corpus is None:
        return embed(encoder, dataset.texts)
    cached = cached_vectors(encoder, dataset.texts)
    if cached is not None:
        return np.array(cached)
    documents = np.fromiter(dict.fromkeys(corpus.document.tolist()), dtype=np.int32)  # in corpus order
    others = np.setdiff1d(np.arange(len(dataset.texts), dtype=np.int32), documents)
    parts = [part for part in (documents, others) if len(part)]
    encoded = [embed(encoder, dataset.texts.subset(part)[0]) for part in parts]
    vectors = np.empty((len(dataset.texts), encoded[0].shape[1]), dtype=np.float32)
    for part, rows in zip(parts, encoded, strict=True):
        vectors[part] = rows
    return vectors

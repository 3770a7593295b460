"""What can be measured without training: a model on a pair file, and the batches that a plan would hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching import build_plan, plan_hardness, plan_notes
from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.data import (
    SPLIT_SEED,
    Corpus,
    ExperimentData,
    PairDataset,
    ReadReport,
    TextTable,
    load_evaluation_data,
)
from bsc_core.encoders import embed, known_vectors
from bsc_core.evaluation import Evaluator, evaluate
from bsc_core.evaluation.measured import INTERVAL_SEED, intervals, measure_split
from bsc_core.preparation.prepare import load_experiment
from bsc_core.training.rows import training_rows

Metrics = dict[str, float | None]
Vectors = NDArray[np.float32]


def rejected_rows(reports: Sequence[ReadReport], shown: int = 20) -> list[str]:
    """One sentence for each row that was not read, at most `shown` for a file, and then one for how many there are."""
    sentences = []
    for report in reports:
        sentences += [f"{report.source}: {row.sentence(report.unit)}" for row in report.rejected[:shown]]
        if report.rejected:
            sentences.append(f"{report.source}: {len(report.rejected):,} of {report.rows_read:,} rows rejected")
    return sentences


def measure(config: RunConfig, data: ExperimentData, vectors: Vectors) -> dict[str, Metrics]:
    """Metrics of dev and, where there is one, test; the thresholds are chosen on dev and applied to test."""
    return Evaluator(data, config.evaluation).evaluate(vectors)


def evaluate_model(
    encoder: EncoderConfig, data: DataConfig, *, decision: float | None = None, accuracy_decision: float | None = None
) -> dict[str, Any]:
    """Measure an encoder on all pairs of `data.train`. Returns model, data, rows, rejected, metrics and intervals.

    decision: cosine from which a pair counts as positive, such as a run's `f1_threshold` on its dev pairs; None chooses
    it on the measured pairs themselves, so that F1 is optimistic. `f1_threshold_from` says which. accuracy_decision:
    the same for `best_accuracy`. `intervals`: [low, high] of every metric of queries and of all pairs, 95% over queries
    drawn again, thresholds staying as they are.
    """
    dataset, documents = load_evaluation_data(data)
    vectors = embed_with_corpus(encoder, dataset, documents)
    metrics = evaluate(vectors, dataset, documents, decision=decision, accuracy_decision=accuracy_decision)
    drawn = intervals(measure_split(vectors, dataset, documents, dev=metrics), seed=INTERVAL_SEED)
    return {
        "model": encoder.name,
        "data": data.train,
        "rows": len(dataset),
        "rejected": rejected_rows([dataset.report]),
        "metrics": metrics,
        "intervals": {name: [found.low, found.high] for name, found in drawn.items()},
        "f1_threshold_from": "these pairs" if decision is None else "the dev pairs of the run",
    }


def embed_with_corpus(encoder: EncoderConfig, dataset: PairDataset, corpus: Corpus | None) -> Vectors:
    """Vectors (U, D) of the table that dataset and corpus share, row i for text i.

    The documents' vectors are kept on disk by themselves, so that a corpus is encoded once for the content of a model,
    whatever queries are asked of it.
    """
    if corpus is None:
        return embed(encoder, dataset.texts)
    known = known_vectors(encoder, dataset.texts)
    if known is not None:
        return np.array(known)
    documents = np.fromiter(dict.fromkeys(corpus.document.tolist()), dtype=np.int32)  # in the corpus' own order
    others = np.setdiff1d(np.arange(len(dataset.texts), dtype=np.int32), documents)
    parts = [
        (ids, embed(encoder, TextTable(tuple(dataset.texts.take(ids))))) for ids in (documents, others) if len(ids)
    ]
    vectors = np.empty((len(dataset.texts), parts[0][1].shape[1]), dtype=np.float32)
    for ids, found in parts:
        vectors[ids] = found
    return vectors


def plan_report(config: RunConfig, *, epoch: int = 0) -> dict[str, Any]:
    """What the batches of an epoch would hold, seen by the encoder the run starts from. Trains nothing.

    epoch counts from 0. Returns counts, sizes of the groups, and how hard the in-batch negatives are.
    """
    data = load_experiment(config.data, seed=SPLIT_SEED)
    train = training_rows(config, data.train)
    vectors = embed(config.encoder, data.texts)
    started = time.perf_counter()
    plan = build_plan(config.batching, train, vectors, seed=config.training.seed, epoch=epoch)
    seconds = time.perf_counter() - started
    found = plan_hardness(plan, train, vectors, config.training.batch_size)
    batches = plan.batches(config.training.batch_size)
    crossed = sum(len(rows) * (len(rows) - 1) // 2 for rows in batches)
    sizes, counts = np.unique(np.unique(plan.groups, return_counts=True)[1], return_counts=True)
    return {
        "strategy": config.batching.strategy,
        "epoch": epoch,
        "rows": len(train),
        "rejected": rejected_rows(data.reports),
        "funnel": {stage.name: stage.count for stage in data.funnel},
        "batches": len(batches),
        "groups": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "hardest_negative": _quantiles(found.hardest),
        "closer_share": found.closer_share,
        "collisions": found.collisions,
        "collision_share": found.collisions / crossed if crossed else 0.0,
        "notes": plan_notes(config.batching, train),
        "intact": found.intact,
        "facts": plan.facts,
        "seconds": seconds,
    }


def _quantiles(values: NDArray[np.floating[Any]]) -> dict[str, float | None]:
    """Tenth, middle and ninetieth percentile of the values that are defined."""
    defined = values[~np.isnan(values)]
    shares = {"p10": 0.1, "median": 0.5, "p90": 0.9}
    return {name: float(np.quantile(defined, share)) if len(defined) else None for name, share in shares.items()}

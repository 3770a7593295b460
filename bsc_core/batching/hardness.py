"""Hardness of in-batch negatives: similarities in the batches of a plan."""

# M rows of the plan, B rows of a batch, U distinct texts, D dimensions

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.collisions import KnownPairs
from bsc_core.batching.plan import BatchPlan
from bsc_core.data import PairDataset
from bsc_core.neighbors import unit_rows
from bsc_core.types import Ids, Matrix, Vectors


@dataclass(frozen=True, eq=False)
class Hardness:
    """Hardness of a plan.

    Attributes:
        hardest: float32 (M,) in plan order, the largest cosine of each query with another row's document, without
            collisions; nan if the batch has no such document.
        pair_similarity: float32 (M,) in plan order, the cosine of the row's query and document.
        closer_share: Share in [0, 1] of positive rows whose hardest negative is closer than their positive; None if no
            positive row has a negative.
        collisions: Pairs of rows in one batch that collide in at least one direction.
        intact: Share of the groups that are in one batch; None without groups.
        batch_collisions: int32, collisions of each batch.
        batch_likely_false_negatives: int32, by batch: for queries of positive rows, documents that are known positives,
            or closer than the positive and not labeled negative.
    """

    hardest: NDArray[np.float32]
    pair_similarity: NDArray[np.float32]
    closer_share: float | None
    collisions: int
    intact: float | None
    batch_collisions: Ids
    batch_likely_false_negatives: Ids


@dataclass(frozen=True)
class HardNegative:
    """A query and an in-batch negative."""

    query_row: int
    document_row: int
    similarity: float  # cosine of query and negative
    positive_similarity: float  # cosine of query and positive
    labeled_negative: bool


def similarity_matrix(dataset: PairDataset, embeddings: Vectors, rows: Ids) -> Matrix:
    """Return the cosine of every query with every document of a batch, float32 (B, B), pairs on the diagonal.

    A zero vector has cosine 0 with all others.

    Args:
        dataset: The dataset.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        rows: (B,) rows of the batch.
    """
    return unit_rows(embeddings[dataset.query[rows]]) @ unit_rows(embeddings[dataset.document[rows]]).T


def plan_hardness(plan: BatchPlan, dataset: PairDataset, embeddings: Vectors, batch_size: int) -> Hardness:
    """Compute the hardness of all batches of a plan.

    Args:
        plan: The plan.
        dataset: The dataset of the plan.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        batch_size: Rows in a batch.
    """
    known = KnownPairs(dataset)
    hardest = np.full(len(plan), np.nan, dtype=np.float32)
    pair_similarity = np.empty(len(plan), dtype=np.float32)
    collisions, likely = [], []
    for positions in plan.positions(batch_size):
        rows = plan.order[positions]
        similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
        collides = known.collisions(rows)
        pair_similarity[positions] = similarities.diagonal()
        hardest[positions] = _hardest(similarities, collides)
        collisions.append(int(np.triu(collides | collides.T).sum()))
        cells = (collides | (similarities > similarities.diagonal()[:, None])) & dataset.positive[rows][:, None]
        np.fill_diagonal(cells, False)
        likely.append(int((cells & ~known.negative(rows)).sum()))
    counted = dataset.positive[plan.order] & ~np.isnan(hardest)
    closer = float((hardest > pair_similarity)[counted].mean()) if counted.any() else None
    return Hardness(
        hardest,
        pair_similarity,
        closer,
        sum(collisions),
        plan.intact(batch_size),
        np.array(collisions, dtype=np.int32),
        np.array(likely, dtype=np.int32),
    )


def _hardest(similarities: Matrix, collides: NDArray[np.bool_]) -> NDArray[np.float32]:
    negatives = np.where(collides, np.float32(-np.inf), similarities)
    np.fill_diagonal(negatives, -np.inf)
    hardest: NDArray[np.float32] = negatives.max(axis=1)
    return np.where(np.isneginf(hardest), np.float32(np.nan), hardest)


def hardest_negatives(dataset: PairDataset, embeddings: Vectors, rows: Ids, top: int = 20) -> list[HardNegative]:
    """Return the most similar off-diagonal pairs of a batch, most similar first.

    Queries of rows labeled negative are skipped: they have no positive and add no term to the loss (equation 5 of the
    BSC paper). Their documents remain negatives of the other queries.

    Args:
        dataset: The dataset.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        rows: (B,) rows of the batch.
        top: Maximum number of pairs.
    """
    similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
    negative = KnownPairs(dataset).negative(rows)
    pair_similarity = similarities.diagonal()
    eligible = dataset.positive[rows][:, None] & ~np.eye(len(rows), dtype=np.bool_)
    queries, documents = np.nonzero(eligible)
    ranked = _largest(similarities[queries, documents], top)
    return [
        HardNegative(
            query_row=int(rows[i]),
            document_row=int(rows[j]),
            similarity=float(similarities[i, j]),
            positive_similarity=float(pair_similarity[i]),
            labeled_negative=bool(negative[i, j]),
        )
        for i, j in zip(queries[ranked], documents[ranked], strict=True)
    ]


def _largest(values: NDArray[np.float32], top: int) -> NDArray[np.intp]:
    """Return the positions of the `top` largest values, largest first; ties in their order."""
    if len(values) <= top:
        return np.argsort(-values, kind="stable")
    threshold = np.partition(values, len(values) - top)[len(values) - top]
    candidates = np.flatnonzero(values >= threshold)
    return candidates[np.argsort(-values[candidates], kind="stable")[:top]]

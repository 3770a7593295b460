"""How hard a plan makes its negatives: the similarities that the loss will meet in each batch."""

# M rows of the plan, B rows of a batch, U distinct texts, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids, Matrix, Vectors
from bsc_core.batching.collisions import KnownPairs
from bsc_core.batching.knn import unit_rows
from bsc_core.batching.plan import BatchPlan
from bsc_core.data import PairDataset


@dataclass(frozen=True, eq=False)
class Hardness:
    """What the rows of a plan meet in their batches.

    hardest: float32 (M,), the largest cosine of each row's query with another row's document, collisions left out;
    nan where the batch has no such document. own: float32 (M,), the cosine of the row's own pair. Both follow
    plan.order. closer_share: share in [0, 1] of the positive rows whose hardest negative is closer than their own
    document; None when no positive row has a negative. collisions: pairs of rows in one batch that collide in at
    least one direction. intact: share of the groups that lie in one batch whole; None without groups.
    batch_collisions, batch_suspects: int32, one number for each batch: its collisions as above, and its likely false
    negatives: of positive rows' queries, documents that answer them or lie closer than their own, unless labelled
    negative.
    """

    hardest: NDArray[np.float32]
    own: NDArray[np.float32]
    closer_share: float | None
    collisions: int
    intact: float | None
    batch_collisions: Ids
    batch_suspects: Ids


@dataclass(frozen=True)
class HardNegative:
    """A query and another row's document that stands as its negative in the batch.

    query_row, document_row: row numbers of the dataset. similarity, own_similarity: cosines with that document and
    with the query's own. labelled_negative: the dataset says that it is no answer. suspected: the dataset says that
    it is an answer (a collision), or says nothing and the document is closer than the query's own.
    """

    query_row: int
    document_row: int
    similarity: float
    own_similarity: float
    labelled_negative: bool
    suspected: bool


def similarity_matrix(dataset: PairDataset, embeddings: Vectors, rows: Ids) -> Matrix:
    """Cosine of every query with every document of a batch.

    embeddings: (U, D), row t for text t of dataset.texts. rows: (B,). Returns float32 (B, B); the diagonal holds the
    given pairs. A zero vector has cosine 0 with everything.
    """
    return unit_rows(embeddings[dataset.query[rows]]) @ unit_rows(embeddings[dataset.document[rows]]).T


def plan_hardness(plan: BatchPlan, dataset: PairDataset, embeddings: Vectors, batch_size: int) -> Hardness:
    """Measure every batch of a plan. embeddings: (U, D), row t for text t of dataset.texts."""
    known = KnownPairs(dataset)
    hardest = np.full(len(plan), np.nan, dtype=np.float32)
    own = np.empty(len(plan), dtype=np.float32)
    collisions, suspected = [], []
    for places in plan.places(batch_size):
        rows = plan.order[places]
        similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
        collides = known.collisions(rows)
        own[places] = similarities.diagonal()
        hardest[places] = _hardest(similarities, collides)
        collisions.append(int(np.triu(collides | collides.T).sum()))
        suspects = (collides | (similarities > own[places][:, None])) & dataset.positive[rows][:, None]
        np.fill_diagonal(suspects, False)
        suspected.append(int((suspects & ~known.negative(rows)).sum()))
    counted = dataset.positive[plan.order] & ~np.isnan(hardest)
    closer = float((hardest > own)[counted].mean()) if counted.any() else None
    return Hardness(
        hardest,
        own,
        closer,
        sum(collisions),
        plan.intact(batch_size),
        np.array(collisions, dtype=np.int32),
        np.array(suspected, dtype=np.int32),
    )


def _hardest(similarities: Matrix, collides: NDArray[np.bool_]) -> NDArray[np.float32]:
    negatives = np.where(collides, np.float32(-np.inf), similarities)
    np.fill_diagonal(negatives, -np.inf)
    hardest: NDArray[np.float32] = negatives.max(axis=1)
    return np.where(np.isneginf(hardest), np.float32(np.nan), hardest)


def hardest_negatives(dataset: PairDataset, embeddings: Vectors, rows: Ids, top: int = 20) -> list[HardNegative]:
    """The `top` most similar off-diagonal pairs of a batch, most similar first.

    Queries of rows labelled negative are left out: such a row has no positive to be compared with, and its query adds
    no term to the loss (equation 5 of the BSC paper). Its document stays, as a negative of the other queries.

    embeddings: (U, D), row t for text t of dataset.texts. rows: (B,).
    """
    similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
    known = KnownPairs(dataset)
    collides, negative = known.collisions(rows), known.negative(rows)
    own = similarities.diagonal()
    eligible = dataset.positive[rows][:, None] & ~np.eye(len(rows), dtype=np.bool_)
    suspected = collides | ((similarities > own[:, None]) & ~negative)
    queries, documents = np.nonzero(eligible)
    ranked = _largest(similarities[queries, documents], top)
    return [
        HardNegative(
            query_row=int(rows[i]),
            document_row=int(rows[j]),
            similarity=float(similarities[i, j]),
            own_similarity=float(own[i]),
            labelled_negative=bool(negative[i, j]),
            suspected=bool(suspected[i, j]),
        )
        for i, j in zip(queries[ranked], documents[ranked], strict=True)
    ]


def _largest(values: NDArray[np.float32], top: int) -> NDArray[np.intp]:
    """Places of the `top` largest values, largest first; equal values in their order."""
    if len(values) <= top:
        return np.argsort(-values, kind="stable")
    least = np.partition(values, len(values) - top)[len(values) - top]
    found = np.flatnonzero(values >= least)
    return found[np.argsort(-values[found], kind="stable")[:top]]

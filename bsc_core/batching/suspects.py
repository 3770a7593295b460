"""Likely false negatives of a batch: documents that may well answer a query although the loss pushes them away."""

# B rows of a batch, U distinct texts, D dimensions, V distinct words of a batch

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bsc_core.batching.arrays import Ids, Mask, Vectors
from bsc_core.batching.collisions import KnownPairs
from bsc_core.batching.hardness import similarity_matrix
from bsc_core.data import PairDataset

ALIKE = 0.8
"""Share of common words (Jaccard) from which two texts count as nearly equal."""
WORD = re.compile(r"\w+")


class Reason(StrEnum):
    """Why a pair is suspected; the strongest first."""

    MARKED = "marked by hand"
    SAME_DOCUMENT = "same document"
    SAME_QUERY = "same query"
    LABELLED = "labelled positive elsewhere"
    NEAR_DOCUMENT = "nearly the same document"
    NEAR_QUERY = "nearly the same query"
    CLOSER = "nearer than its own document"


@dataclass(frozen=True)
class Suspect:
    """A query and another row's document that may be no negative at all.

    query_row, document_row: row numbers of the dataset. similarity, own_similarity: cosines with that document and with
    the query's own. reasons: strongest first.
    """

    query_row: int
    document_row: int
    similarity: float
    own_similarity: float
    reasons: tuple[Reason, ...]


def marked_cells(dataset: PairDataset, rows: Ids) -> Mask:
    """Whether a person marked query i with document j as a false negative. rows: (B,). Returns (B, B)."""
    marks = dataset.marked_pairs.astype(np.int64)
    names = marks[:, 0] * len(dataset.texts) + marks[:, 1]
    asked = dataset.query[rows].astype(np.int64)[:, None] * len(dataset.texts) + dataset.document[rows]
    found: Mask = np.isin(asked, names)
    return found


def suspects(dataset: PairDataset, embeddings: Vectors, rows: Ids, top: int = 50) -> list[Suspect]:
    """The `top` likeliest false negatives of a batch: strongest reason first, then the most similar.

    Asked are the queries of positive rows; a pair that the data label negative is no suspect. embeddings: (U, D), row t
    for text t of dataset.texts. rows: (B,).
    """
    similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
    own = similarities.diagonal()
    held = _evidence(dataset, rows) | {Reason.CLOSER: similarities > own[:, None]}
    asked = dataset.positive[rows][:, None] & ~np.eye(len(rows), dtype=np.bool_)
    asked &= held[Reason.MARKED] | ~KnownPairs(dataset).negative(rows)
    strength = np.full(asked.shape, len(Reason), dtype=np.int8)
    for place, reason in reversed(list(enumerate(Reason))):
        strength[held[reason] & asked] = place
    queries, documents = np.nonzero(strength < len(Reason))
    ranked = np.lexsort((-similarities[queries, documents], strength[queries, documents]))[:top]
    return [
        Suspect(
            int(rows[i]),
            int(rows[j]),
            float(similarities[i, j]),
            float(own[i]),
            tuple(reason for reason in Reason if held[reason][i, j]),
        )
        for i, j in zip(queries[ranked].tolist(), documents[ranked].tolist(), strict=True)
    ]


def _evidence(dataset: PairDataset, rows: Ids) -> dict[Reason, Mask]:
    """What the texts and labels say of each cell (B, B)."""
    query, document, group = dataset.query[rows], dataset.document[rows], dataset.query_group[rows]
    answers = dataset.positive[rows][None, :]  # only what row j answers, or is answered by, speaks for its document
    same_document = document[:, None] == document[None, :]
    same_query = (query[:, None] == query[None, :]) | (group[:, None] == group[None, :])
    marked = marked_cells(dataset, rows)
    return {
        Reason.MARKED: marked,
        Reason.SAME_DOCUMENT: same_document,
        Reason.SAME_QUERY: same_query & answers,
        Reason.LABELLED: KnownPairs(dataset).positive(rows) & ~same_document & ~(same_query & answers) & ~marked,
        Reason.NEAR_DOCUMENT: alike(dataset.texts.take(document)) & ~same_document,
        Reason.NEAR_QUERY: alike(dataset.texts.take(query)) & ~same_query & answers,
    }


def alike(texts: list[str]) -> Mask:
    """Which texts are nearly equal: at least ALIKE of their distinct words, without case, in common.

    texts: B texts. Returns bool (B, B); a text without a word is like no other.
    """
    words = [set(WORD.findall(text.casefold())) for text in texts]
    numbers = {word: place for place, word in enumerate(sorted(set().union(*words)))}
    held = np.zeros((len(texts), max(1, len(numbers))), dtype=np.float32)  # (B, V)
    for row, mine in enumerate(words):
        held[row, [numbers[word] for word in mine]] = 1
    common = held @ held.T  # (B, B)
    sizes = held.sum(axis=1)
    either = sizes[:, None] + sizes[None, :] - common
    found: Mask = (common > 0) & (common >= ALIKE * either - 1e-4)
    return found

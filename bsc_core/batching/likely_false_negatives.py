"""Likely false negatives: in-batch negatives that texts or labels suggest to be positive."""

# B rows of a batch, U distinct texts, D dimensions, V distinct words of a batch

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from bsc_core.batching.collisions import KnownPairs
from bsc_core.batching.hardness import similarity_matrix
from bsc_core.data import PairDataset
from bsc_core.data.text_normalization import words_of
from bsc_core.neighbors import paired_cosines, top_k
from bsc_core.types import Ids, Indices, Mask, Vectors

NEARLY_EQUAL = 0.8
"""Jaccard similarity of words from which two texts count as nearly equal."""
NEARLY_EQUAL_COSINE = 0.8
"""Cosine of two documents from which `nearest_false_negatives` counts them as nearly the same."""
CACHED_TEXTS = 4096
"""Texts whose words are kept while pairs of them are compared."""

NEIGHBORS = 10
"""Nearest documents of a query that are checked over all training pairs."""


class Reason(StrEnum):
    """Why a pair is a likely false negative, strongest reason first."""

    MARKED = "marked by hand"
    SAME_DOCUMENT = "same document"
    SAME_QUERY = "same query"
    LABELED = "labeled positive elsewhere"
    NEAR_DOCUMENT = "nearly the same document"
    NEAR_QUERY = "nearly the same query"
    CLOSER = "closer than the positive"
    MINED = "mined as a negative"


@dataclass(frozen=True)
class LikelyFalseNegative:
    """A pair that is counted as negative and may be relevant.

    Attributes:
        query_row: Row of the query, whose document is its positive.
        document_row: Row with the document; with `mined_false_negatives` of triplets, the row with the negative.
        similarity: Cosine of query and document.
        positive_similarity: Cosine of query and positive.
        reasons: The strongest first.
    """

    query_row: int
    document_row: int
    similarity: float
    positive_similarity: float
    reasons: tuple[Reason, ...]


def marked_cells(dataset: PairDataset, rows: Ids) -> Mask:
    """Return bool (B, B): query i and document j were marked as a false negative by hand.

    Args:
        dataset: The dataset.
        rows: (B,) rows of the batch.
    """
    marked = dataset.marked_pairs.astype(np.int64)
    keys = marked[:, 0] * len(dataset.texts) + marked[:, 1]
    pairs = dataset.query[rows].astype(np.int64)[:, None] * len(dataset.texts) + dataset.document[rows]
    cells: Mask = np.isin(pairs, keys)
    return cells


def likely_false_negatives(
    dataset: PairDataset, embeddings: Vectors, rows: Ids, top: int = 50
) -> list[LikelyFalseNegative]:
    """Return the most likely false negatives of a batch, by reason and then by similarity.

    Only queries of positive rows are considered, and no pairs labeled negative.

    Args:
        dataset: The dataset.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        rows: (B,) rows of the batch.
        top: Maximum number of pairs.
    """
    similarities = similarity_matrix(dataset, embeddings, rows)  # (B, B)
    pair_similarity = similarities.diagonal()
    evidence = _evidence(dataset, rows) | {Reason.CLOSER: similarities > pair_similarity[:, None]}
    considered = dataset.positive[rows][:, None] & ~np.eye(len(rows), dtype=np.bool_)
    considered &= evidence[Reason.MARKED] | ~KnownPairs(dataset).negative(rows)
    strength = np.full(considered.shape, len(evidence), dtype=np.int8)
    for rank, reason in reversed(list(enumerate(evidence))):
        strength[evidence[reason] & considered] = rank
    queries, documents = np.nonzero(strength < len(evidence))
    ranked = np.lexsort((-similarities[queries, documents], strength[queries, documents]))[:top]
    return [
        LikelyFalseNegative(
            int(rows[i]),
            int(rows[j]),
            float(similarities[i, j]),
            float(pair_similarity[i]),
            tuple(reason for reason, cells in evidence.items() if cells[i, j]),
        )
        for i, j in zip(queries[ranked].tolist(), documents[ranked].tolist(), strict=True)
    ]


def nearest_false_negatives(dataset: PairDataset, embeddings: Vectors, top: int = 50) -> list[LikelyFalseNegative]:
    """Return the most likely false negatives among all training pairs, by reason and then by similarity.

    Candidates are the `NEIGHBORS` nearest documents of each query that no label and no person has decided. They are
    likely false negatives where they are closer than the query's positive (the pairs that the mask of a guide with
    margin 0 removes), or if one of the two texts is nearly the same as that of the positive pair, by its words or, for
    the document, by its vector.

    Args:
        dataset: The dataset.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        top: Maximum number of pairs.
    """
    positive_rows = np.flatnonzero(dataset.positive)
    query_texts, first = np.unique(dataset.query[positive_rows], return_index=True)
    query_rows = positive_rows[first]  # (Q,)
    document_texts, first = np.unique(dataset.document[positive_rows], return_index=True)
    document_rows = positive_rows[first]  # (M,)
    if not len(query_rows):
        return []
    positions, scores = top_k(embeddings[query_texts], embeddings[document_texts], min(NEIGHBORS, len(document_rows)))
    positive_scores = paired_cosines(embeddings[query_texts], embeddings[dataset.document[query_rows]])  # (Q,)
    undecided = ~_decided(dataset, query_rows, document_texts[positions].astype(np.int32))
    number, column = np.nonzero(undecided)
    queries, documents = query_rows[number], document_rows[positions[number, column]]
    similar = paired_cosines(embeddings[dataset.document[queries]], embeddings[dataset.document[documents]])
    closer = scores[number, column] > positive_scores[number]
    words = lru_cache(CACHED_TEXTS)(lambda text: words_of(dataset.texts[text]))
    results = []
    for index, (query_row, document_row) in enumerate(zip(queries.tolist(), documents.tolist(), strict=True)):
        near = [
            have_nearly_equal_words(*(words(int(ids[row])) for row in (query_row, document_row)))
            for ids in (dataset.document, dataset.query)
        ]
        applies = {
            Reason.NEAR_DOCUMENT: near[0] or similar[index] >= NEARLY_EQUAL_COSINE,
            Reason.NEAR_QUERY: near[1],
            Reason.CLOSER: bool(closer[index]),
        }
        if any(applies.values()):
            score, positive = float(scores[number[index], column[index]]), float(positive_scores[number[index]])
            reasons = tuple(reason for reason, is_true in applies.items() if is_true)
            results.append(LikelyFalseNegative(query_row, document_row, score, positive, reasons))
    order = list(Reason)
    results.sort(key=lambda one: (order.index(one.reasons[0]), -one.similarity))
    return results[:top]


def mined_false_negatives(dataset: PairDataset, embeddings: Vectors, top: int = 50) -> list[LikelyFalseNegative]:
    """Return the negatives of training pairs that are most similar to their query compared with its positive.

    These are rows labeled negative and, in triplets, the negatives of the rows, each pair of texts once and without
    those that a person has decided. The order is that of the cosine minus that of the query's least similar positive.

    Args:
        dataset: Training pairs with mined negatives.
        embeddings: (U, D), row t for text t of `dataset.texts`.
        top: Maximum number of pairs.
    """
    positives = np.flatnonzero(dataset.positive)
    documents = dataset.document if dataset.negative is None else dataset.negative
    negatives = np.flatnonzero(~dataset.positive) if dataset.negative is None else np.arange(len(dataset))
    decided = dataset.has_pair(dataset.marked_pairs, documents)
    if dataset.decided_negatives is not None:
        decided |= dataset.has_pair(dataset.decided_negatives, documents)
    negatives = negatives[~decided[negatives] & np.isin(dataset.query[negatives], dataset.query[positives])]
    if not len(negatives):
        return []
    keys = dataset.query[negatives].astype(np.int64) * len(dataset.texts) + documents[negatives]
    negatives = negatives[np.sort(np.unique(keys, return_index=True)[1])]
    cosines = paired_cosines(embeddings[dataset.query[positives]], embeddings[dataset.document[positives]])
    ordered = np.lexsort((cosines, dataset.query[positives]))  # the least similar positive of each query first
    queries, first = np.unique(dataset.query[positives][ordered], return_index=True)
    lowest = ordered[first][np.searchsorted(queries, dataset.query[negatives])]  # (n,) indices of positives
    scores = paired_cosines(embeddings[dataset.query[negatives]], embeddings[documents[negatives]])
    found = np.argsort(cosines[lowest] - scores, kind="stable")[:top]
    return [
        LikelyFalseNegative(
            int(positives[lowest[one]]),
            int(negatives[one]),
            float(scores[one]),
            float(cosines[lowest[one]]),
            (Reason.CLOSER, Reason.MINED) if scores[one] > cosines[lowest[one]] else (Reason.MINED,),
        )
        for one in found.tolist()
    ]


def _decided(dataset: PairDataset, query_rows: Indices, documents: Ids) -> Mask:
    """Return bool (Q, n): a label or a person decided the pair of the row's query and the document.

    query_rows: (Q,) rows. documents: (Q, n) text ids.
    """
    texts = len(dataset.texts)
    pairs = [np.stack([dataset.query, dataset.document], axis=1), dataset.marked_pairs]
    pairs += [] if dataset.decided_negatives is None else [dataset.decided_negatives]
    by_text = np.concatenate(pairs).astype(np.int64) @ [texts, 1]
    by_group = dataset.query_group.astype(np.int64) * texts + dataset.document
    decided: Mask = np.isin(dataset.query[query_rows].astype(np.int64)[:, None] * texts + documents, by_text)
    decided |= np.isin(dataset.query_group[query_rows].astype(np.int64)[:, None] * texts + documents, by_group)
    return decided


def _evidence(dataset: PairDataset, rows: Ids) -> dict[Reason, Mask]:
    """Return bool (B, B) for each reason, in the order of `Reason`."""
    query, document, group = dataset.query[rows], dataset.document[rows], dataset.query_group[rows]
    positive = dataset.positive[rows][None, :]  # (1, B), of the document's row
    same_document = document[:, None] == document[None, :]
    same_query = (query[:, None] == query[None, :]) | (group[:, None] == group[None, :])
    marked = marked_cells(dataset, rows)
    return {
        Reason.MARKED: marked,
        Reason.SAME_DOCUMENT: same_document,
        Reason.SAME_QUERY: same_query & positive,
        Reason.LABELED: KnownPairs(dataset).positive(rows) & ~same_document & ~(same_query & positive) & ~marked,
        Reason.NEAR_DOCUMENT: nearly_equal(dataset.texts.take(document)) & ~same_document,
        Reason.NEAR_QUERY: nearly_equal(dataset.texts.take(query)) & ~same_query & positive,
    }


def have_nearly_equal_words(left: frozenset[str], right: frozenset[str]) -> bool:
    """Return whether two texts with these words are nearly equal; see `nearly_equal`."""
    common = len(left & right)
    return common > 0 and common >= NEARLY_EQUAL * (len(left) + len(right) - common) - 1e-4


def nearly_equal(texts: list[str]) -> Mask:
    """Return bool (B, B): the Jaccard similarity of the case-folded words is at least NEARLY_EQUAL.

    A text without words equals no other. Texts are compared by their words, see `words_of`.
    """
    from scipy.sparse import csr_array

    words = [words_of(text) for text in texts]
    index: dict[str, int] = {}
    column = [index.setdefault(word, len(index)) for distinct in words for word in distinct]
    sizes = np.asarray([len(distinct) for distinct in words])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    ones = np.ones(len(column), dtype=np.float32)
    occurs = csr_array((ones, column, ends), shape=(len(texts), len(index)))  # (B, V)
    frequent = np.bincount(column, minlength=len(index)) > len(texts) / 8  # these are few, and slow as sparse columns
    dense, rare = occurs[:, frequent].toarray(), occurs[:, ~frequent]
    common = dense @ dense.T + (rare @ rare.T).toarray()  # (B, B)
    union = sizes[:, None] + sizes[None, :] - common
    cells: Mask = (common > 0) & (common >= NEARLY_EQUAL * union - 1e-4)
    return cells

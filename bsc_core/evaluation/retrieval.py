"""Retrieval: every document of a corpus is ranked for every query by cosine similarity."""

# Q queries, M documents of the corpus, D dimensions, R gold entries in all, U distinct texts

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.ranking import CUTOFFS, Metrics

Vectors = NDArray[np.float32]
Ids = NDArray[np.int32]

BLOCK_BYTES = 32 * 2**20
TIE = 1e-6  # matrix products of equal vectors differ by as much


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, documents and which of them belong together.

    query: (Q,) text ids; corpus: (M,) text ids; gold: (R,) positions in the corpus, those of query i being
    gold[offsets[i]:offsets[i + 1]] in ascending order; absent: (Q,) gold documents of each that the corpus lacks;
    rows: (Q,) the dataset row where each query first has a positive pair.
    """

    query: Ids
    corpus: Ids
    offsets: NDArray[np.int64]
    gold: Ids
    absent: Ids
    rows: Ids

    @property
    def missing(self) -> int:
        """Gold documents that are not in the corpus."""
        return int(self.absent.sum())

    def relevant(self, query: int) -> Ids:
        """Positions in the corpus of one query's gold documents."""
        return self.gold[self.offsets[query] : self.offsets[query + 1]]


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """metrics by name; first_rank: (Q,) rank of the first gold document from 1, 0 where none is in the corpus;
    top_ids, top_positions, top_scores: (Q, top) the best documents' text ids, corpus positions and cosines."""

    metrics: Metrics
    first_rank: Ids
    top_ids: Ids
    top_positions: Ids
    top_scores: Vectors


def retrieval_task(dataset: PairDataset, corpus: Corpus | None = None) -> RetrievalTask:
    """The task that a dataset's positive pairs set: one query for each query group that has a positive pair.

    corpus: None takes the dataset's own distinct documents. Gold documents are found by their keys where dataset and
    corpus both have them (a row without a key by its text), else by text id; a gold document that the corpus lacks is
    counted, and its query stays in as a miss. Both parts must share one text table.
    """
    documents = np.unique(dataset.document) if corpus is None else corpus.document
    by_key = corpus is not None and corpus.key is not None and dataset.document_key is not None
    positions: defaultdict[str | int, list[int]] = defaultdict(list)
    for position, text in enumerate(documents.tolist()):
        positions[text].append(position)
    if by_key and corpus is not None and corpus.key is not None:
        for position, key in enumerate(corpus.key):
            positions[key].append(position)
    gold: dict[int, set[int]] = {}
    first_row: dict[int, int] = {}
    absent: dict[int, set[str | int]] = defaultdict(set)
    for row in np.flatnonzero(dataset.positive).tolist():
        group = int(dataset.query_group[row])
        first_row.setdefault(group, row)
        key = dataset.document_key[row] if by_key and dataset.document_key is not None else ""
        found = positions.get(key or int(dataset.document[row]), [])
        gold.setdefault(group, set()).update(found)
        if not found:
            absent[group].add(key or int(dataset.document[row]))
    rows = np.fromiter(first_row.values(), dtype=np.int32, count=len(first_row))
    offsets = np.zeros(len(gold) + 1, dtype=np.int64)
    np.cumsum([len(found) for found in gold.values()], out=offsets[1:])
    flat = [position for found in gold.values() for position in sorted(found)]
    return RetrievalTask(
        query=dataset.query[rows],
        corpus=documents,
        offsets=offsets,
        gold=np.asarray(flat, dtype=np.int32),
        absent=np.array([len(absent[group]) for group in first_row], dtype=np.int32),
        rows=rows,
    )


def rank(
    queries: Vectors, corpus: Vectors, task: RetrievalTask, *, k: tuple[int, ...] = CUTOFFS, top: int = 10
) -> RetrievalResult:
    """Rank the corpus for each query by cosine similarity.

    queries: (Q, D) and corpus: (M, D), row by row those of the task; they need no normalising, and a zero vector has
    similarity 0 with everything. Metrics in [0, 1]: `has_positive@k`, the share of queries with a gold document among
    the first k; `mrr`, mean 1 / rank of the first; `map`, mean over queries of the precision at each gold document.
    Similarities within 1e-6 are ties and the gold document is ranked last of them. Gold documents that the corpus lacks
    are misses. Means are None without queries; `queries`, `documents` and `gold_missing` are counts.
    """
    if len(queries) != len(task.query) or len(corpus) != len(task.corpus):
        raise DataError(
            f"retrieval: {len(queries)} x {len(corpus)} vectors for {len(task.query)} queries and {len(task.corpus)} "
            "documents; give one vector for each"
        )
    width = min(top, len(corpus))
    first_rank = np.zeros(len(queries), dtype=np.int32)
    average_precision = np.zeros(len(queries))
    best = np.zeros((len(queries), width), dtype=np.int32)
    best_scores = np.zeros((len(queries), width), dtype=np.float32)
    for rows, similarities in _blocks(queries, corpus):
        best[rows], best_scores[rows] = _best(similarities, width)
        for query, similarity in zip(range(rows.start, rows.stop), similarities, strict=True):
            ranks = _gold_ranks(similarity, task.relevant(query))
            if len(ranks):
                first_rank[query] = ranks[0]
                average_precision[query] = np.sum(np.arange(1, len(ranks) + 1) / ranks) / (
                    len(ranks) + task.absent[query]
                )
    metrics = _summary(first_rank, average_precision, k)
    counts: Metrics = {"queries": len(queries), "documents": len(corpus), "gold_missing": task.missing}
    return RetrievalResult(metrics | counts, first_rank, task.corpus[best], best, best_scores)


def search(queries: Vectors, corpus: Vectors, *, top: int = 10) -> tuple[Ids, Vectors]:
    """The best documents for each query: positions in the corpus and cosines, both (Q, min(top, M)), best first."""
    width = min(top, len(corpus))
    best = np.zeros((len(queries), width), dtype=np.int32)
    scores = np.zeros((len(queries), width), dtype=np.float32)
    for rows, similarities in _blocks(queries, corpus):
        best[rows], scores[rows] = _best(similarities, width)
    return best, scores


def unit_rows(vectors: Vectors) -> Vectors:
    """Each row divided by its length; a zero row stays zero. Raises DataError for NaN or infinity."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    if not np.isfinite(lengths).all():
        row = int(np.flatnonzero(~np.isfinite(lengths[:, 0]))[0])
        raise DataError(f"vectors: row {row} is not finite; train again with a lower learning rate or another encoder")
    units: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def _blocks(queries: Vectors, corpus: Vectors) -> Iterator[tuple[slice, Vectors]]:
    """Slices of the queries with their cosines (rows, M), a few MiB at a time."""
    queries = unit_rows(np.asarray(queries, dtype=np.float32))
    columns = unit_rows(np.asarray(corpus, dtype=np.float32)).T
    rows = max(1, BLOCK_BYTES // max(1, 4 * len(corpus)))
    for start in range(0, len(queries), rows):
        block = slice(start, min(start + rows, len(queries)))
        yield block, queries[block] @ columns


def _best(similarities: Vectors, width: int) -> tuple[Ids, Vectors]:
    """Positions and values of the `width` largest of each row, largest first, equal ones by position."""
    if width < similarities.shape[1]:
        chosen = np.sort(np.argpartition(similarities, -width, axis=1)[:, -width:], axis=1)
    else:
        chosen = np.broadcast_to(np.arange(width), similarities.shape)
    values = np.take_along_axis(similarities, chosen, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1).astype(np.int32), np.take_along_axis(values, order, axis=1)


def _gold_ranks(similarity: Vectors, gold: Ids) -> NDArray[np.int64]:
    """Ascending ranks of the gold documents, each after every other document that is at least as similar."""
    values = np.sort(similarity[gold])[::-1]
    at_least = np.asarray([np.count_nonzero(similarity >= value - TIE) for value in values], dtype=np.int64)
    gold_at_least = np.count_nonzero(values[None, :] >= values[:, None] - TIE, axis=1)
    ranks: NDArray[np.int64] = at_least - gold_at_least + np.arange(1, len(values) + 1)
    return ranks


def _summary(first_rank: Ids, average_precision: NDArray[np.float64], k: tuple[int, ...]) -> Metrics:
    if not len(first_rank):
        return {**{f"has_positive@{cut}": None for cut in k}, "mrr": None, "map": None}
    found = first_rank > 0
    reciprocal = np.divide(1.0, first_rank, out=np.zeros(len(first_rank)), where=found)
    metrics: Metrics = {f"has_positive@{cut}": float(np.mean(found & (first_rank <= cut))) for cut in k}
    return metrics | {"mrr": float(reciprocal.mean()), "map": float(average_precision.mean())}

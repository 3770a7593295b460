"""Retrieval: every document of a corpus is ranked for every query by cosine similarity."""

# Q queries, M documents of the corpus, D dimensions, R gold entries in all, U distinct texts

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.measures import CUTOFFS, Metrics, Numbers, Placed, QueryValues, exponential, query_values
from bsc_core.evaluation.rows import Documents
from bsc_core.evaluation.top import TopDocuments

Vectors = NDArray[np.float32]
Ids = NDArray[np.int32]
Progress = Callable[[int, int], object]
"""Called with (documents done, documents in all)."""

BLOCK_BYTES = 32 * 2**20
BLOCK_DOCUMENTS = 16_384
GOLD_AT_ONCE = 65_536
TIE = 1e-6  # matrix products of equal vectors differ by as much


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, documents and which of them belong together.

    query: (Q,) text ids; corpus: (M,) text ids; gold: (R,) positions in the corpus, those of query i being
    gold[offsets[i]:offsets[i + 1]] in ascending order; absent: (Q,) gold documents of each that the corpus lacks;
    rows: (Q,) the dataset row where each query first has a positive pair. grades: (R,) labels of the gold documents
    and absent_grades: (A,) those of the absent ones, by query, where the data grade them; None counts each as 1.
    """

    query: Ids
    corpus: Ids
    offsets: NDArray[np.int64]
    gold: Ids
    absent: Ids
    rows: Ids
    grades: Numbers | None = None
    absent_grades: Numbers | None = None

    @property
    def missing(self) -> int:
        """Gold documents that are not in the corpus."""
        return int(self.absent.sum())

    @property
    def owner(self) -> NDArray[np.int64]:
        """(R,) the query number of each gold position."""
        return np.repeat(np.arange(len(self.query)), np.diff(self.offsets))

    def relevant(self, query: int) -> Ids:
        """Positions in the corpus of one query's gold documents."""
        return self.gold[self.offsets[query] : self.offsets[query + 1]]

    def others(self, query: int, positions: Ids) -> Ids:
        """Those of some positions in the corpus that are not gold for a query."""
        return positions[~np.isin(positions, self.relevant(query))]


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """metrics by name; first_rank: (Q,) rank of the first gold document from 1, 0 where none is in the corpus;
    top_ids, top_positions, top_scores: (Q, top) the best documents' text ids, corpus positions and cosines; per_query:
    what the metrics average, its ids being the queries' rows in the dataset."""

    metrics: Metrics
    first_rank: Ids
    top_ids: Ids
    top_positions: Ids
    top_scores: Vectors
    per_query: QueryValues


def retrieval_task(dataset: PairDataset, corpus: Corpus | None = None) -> RetrievalTask:
    """The task that a dataset's positive pairs set: one query for each query group that has a positive pair.

    corpus: None takes the dataset's own distinct documents. Gold documents are found by their keys where dataset and
    corpus both have them (a row without a key by its text), else by text id; a gold document that the corpus lacks is
    counted, and its query stays in as a miss. A gold document's grade is its label, the highest where it has several;
    pairs that are not positive have none. Both parts must share one text table.
    """
    documents = np.unique(dataset.document) if corpus is None else corpus.document
    find = _finder(dataset, documents, corpus)
    gold: defaultdict[int, dict[int, float]] = defaultdict(dict)  # position -> grade, for each query group
    absent: defaultdict[int, dict[str | int, float]] = defaultdict(dict)
    first_row: dict[int, int] = {}
    for row in np.flatnonzero(dataset.positive).tolist():
        group, grade = int(dataset.query_group[row]), 1.0 if dataset.label is None else float(dataset.label[row])
        first_row.setdefault(group, row)
        name, found = find(row)
        for position in found:
            gold[group][position] = max(grade, gold[group].get(position, 0.0))
        if not found:
            absent[group][name] = max(grade, absent[group].get(name, 0.0))
    rows = np.fromiter(first_row.values(), dtype=np.int32, count=len(first_row))
    offsets = np.zeros(len(first_row) + 1, dtype=np.int64)
    np.cumsum([len(gold[group]) for group in first_row], out=offsets[1:])
    flat = [entry for group in first_row for entry in sorted(gold[group].items())]
    graded = dataset.label is not None
    return RetrievalTask(
        query=dataset.query[rows],
        corpus=documents,
        offsets=offsets,
        gold=np.asarray([position for position, _ in flat], dtype=np.int32),
        absent=np.array([len(absent[group]) for group in first_row], dtype=np.int32),
        rows=rows,
        grades=np.asarray([grade for _, grade in flat]) if graded else None,
        absent_grades=np.asarray([grade for group in first_row for grade in absent[group].values()])
        if graded
        else None,
    )


def _finder(
    dataset: PairDataset, documents: Ids, corpus: Corpus | None
) -> Callable[[int], tuple[str | int, list[int]]]:
    """How a row's document is named, and the positions in the corpus where it stands."""
    keys = dataset.document_key if corpus is not None and corpus.key is not None else None
    positions: defaultdict[str | int, list[int]] = defaultdict(list)
    for position, text in enumerate(documents.tolist()):
        positions[text].append(position)
    if keys is not None and corpus is not None and corpus.key is not None:
        for position, key in enumerate(corpus.key):
            positions[key].append(position)

    def find(row: int) -> tuple[str | int, list[int]]:
        name = (keys[row] if keys is not None else "") or int(dataset.document[row])
        return name, positions.get(name, [])

    return find


def rank(
    queries: Vectors,
    corpus: Documents,
    task: RetrievalTask,
    *,
    k: tuple[int, ...] = CUTOFFS,
    top: int = 10,
    progress: Progress | None = None,
) -> RetrievalResult:
    """Rank the corpus for each query by cosine similarity.

    queries: (Q, D) and corpus: (M, D), row by row those of the task; they need no normalising, and a zero vector has
    similarity 0 with everything. The corpus may be a memory-mapped file or `TextRows` of one: beside the queries and
    `top` documents for each, some 100 MiB are held whatever its size. Metrics in [0, 1] are the means over queries of
    `query_values`: `mrr`, `map`, `has_positive@k`, `precision@k`, `recall@k` and `ndcg@k`, and where gold documents are
    graded also `ndcg_exponential@k`. A k above M takes the whole corpus.

    Similarities within 1e-6 are ties and the gold document is ranked last of them, so that no rank depends on the
    order of the corpus; the top documents have equal ones by position. Gold documents that the corpus lacks are misses.
    Every query of a task has a gold document, so none is skipped. Means are None without queries; `queries`,
    `documents` and `gold_missing` are counts. Raises DataError for vectors that are not finite, of a wrong
    number or of two sizes.
    """
    if len(queries) != len(task.query) or len(corpus) != len(task.corpus):
        raise DataError(
            f"retrieval: {len(queries)} x {len(corpus)} vectors for {len(task.query)} queries and {len(task.corpus)} "
            "documents; give one vector for each"
        )
    units = _query_units(queries, corpus)
    gold = _GoldRanks(task, _gold_cosines(units, corpus, task))
    best = TopDocuments(len(queries), min(top, len(corpus)))
    for documents, rows, cosines in _blocks(units, corpus, progress):
        best.add(rows, documents.start, cosines)
        gold.count(documents, rows, cosines)
    measured = _measured(task, gold, k)
    counts: Metrics = {"queries": len(queries), "documents": len(corpus), "gold_missing": task.missing}
    positions = best.positions()
    metrics = measured.means() | counts
    return RetrievalResult(metrics, gold.first(), task.corpus[positions], positions, best.cosines(), measured)


def search(
    queries: Vectors, corpus: Documents, *, top: int = 10, progress: Progress | None = None
) -> tuple[Ids, Vectors]:
    """The best documents for each query: positions in the corpus and cosines, both (Q, min(top, M)), best first.

    Equal cosines come by position. Raises DataError for vectors that are not finite, or of two sizes.
    """
    units = _query_units(queries, corpus)
    best = TopDocuments(len(queries), min(top, len(corpus)))
    for documents, rows, cosines in _blocks(units, corpus, progress):
        best.add(rows, documents.start, cosines)
    return best.positions(), best.cosines()


def query_cosines(query: Vectors, corpus: Documents) -> Vectors:
    """(M,) cosines of one query (D,) with every document, those that `search` orders. Raises as it does."""
    cosines = np.empty(len(corpus), dtype=np.float32)
    for documents, _, block in _blocks(_query_units(query[None], corpus), corpus, None):
        cosines[documents] = block[0]
    return cosines


def unit_rows(vectors: Vectors, *, first: int = 0) -> Vectors:
    """Each row divided by its length; a zero row stays zero. Raises DataError for NaN or infinity.

    first: the number that the first row has in messages.
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    if not np.isfinite(lengths).all():
        row = first + int(np.flatnonzero(~np.isfinite(lengths[:, 0]))[0])
        raise DataError(f"vectors: row {row} is not finite; train again with a lower learning rate or another encoder")
    units: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def _query_units(queries: Vectors, corpus: Documents) -> Vectors:
    if queries.shape[1] != corpus.shape[1]:
        sizes = f"{queries.shape[1]} numbers for the queries and of {corpus.shape[1]} for the documents"
        raise DataError(f"retrieval: vectors of {sizes}; encode both with one model")
    return unit_rows(np.asarray(queries, dtype=np.float32))


def _blocks(units: Vectors, corpus: Documents, progress: Progress | None) -> Iterator[tuple[slice, slice, Vectors]]:
    """Slices of documents and queries with their cosines, a few MiB at a time, which the next block overwrites."""
    width = max(1, min(BLOCK_DOCUMENTS, len(corpus)))
    height = max(1, min(len(units), BLOCK_BYTES // (4 * width)))
    room = np.empty(height * width, dtype=np.float32)
    for first in range(0, len(corpus), width):
        documents = slice(first, min(first + width, len(corpus)))
        columns = unit_rows(np.asarray(corpus[documents], dtype=np.float32), first=first).T  # (D, C)
        for start in range(0, len(units), height):
            rows = slice(start, min(start + height, len(units)))
            size = rows.stop - rows.start, columns.shape[1]
            cosines = room[: size[0] * size[1]].reshape(size)
            yield documents, rows, np.matmul(units[rows], columns, out=cosines)
        if progress is not None:
            progress(documents.stop, len(corpus))


def _gold_cosines(units: Vectors, corpus: Documents, task: RetrievalTask) -> Numbers:
    """(R,) cosine of each gold document with its query."""
    owner, cosines = task.owner, np.empty(len(task.gold))
    for start in range(0, len(cosines), GOLD_AT_ONCE):
        part = slice(start, start + GOLD_AT_ONCE)
        documents = unit_rows(np.asarray(corpus[task.gold[part]], dtype=np.float32))
        cosines[part] = np.einsum("nd,nd->n", units[owner[part]], documents, dtype=np.float64)
    return cosines


class _GoldRanks:
    """Counts, block by block, how many other documents are at least as similar as each gold document."""

    def __init__(self, task: RetrievalTask, cosines: Numbers) -> None:
        self.task = task
        grades = np.ones(len(cosines)) if task.grades is None else task.grades
        order = np.lexsort((grades, -cosines, task.owner))  # of equal ones the lower grade first: at its worst
        self.owner, self.grades = task.owner, grades[order]
        self.limits = (cosines[order] - TIE).astype(np.float32)
        self.place = np.arange(len(cosines)) - task.offsets[self.owner]  # 0 for a query's nearest gold document
        self.others = np.zeros(len(cosines), dtype=np.int64)

    def count(self, documents: slice, rows: slice, cosines: Vectors) -> None:
        """Take a block in; its cosines with gold documents are overwritten."""
        entries = np.arange(self.task.offsets[rows.start], self.task.offsets[rows.stop])
        owner, gold = self.owner[entries] - rows.start, self.task.gold[entries]
        inside = (gold >= documents.start) & (gold < documents.stop)
        cosines[owner[inside], gold[inside] - documents.start] = -np.inf
        for place in range(int(self.place[entries].max(initial=-1)) + 1):
            chosen = self.place[entries] == place
            compared = cosines if chosen.sum() == len(cosines) else cosines[owner[chosen]]
            nearer = compared >= self.limits[entries[chosen], None]
            self.others[entries[chosen]] += [np.count_nonzero(row) for row in nearer]

    def ranks(self) -> NDArray[np.int64]:
        """(R,) ranks, ascending within a query; grades follow them."""
        return self.others + self.place + 1

    def first(self) -> Ids:
        """(Q,) the first rank of each query, 0 without one."""
        first = np.zeros(len(self.task.query), dtype=np.int32)
        nearest = self.place == 0
        first[self.owner[nearest]] = self.ranks()[nearest]
        return first


def _measured(task: RetrievalTask, gold: _GoldRanks, k: tuple[int, ...]) -> QueryValues:
    """Every metric of every query, gold documents that the corpus lacks being ranked nowhere."""
    queries = len(task.query)
    absent_grades = np.ones(task.missing) if task.absent_grades is None else task.absent_grades
    owner = np.concatenate([gold.owner, np.repeat(np.arange(queries), np.asarray(task.absent, dtype=np.int64))])
    rank = np.concatenate([gold.ranks(), np.zeros(task.missing, dtype=np.int64)])
    order = np.lexsort((rank == 0, owner))  # stable: ranks stay ascending
    grades = np.concatenate([gold.grades, absent_grades])[order]
    gains = {"ndcg": grades} if task.grades is None else {"ndcg": grades, "ndcg_exponential": exponential(grades)}
    length = np.full(queries, len(task.corpus), dtype=np.int64)
    placed = Placed(owner[order], rank[order], np.ones(len(owner), dtype=bool), gains, length)
    positives = np.bincount(owner, minlength=queries).astype(np.int64)
    return QueryValues(task.rows.tolist(), query_values(placed, k), positives, length)

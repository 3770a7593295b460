"""Retrieval evaluation: ranking of all documents of a corpus for each query by cosine similarity."""

# Q queries, M documents of the corpus, D dimensions, R gold entries in all, U distinct texts

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.ranking import CUTOFFS, Metrics, QueryValues, RankedDocuments, graded_gains
from bsc_core.neighbors import TIE, Documents, TopK, cosine_blocks, finite_unit_rows, query_units
from bsc_core.types import Ids, Indices, Numbers, Progress, Vectors

GOLD_AT_ONCE = 65_536
MAX_GOLD = 1_000_000
"""Gold documents of all queries together; equal texts of a corpus are all gold."""
FEW_GOLD = 16
"""Gold documents of a query up to which each is compared with all cosines; for more, the cosines are sorted."""


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, documents, and the relevant (gold) documents of each query."""

    query: Ids  # (Q,) text ids
    corpus: Ids  # (M,) text ids
    offsets: Indices  # (Q + 1,) the gold positions of query i are gold[offsets[i]:offsets[i + 1]]
    gold: Ids  # (R,) positions in the corpus, ascending within a query
    absent: Ids  # (Q,) number of gold documents missing from the corpus
    rows: Ids  # (Q,) first dataset row with a positive pair of the query
    grades: Numbers | None = None  # (R,) labels of the gold documents; None if not graded, which counts each as 1
    absent_grades: Numbers | None = None  # (A,) labels of the absent gold documents, by query

    @property
    def missing(self) -> int:
        """Number of gold documents that are missing from the corpus."""
        return int(self.absent.sum())

    @property
    def owner(self) -> Indices:
        """Query number (R,) of each gold position."""
        return np.repeat(np.arange(len(self.query)), np.diff(self.offsets))

    def relevant(self, query: int) -> Ids:
        """Return the corpus positions of one query's gold documents."""
        return self.gold[self.offsets[query] : self.offsets[query + 1]]

    def others(self, query: int, positions: Ids) -> Ids:
        """Return the given corpus positions that are not gold for a query."""
        return positions[~np.isin(positions, self.relevant(query))]


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """Metrics, ranks and top documents of a retrieval task."""

    metrics: Metrics
    first_rank: Ids  # (Q,) rank of the first gold document, from 1; 0 if none is in the corpus
    top_ids: Ids  # (Q, top) text ids of the best documents
    top_positions: Ids  # (Q, top) their corpus positions
    top_scores: Vectors  # (Q, top) their cosines
    per_query: QueryValues  # metrics of each query; the ids are dataset rows


def retrieval_task(dataset: PairDataset, corpus: Corpus | None = None) -> RetrievalTask:
    """Build the retrieval task of a dataset: one query for each query group with a positive pair.

    Gold documents are matched by key if both dataset and corpus have keys (rows without a key by text), else by text
    id. A gold document missing from the corpus is counted, and its query remains as a miss. The grade of a gold
    document is its highest label; negative pairs have no grade. A document that a person decided to be positive is
    gold, and so is one that has the id of it.

    Args:
        dataset: The pairs.
        corpus: The documents, with the same text table; None uses the distinct documents of the dataset.

    Raises:
        DataError: There are more than MAX_GOLD gold documents.
    """
    documents = np.unique(dataset.document) if corpus is None else corpus.document
    document_keys = dataset.document_key if corpus is not None and corpus.key is not None else None
    positions: defaultdict[str | int, list[int]] = defaultdict(list)
    for position, text in enumerate(documents.tolist()):
        positions[text].append(position)
    if document_keys is not None and corpus is not None and corpus.key is not None:
        for position, key in enumerate(corpus.key):
            positions[key].append(position)
    gold: defaultdict[int, dict[int, float]] = defaultdict(dict)  # position -> grade, for each query group
    absent: defaultdict[int, dict[str | int, float]] = defaultdict(dict)
    first_row: dict[int, int] = {}
    count = 0
    for row in np.flatnonzero(dataset.positive).tolist():
        group, grade = int(dataset.query_group[row]), 1.0 if dataset.label is None else float(dataset.label[row])
        first_row.setdefault(group, row)
        document = (document_keys[row] if document_keys is not None else "") or int(dataset.document[row])
        found = positions.get(document, ())
        count += len(found)
        check_gold(count)
        for position in found:
            gold[group][position] = max(grade, gold[group].get(position, 0.0))
        if not found:
            absent[group][document] = max(grade, absent[group].get(document, 0.0))
    keys_of: defaultdict[int, set[str]] = defaultdict(set)
    if document_keys is not None and dataset.decided_positives is not None:
        for text, document_key in zip(dataset.document.tolist(), document_keys, strict=True):
            if document_key:
                keys_of[text].add(document_key)
    for group, text in _decided_positives(dataset):
        if group in first_row:
            names: list[str | int] = [text, *keys_of[text]]
            decided = [position for name in names for position in positions.get(name, ())]
            count += len(decided)
            check_gold(count)
            gold[group].update((position, 1.0) for position in decided)
    rows = np.fromiter(first_row.values(), dtype=np.int32, count=len(first_row))
    offsets = np.zeros(len(first_row) + 1, dtype=np.int64)
    np.cumsum([len(gold[group]) for group in first_row], out=offsets[1:])
    flat = [entry for group in first_row for entry in sorted(gold[group].items())]
    absent_grades = [grade for group in first_row for grade in absent[group].values()]
    graded = dataset.label is not None
    return RetrievalTask(
        query=dataset.query[rows],
        corpus=documents,
        offsets=offsets,
        gold=np.asarray([position for position, _ in flat], dtype=np.int32),
        absent=np.array([len(absent[group]) for group in first_row], dtype=np.int32),
        rows=rows,
        grades=np.asarray([grade for _, grade in flat]) if graded else None,
        absent_grades=np.asarray(absent_grades) if graded else None,
    )


def check_gold(count: int) -> None:
    """Raise DataError if a task would have more gold documents than MAX_GOLD."""
    if count > MAX_GOLD:
        raise DataError(
            f"retrieval: the queries have more than {MAX_GOLD:,} relevant documents, since each document with an equal "
            "text counts; remove duplicate documents from the corpus"
        )


def _decided_positives(dataset: PairDataset) -> Iterator[tuple[int, int]]:
    """Yield the query group and the text id of each document that a person decided to be positive."""
    if dataset.decided_positives is None:
        return
    groups: defaultdict[int, set[int]] = defaultdict(set)
    for query, group in np.unique(np.stack([dataset.query, dataset.query_group]), axis=1).T.tolist():
        groups[query].add(group)
    for query, document in dataset.decided_positives.tolist():
        yield from ((group, document) for group in groups.get(query, ()))


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

    Metrics are means over queries of `RankedDocuments.query_values`: `mrr`, `map`, `has_positive@k`, `precision@k`,
    `recall@k` and `ndcg@k`, and with graded documents `ndcg_exponential@k`; None without queries. `queries`,
    `documents` and `gold_missing` are counts.

    Similarities within 1e-6 are ties, and gold documents are ranked last among them, so that ranks do not depend on the
    order of the corpus. Ties among the top documents are ordered by position. Gold documents missing from the corpus
    are misses. In addition to the queries and the top documents, about 100 MiB of memory is used for any corpus size.

    Args:
        queries: (Q, D) vectors in the order of the task; they need not be normalized, and a zero vector has similarity
            0.
        corpus: (M, D) vectors in the order of the task; may be a memory-mapped file or `TextRows` of one.
        task: the task.
        k: cutoffs; a k above M uses the full corpus.
        top: number of top documents to return for each query.
        progress: called with (documents compared, M).

    Raises:
        DataError: A vector is not finite, or the number or size of the vectors does not match.
    """
    if len(queries) != len(task.query) or len(corpus) != len(task.corpus):
        raise DataError(
            f"retrieval: {len(queries)} x {len(corpus)} vectors for {len(task.query)} queries and {len(task.corpus)} "
            "documents; give one vector for each"
        )
    units = query_units(queries, corpus)
    gold = _GoldRanks(task, _gold_cosines(units, corpus, task))
    best = TopK(len(queries), top, len(corpus))
    for documents, rows, cosines in cosine_blocks(units, corpus, progress):
        best.add(rows, documents.start, cosines)
        gold.count(documents, rows, cosines)
    values = gold.query_values(k)
    counts: Metrics = {"queries": len(queries), "documents": len(corpus), "gold_missing": task.missing}
    positions, top_scores = best.result()
    metrics = values.means() | counts
    return RetrievalResult(metrics, gold.first(), task.corpus[positions], positions, top_scores, values)


def _gold_cosines(units: Vectors, corpus: Documents, task: RetrievalTask) -> Numbers:
    """Return the cosine (R,) of each gold document with its query."""
    owner, cosines = task.owner, np.empty(len(task.gold))
    for start in range(0, len(cosines), GOLD_AT_ONCE):
        part = slice(start, start + GOLD_AT_ONCE)
        documents = finite_unit_rows(corpus[task.gold[part]])
        cosines[part] = np.einsum("nd,nd->n", units[owner[part]], documents, dtype=np.float64)
    return cosines


class _GoldRanks:
    """Counter of the documents at least as similar as each gold document, block by block."""

    def __init__(self, task: RetrievalTask, cosines: Numbers) -> None:
        self.task = task
        grades = np.ones(len(cosines)) if task.grades is None else task.grades
        order = np.lexsort((grades, -cosines, task.owner))  # ties: lower grade first, the worst order
        self.owner, self.grades = task.owner, grades[order]
        self.limits = (cosines[order] - TIE).astype(np.float32)
        self.index = np.arange(len(cosines)) - task.offsets[self.owner]  # 0 for the gold document closest to the query
        self.others = np.zeros(len(cosines), dtype=np.int64)

    def count(self, documents: slice, rows: slice, cosines: Vectors) -> None:
        """Add a block; its cosines with gold documents are overwritten."""
        entries = np.arange(self.task.offsets[rows.start], self.task.offsets[rows.stop])
        owner, gold = self.owner[entries] - rows.start, self.task.gold[entries]
        inside = (gold >= documents.start) & (gold < documents.stop)
        cosines[owner[inside], gold[inside] - documents.start] = -np.inf
        counts = np.bincount(owner, minlength=len(cosines))
        for row in np.flatnonzero(counts > FEW_GOLD).tolist():
            same = slice(*self.task.offsets[rows.start + row : rows.start + row + 2].tolist())
            self.others[same] += len(cosines[row]) - np.searchsorted(np.sort(cosines[row]), self.limits[same])
        few = counts[owner] <= FEW_GOLD
        entries, owner = entries[few], owner[few]
        for index in range(int(self.index[entries].max(initial=-1)) + 1):
            same = self.index[entries] == index
            compared = cosines if same.sum() == len(cosines) else cosines[owner[same]]
            closer = compared >= self.limits[entries[same], None]
            self.others[entries[same]] += [np.count_nonzero(row) for row in closer]

    def ranks(self) -> Indices:
        """Return the ranks (R,), ascending within a query, in the order of `grades`."""
        return self.others + self.index + 1

    def first(self) -> Ids:
        """Return the first rank (Q,) of each query, 0 without one."""
        first = np.zeros(len(self.task.query), dtype=np.int32)
        closest = self.index == 0
        first[self.owner[closest]] = self.ranks()[closest]
        return first

    def query_values(self, k: tuple[int, ...]) -> QueryValues:
        """Compute every metric of every query; gold documents missing from the corpus are unranked."""
        task, queries = self.task, len(self.task.query)
        absent_grades = np.ones(task.missing) if task.absent_grades is None else task.absent_grades
        owner = np.concatenate([self.owner, np.repeat(np.arange(queries), np.asarray(task.absent, dtype=np.int64))])
        rank = np.concatenate([self.ranks(), np.zeros(task.missing, dtype=np.int64)])
        order = np.lexsort((rank == 0, owner))  # stable: ranks stay ascending
        grades = np.concatenate([self.grades, absent_grades])[order]
        gains = {"ndcg": grades} if task.grades is None else graded_gains(grades)
        length = np.full(queries, len(task.corpus), dtype=np.int64)
        ranked = RankedDocuments(owner[order], rank[order], np.ones(len(owner), dtype=bool), gains, length)
        return ranked.query_values(task.rows.tolist(), k)

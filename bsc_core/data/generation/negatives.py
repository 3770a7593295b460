"""Negatives for positive pairs: documents that a reference encoder ranks near the query (BSC paper), and triplets.

The ranking itself is in `bsc_core.preparation.generate`. A query's negatives exclude its positives, documents with the
same words as these, marked false negatives, and the query itself.
"""

# N rows, Q distinct queries, M documents, n of them ranked for a query, C negatives of a query, T triplets

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import NegativesConfig
from bsc_core.data.dataset import Corpus, PairDataset, concatenate_rows
from bsc_core.data.splits import connected_queries
from bsc_core.data.text_normalization import normalized_ids
from bsc_core.errors import DataError
from bsc_core.types import Ids, Indices, Mask, Vectors

MAX_TRIPLETS = 10_000_000  # of all queries together; one query with thousands of rows has millions


@dataclass(frozen=True, eq=False)
class Candidates:
    """Documents that may be negatives, and those that are excluded for each query.

    query: (Q,) text ids of the distinct queries; query_of_row: (N,) the query of each row; document: (M,) distinct text
    ids; available: (Q,) number of documents that are not excluded; words_of_document: (M,) equal for documents with the
    same words; set_of_query: (Q,) equal for queries that share their documents; excluded: sorted codes, query set *
    `codes` + words.
    """

    query: Ids
    query_of_row: Indices
    document: Ids
    available: Indices
    words_of_document: Indices
    set_of_query: Indices
    excluded: Indices
    codes: int

    @property
    def excluded_counts(self) -> Indices:
        """(Q,) number of excluded documents of each query."""
        return len(self.document) - self.available

    @property
    def most_excluded(self) -> int:
        """Largest number of excluded documents of a query."""
        return int(self.excluded_counts.max())

    def is_excluded(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> Mask:
        """Return which documents (Q', n) are excluded for the queries (Q', 1) or (Q',), both given by index."""
        code = self.set_of_query[np.asarray(queries)] * self.codes + self.words_of_document[np.asarray(documents)]
        index = np.minimum(np.searchsorted(self.excluded, code), len(self.excluded) - 1)
        return np.asarray(self.excluded[index] == code, dtype=bool)


def find_candidates(dataset: PairDataset, corpus: Corpus | None) -> Candidates:
    """Return the documents of the corpus, else of the pairs, and which of them are excluded for each query.

    Rows that share a query text or a query id share their documents.

    Raises:
        DataError: A pair is labeled negative or has a negative already.
    """
    if dataset.has_negatives or dataset.negative is not None:
        what = "are labeled negative" if dataset.negative is None else "have a column of negatives"
        raise DataError(
            f"{dataset.report.source}: pairs {what}, and data.negatives is for pairs that are all positive; "
            "leave one of the two out"
        )
    query, query_of_row = np.unique(dataset.query, return_inverse=True)
    document = np.unique(dataset.document if corpus is None else corpus.document)
    words = normalized_ids(dataset.texts)  # (U,)
    codes = len(words)
    sets = connected_queries(dataset).astype(np.int64)  # (N,)
    set_of_query = np.zeros(len(query), dtype=np.int64)
    set_of_query[query_of_row] = sets
    set_of_text = np.full(len(words), -1, dtype=np.int64)
    set_of_text[query] = set_of_query
    marked = dataset.marked_pairs[set_of_text[dataset.marked_pairs[:, 0]] >= 0]
    same_id = _documents_by_id(dataset, corpus)
    row, of_row = _with_same_id(dataset.document, same_id)
    pair, of_pair = _with_same_id(marked[:, 1], same_id)
    excluded = np.unique(
        np.concatenate(
            [
                sets * codes + words[dataset.document],
                sets[row] * codes + words[of_row],
                set_of_text[marked[pair, 0]] * codes + words[of_pair],
                sets * codes + words[dataset.query],
                set_of_text[marked[:, 0]] * codes + words[marked[:, 1]],
            ]
        )
    )
    same_words = np.bincount(words[document], minlength=codes)  # documents with these words
    counts = np.bincount(excluded // codes, weights=same_words[excluded % codes], minlength=int(sets.max()) + 1)
    available = len(document) - counts[set_of_query].astype(np.int64)
    return Candidates(query, query_of_row, document, available, words[document], set_of_query, excluded, codes)


def _documents_by_id(dataset: PairDataset, corpus: Corpus | None) -> dict[int, set[int]]:
    """Return the text ids of the corpus documents that have the same document id, for the text id of each document."""
    found: dict[int, set[int]] = {}
    if corpus is not None and corpus.key is not None and dataset.document_key is not None:
        of_key = dict(zip(corpus.key, corpus.document.tolist(), strict=True))
        for document, key in zip(dataset.document.tolist(), dataset.document_key, strict=True):
            if key and key in of_key:
                found.setdefault(document, set()).add(of_key[key])
    return found


def _with_same_id(documents: Ids, same_id: dict[int, set[int]]) -> tuple[Indices, Ids]:
    """Return (A,) indices into `documents` and (A,) the text ids with the same document id."""
    found = [(index, other) for index, document in enumerate(documents.tolist()) for other in same_id.get(document, ())]
    indices, others = np.asarray(found, dtype=np.int64).reshape(-1, 2).T
    return indices, others.astype(np.int32)


def negative_ranks(config: NegativesConfig) -> Indices:
    """Return (C,) the ranks first_rank + 2^k for k = 0, 1, ..., counted from 1; k is at most 40."""
    return config.first_rank + 2 ** np.minimum(np.arange(config.count, dtype=np.int64), 40)


def at_ranks(ranked: npt.NDArray[np.integer], excluded: Mask, available: Indices, ranks: Indices) -> Ids:
    """Return (Q, C) the documents at these ranks among those that are not excluded, -1 for a repeated one.

    Args:
        ranked: (Q, n) documents, nearest first; n covers the largest rank plus the excluded documents.
        excluded: (Q, n) which of them are excluded.
        available: (Q,) number of documents that are not excluded; larger ranks are replaced by it.
        ranks: (C,) from 1.
    """
    wanted = np.minimum(ranks, available[:, None])  # (Q, C), from 1
    order = np.argsort(excluded, axis=1, kind="stable")  # the excluded last
    result = np.take_along_axis(np.take_along_axis(ranked, order, axis=1), np.maximum(wanted - 1, 0), axis=1)
    repeated = np.zeros(wanted.shape, dtype=bool)
    repeated[:, 1:] = wanted[:, 1:] == wanted[:, :-1]
    return np.where(repeated | (wanted < 1), -1, result).astype(np.int32)


def hardest_below(ranked: npt.NDArray[np.integer], allowed: Mask, count: int) -> tuple[Ids, Indices]:
    """Return the first `count` allowed documents of each row and their number.

    Args:
        ranked: (P, n) documents, nearest first.
        allowed: bool (P, n), true for those below the positive by the margin and not excluded.
        count: Maximum number of documents of a row, C.

    Returns:
        (P, C) documents, -1 where there are fewer, and (P,) their number.
    """
    order = np.argsort(~allowed, axis=1, kind="stable")[:, :count]
    result = np.full((len(ranked), count), -1, dtype=np.int32)
    chosen = np.take_along_axis(allowed, order, axis=1)
    result[:, : order.shape[1]] = np.where(chosen, np.take_along_axis(ranked, order, axis=1), -1)
    return result, chosen.sum(axis=1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class MinedNegatives:
    """Negatives of each distinct query, and how many documents were dropped.

    negatives: (Q, C) indices of documents, nearest first, -1 for none; cosines: (Q, C) their cosines, NaN for none;
    positive: (Q,) the lowest cosine of a positive; dropped: (Q,) documents by reason: `positive` (or a copy of one, the
    query itself, or marked), `absolute_margin`, `relative_margin`, `max_score`, `second_opinion`, `min_score`,
    `range_min`.
    """

    negatives: Ids
    cosines: Vectors
    positive: Vectors
    dropped: dict[str, Indices]

    @property
    def count(self) -> Indices:
        """(Q,) number of negatives of each query."""
        count: Indices = np.sum(self.negatives >= 0, axis=1, dtype=np.int64)
        return count

    def reason(self, query: int) -> str:
        """Return the most frequent reason why documents of a query were dropped, apart from its positives."""
        reasons = {name: int(counts[query]) for name, counts in self.dropped.items() if name != "positive"}
        return max(reasons, key=lambda name: reasons[name]) if any(reasons.values()) else "positive"


@dataclass(frozen=True, eq=False)
class RankedCandidates:
    """Documents near each query, nearest first.

    ranked: (Q, n) indices of documents; cosines: (Q, n) their cosines; excluded: (Q, n) documents that are never
    negatives; positive: (Q,) lowest cosine of a positive; second: (Q, n) scores of a second model minus the lowest
    of a positive, or None.
    """

    ranked: npt.NDArray[np.integer]
    cosines: Vectors
    excluded: Mask
    positive: Vectors
    second: Vectors | None = None

    def nearest(self, depth: int) -> RankedCandidates:
        """Return the same queries with their `depth` nearest documents only."""
        names = ("ranked", "cosines", "excluded", *(() if self.second is None else ("second",)))
        return replace(self, **{name: getattr(self, name)[:, :depth] for name in names})


def in_window(
    candidates: RankedCandidates, config: NegativesConfig, generator: np.random.Generator | None = None
) -> MinedNegatives:
    """Return the negatives of the method window, as sentence-transformers' `mine_hard_negatives` selects them.

    A document n of query q with the least similar positive p is dropped if s(q, n) > s(q, p) - absolute_margin, if
    s(q, n) > s(q, p) - relative_margin |s(q, p)|, or outside min_score and max_score. Of the remaining ones, nearest
    first, those from range_min up to range_max are candidates.

    Args:
        candidates: The nearest documents of each query.
        config: The limits.
        generator: Used with `sampling = "random"`; by default one with the seed of `config`.
    """
    ranked, cosines, excluded = candidates.ranked, candidates.cosines, candidates.excluded
    positive = candidates.positive
    generator = np.random.default_rng(config.seed) if generator is None else generator
    limits = {
        "absolute_margin": None if config.absolute_margin is None else positive - np.float32(config.absolute_margin),
        "relative_margin": None
        if config.relative_margin is None
        else positive - np.abs(positive) * np.float32(config.relative_margin),
        "max_score": None if config.max_score is None else np.full_like(positive, config.max_score),
    }
    left = ~excluded
    dropped = {"positive": excluded.sum(axis=1)}
    for name, limit in limits.items():
        outside = left & (cosines > limit[:, None]) if limit is not None else np.zeros_like(left)
        dropped[name] = outside.sum(axis=1)
        left = left & ~outside
    if candidates.second is not None:
        outside = left & (candidates.second > -config.second_margin)
        dropped["second_opinion"] = outside.sum(axis=1)
        left = left & ~outside
    outside = left & (cosines < config.min_score) if config.min_score is not None else np.zeros_like(left)
    dropped["min_score"] = outside.sum(axis=1)
    left = left & ~outside
    rank = np.cumsum(left, axis=1)  # from 1, of the documents that are left
    skipped = left & (rank <= config.range_min)
    dropped["range_min"] = skipped.sum(axis=1)
    left = left & ~skipped & (rank <= (config.range_max or ranked.shape[1]))
    keys = np.where(left, rank, np.iinfo(np.int64).max).astype(np.float64)
    if config.sampling == "random":
        keys = np.where(left, generator.random(left.shape), np.inf)
    chosen = np.sort(np.argsort(keys, axis=1, kind="stable")[:, : config.count], axis=1)
    is_negative = np.take_along_axis(left, chosen, axis=1)
    first = np.argsort(~is_negative, axis=1, kind="stable")
    chosen, is_negative = np.take_along_axis(chosen, first, axis=1), np.take_along_axis(is_negative, first, axis=1)
    shape = (len(ranked), config.count)
    negatives, scores = np.full(shape, -1, dtype=np.int32), np.full(shape, np.nan, dtype=np.float32)
    width = chosen.shape[1]
    negatives[:, :width] = np.where(is_negative, np.take_along_axis(ranked, chosen, axis=1), -1)
    scores[:, :width] = np.where(is_negative, np.take_along_axis(cosines, chosen, axis=1), np.nan)
    return MinedNegatives(negatives, scores, positive, dropped)


def with_negative_rows(dataset: PairDataset, negatives: Ids, corpus: Corpus | None, *, oversample: bool) -> PairDataset:
    """Return the positive rows and, after the first row of each query, its negatives as rows labeled 0.

    Pairs that were decided true negative are labeled 0 as well.

    Args:
        dataset: N positive pairs.
        negatives: (N, C) text ids, -1 for none; each document is labeled once per query.
        corpus: Source of the negatives' document ids, if not the pairs.
        oversample: Repeat positive rows, in turn, until there are as many as negatives.
    """
    row, column = np.nonzero(negatives >= 0)
    code = dataset.query[row].astype(np.int64) * len(dataset.texts) + negatives[row, column]
    first = np.sort(np.unique(code, return_index=True)[1])
    row, document = row[first], negatives[row[first], column[first]]
    copies = np.ones(len(dataset), dtype=np.int64)
    if oversample and len(row) > len(dataset):
        copies = len(row) // len(dataset) + (np.arange(len(dataset)) < len(row) % len(dataset)).astype(np.int64)
    source = np.repeat(np.arange(len(dataset)), copies)
    positives = dataset.take(source)
    if positives.label is None:
        label = np.ones(len(source), dtype=np.float32)
        if positives.decided_negatives is not None:
            label[positives.has_pair(positives.decided_negatives)] = 0.0
        positives = replace(positives, label=label)
    negative_rows = replace(
        dataset.take(row),
        document=document.astype(np.int32),
        label=np.zeros(len(row), dtype=np.float32),
        document_key=_keys(dataset, document, corpus),
    )
    order = np.argsort(np.concatenate([source, row]), kind="stable")
    return replace(concatenate_rows([positives, negative_rows]).take(order), classes=None, class_names=None)


def with_negative_column(dataset: PairDataset, negatives: Ids) -> PairDataset:
    """Return each row once per negative, in the negative column.

    Args:
        dataset: N pairs.
        negatives: (N, C) text ids, -1 for none.
    """
    row, column = np.nonzero(negatives >= 0)
    return replace(dataset.take(row), negative=negatives[row, column].astype(np.int32))


def row_negatives(dataset: PairDataset) -> Ids:
    """Return a copy of the text id of the negative of each row, (N,), -1 for a row that is positive and has none."""
    if dataset.negative is not None:
        return dataset.negative.copy()
    return np.where(dataset.positive, -1, dataset.document).astype(np.int32)


def with_negatives(dataset: PairDataset, negatives: Ids) -> PairDataset:
    """Return the rows with other negatives in place of those of `row_negatives`.

    Args:
        dataset: N rows with negatives, in the negative column or as rows labeled negative.
        negatives: (N,) text ids, -1 for none.

    Raises:
        DataError: The negatives are those of other rows.
    """
    has_ids = negatives.min(initial=-1) == -1 and negatives.max(initial=-1) < len(dataset.texts)
    if len(negatives) != len(dataset) or not has_ids:
        raise DataError(f"the negatives are not those of these {len(dataset):,} rows; launch the run again")
    if dataset.negative is not None:
        return replace(dataset, negative=negatives)
    return replace(dataset, document=np.where(negatives < 0, dataset.document, negatives), document_key=None)


def number_of_triplets(dataset: PairDataset) -> int:
    """Return the number of rows that `triplets` makes, without making them."""
    if dataset.negative is not None:
        return int(dataset.positive.sum()) if dataset.has_negatives else len(dataset)
    return int(_negatives_of_positives(dataset)[1].sum())


def triplets(dataset: PairDataset) -> PairDataset:
    """Return T rows of query, positive and negative document, in the order of the positive rows.

    A dataset with a negative column keeps its positive rows. Otherwise each positive row is combined with every
    negative row of its query group, as in the released BSC code.

    Raises:
        DataError: No query has a negative, or there would be more than MAX_TRIPLETS.
    """
    if dataset.negative is not None:
        return dataset if not dataset.has_negatives else dataset.take(dataset.positive)
    number = number_of_triplets(dataset)
    if not number:
        raise DataError(
            f"{dataset.report.source}: triplets need a negative for each query; name a column of wrong documents in "
            "data.columns.negative, or give queries with both positive and negative labels"
        )
    if number > MAX_TRIPLETS:
        raise DataError(
            f"{dataset.report.source}: each positive with every negative of its query gives {number:,} triplets; the "
            f"limit is {MAX_TRIPLETS:,}. Reduce the rows per query, or name a column of wrong documents in "
            "data.columns.negative"
        )
    starts, counts, negatives = _negatives_of_positives(dataset)
    step = np.arange(number) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(np.flatnonzero(dataset.positive), counts)
    return replace(dataset.take(rows), negative=dataset.document[negatives[np.repeat(starts, counts) + step]])


def _negatives_of_positives(dataset: PairDataset) -> tuple[Indices, Indices, Indices]:
    """Return where the negative rows of each of P positive rows start (P,), how many they are (P,), and these rows."""
    negatives = np.flatnonzero(~dataset.positive)
    negatives = negatives[np.argsort(dataset.query_group[negatives], kind="stable")]
    groups, wanted = dataset.query_group[negatives], dataset.query_group[dataset.positive]
    starts = np.searchsorted(groups, wanted)
    return starts, np.searchsorted(groups, wanted, side="right") - starts, negatives


def _keys(dataset: PairDataset, documents: Ids, corpus: Corpus | None) -> tuple[str, ...] | None:
    """Return the documents' ids in the corpus, else in the pairs; None where the pairs have none."""
    if dataset.document_key is None:
        return None
    known = dict(zip(dataset.document.tolist(), dataset.document_key, strict=True))
    if corpus is not None and corpus.key is not None:
        known |= dict(zip(corpus.document.tolist(), corpus.key, strict=True))
    return tuple(known.get(document, "") for document in documents.tolist())

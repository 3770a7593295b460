"""Negatives for pairs that are all positive: documents that a reference encoder ranks near the query (the BSC paper).

Arrays in, pairs out: the ranking is made elsewhere. A document that answers the query is never its negative, nor one
with the same words, nor one that a person marked, nor the query itself.
"""

# N rows, Q distinct queries, M documents, n of them ranked for a query, C negatives of one

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import NegativesConfig
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.data.plain import plain_ids
from bsc_core.data.splits import connected_queries
from bsc_core.data.texts import Ids
from bsc_core.errors import DataError

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What may be a negative of what.

    query: (Q,) text ids of the distinct queries; query_of_row: (N,) their numbers; document: (M,) distinct text ids;
    own: sorted codes of what belongs together; available: (Q,) documents that are not the query's own.
    """

    query: Ids
    query_of_row: Rows
    document: Ids
    available: Rows
    words_of_document: Rows
    set_of_query: Rows
    own: Rows
    codes: int

    @property
    def most_own(self) -> int:
        """The most documents that are one query's own."""
        return len(self.document) - int(self.available.min())

    def is_own(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> Mask:
        """Whether documents are the queries' own. queries: (Q', 1) or (Q',) numbers; documents: (Q', n) numbers."""
        code = self.set_of_query[np.asarray(queries)] * self.codes + self.words_of_document[np.asarray(documents)]
        return _among(code, self.own)


def candidates(dataset: PairDataset, corpus: Corpus | None) -> Candidates:
    """The documents of the corpus, else the distinct documents of the pairs, and whose own they are.

    Rows that share a query text or a query id share their documents. Raises DataError when a pair is labelled
    negative or has a negative already.
    """
    if dataset.has_negatives or dataset.negative is not None:
        what = "are labelled negative" if dataset.negative is None else "have a column of negatives"
        raise DataError(
            f"{dataset.report.source}: pairs {what}, and data.negatives is for pairs that are all positive; "
            "leave one of the two out"
        )
    query, query_of_row = np.unique(dataset.query, return_inverse=True)
    document = np.unique(dataset.document if corpus is None else corpus.document)
    words = plain_ids(dataset.texts)  # (U,)
    codes = len(words)
    sets = connected_queries(dataset).astype(np.int64)  # (N,)
    set_of_query = np.zeros(len(query), dtype=np.int64)
    set_of_query[query_of_row] = sets
    set_of_text = np.full(len(words), -1, dtype=np.int64)
    set_of_text[query] = set_of_query
    marked = dataset.marked_pairs[set_of_text[dataset.marked_pairs[:, 0]] >= 0]
    own = np.unique(
        np.concatenate(
            [
                sets * codes + words[dataset.document],
                sets * codes + words[dataset.query],
                set_of_text[marked[:, 0]] * codes + words[marked[:, 1]],
            ]
        )
    )
    alike = np.bincount(words[document], minlength=codes)  # documents with these words
    own_count = np.bincount(own // codes, weights=alike[own % codes], minlength=int(sets.max()) + 1)
    available = len(document) - own_count[set_of_query].astype(np.int64)
    return Candidates(query, query_of_row, document, available, words[document], set_of_query, own, codes)


def wanted_ranks(config: NegativesConfig) -> Rows:
    """(C,) the ranks first_rank + 2^k, k from 0; counted from 1. Those above 2^40 stay there."""
    return config.first_rank + 2 ** np.minimum(np.arange(config.count, dtype=np.int64), 40)


def at_ranks(ranked: npt.NDArray[np.integer], own: Mask, available: Rows, ranks: Rows) -> Ids:
    """(Q, C) documents at these ranks among those that are not the query's own, -1 for a rank that gives no new one.

    ranked: (Q, n) documents, nearest first; own: (Q, n); available: (Q,) documents in all that are not own. A rank past
    the last is the last. n must reach as far as the largest rank, its own documents not counted.
    """
    places = np.minimum(ranks, available[:, None])  # (Q, C), from 1
    order = np.argsort(own, axis=1, kind="stable")  # the query's own last
    found = np.take_along_axis(np.take_along_axis(ranked, order, axis=1), np.maximum(places - 1, 0), axis=1)
    again = np.zeros(places.shape, dtype=bool)
    again[:, 1:] = places[:, 1:] == places[:, :-1]
    return np.where(again | (places < 1), -1, found).astype(np.int32)


def hardest_below(ranked: npt.NDArray[np.integer], allowed: Mask, count: int) -> tuple[Ids, Rows]:
    """(P, C) the first `count` allowed documents of each row, -1 where there are fewer, and (P,) how many there are.

    ranked: (P, n) documents, nearest first; allowed: (P, n) those below the positive by the margin and not its own.
    """
    order = np.argsort(~allowed, axis=1, kind="stable")[:, :count]
    found = np.full((len(ranked), count), -1, dtype=np.int32)
    there = np.take_along_axis(allowed, order, axis=1)
    found[:, : order.shape[1]] = np.where(there, np.take_along_axis(ranked, order, axis=1), -1)
    return found, there.sum(axis=1, dtype=np.int64)


def with_negative_rows(dataset: PairDataset, negatives: Ids, corpus: Corpus | None, *, oversample: bool) -> PairDataset:
    """The positive rows and, below the first of each query, its negatives as rows labelled 0.

    negatives: (N, C) text ids for each row, -1 for none; a query's document is labelled once. oversample: positive rows
    are repeated, in turn, until both kinds are as many.
    """
    row, place = np.nonzero(negatives >= 0)
    code = dataset.query[row].astype(np.int64) * len(dataset.texts) + negatives[row, place]
    first = np.sort(np.unique(code, return_index=True)[1])
    row, document = row[first], negatives[row[first], place[first]]
    copies = np.ones(len(dataset), dtype=np.int64)
    if oversample and len(row) > len(dataset):
        copies = len(row) // len(dataset) + (np.arange(len(dataset)) < len(row) % len(dataset)).astype(np.int64)
    positive = np.repeat(np.arange(len(dataset)), copies)
    source = np.concatenate([positive, row])
    order = np.argsort(source, kind="stable")
    is_negative = (np.arange(len(source)) >= len(positive))[order]
    made = dataset.take(source[order])
    label = np.ones(len(source), dtype=np.float32) if made.label is None else made.label.copy()
    documents = made.document.copy()
    label[is_negative] = 0.0
    documents[is_negative] = document[order[is_negative] - len(positive)]
    changed = replace(made, label=label, document=documents, classes=None, class_names=None)
    return replace(changed, document_key=_keys(dataset, changed, is_negative, corpus))


def with_negative_column(dataset: PairDataset, negatives: Ids) -> PairDataset:
    """Each row once for each of its negatives, which stand in a column. negatives: (N, C) text ids, -1 for none."""
    row, place = np.nonzero(negatives >= 0)
    return replace(dataset.take(row), negative=negatives[row, place].astype(np.int32))


def _keys(dataset: PairDataset, made: PairDataset, is_negative: Mask, corpus: Corpus | None) -> tuple[str, ...] | None:
    """The documents' ids in the file: of a negative that of the corpus, else of a pair with that document."""
    if dataset.document_key is None or made.document_key is None:
        return None
    known = dict(zip(dataset.document.tolist(), dataset.document_key, strict=True))
    if corpus is not None and corpus.key is not None:
        known |= dict(zip(corpus.document.tolist(), corpus.key, strict=True))
    rows = zip(made.document_key, made.document.tolist(), is_negative.tolist(), strict=True)
    return tuple(known.get(document, "") if negative else key for key, document, negative in rows)


def _among(codes: Rows, known: Rows) -> Mask:
    """Which codes are in a sorted list."""
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.asarray(known[place] == codes, dtype=bool)

"""Mining of the negatives of training rows with the model in training."""

# N training rows, P distinct positive pairs, C negatives of a pair, U distinct texts, D dimensions

from dataclasses import replace

import numpy as np

from bsc_core.config import NegativesConfig
from bsc_core.data.dataset import Corpus, PairDataset
from bsc_core.data.generation.negatives import find_candidates, row_negatives
from bsc_core.neighbors import unit_rows
from bsc_core.preparation.generate import mine_pairs
from bsc_core.preparation.second_opinion import scorer_of
from bsc_core.types import Ids, Vectors


class RepeatedMining:
    """Negatives that take the place of those of the training rows, so that the number of rows stays the same.

    Args:
        train: N training rows with mined negatives, as rows labeled negative or in the negative column.
        corpus: The documents to search; None: those of the positive pairs.
        config: The settings of the mining.

    Attributes:
        texts: (T,) ids of the texts whose vectors are compared.
    """

    def __init__(self, train: PairDataset, corpus: Corpus | None, config: NegativesConfig) -> None:
        self.train, self.config = train, config
        positives = np.flatnonzero(train.positive)
        keys = train.query[positives].astype(np.int64) * len(train.texts) + train.document[positives]
        distinct = positives[np.sort(np.unique(keys, return_index=True)[1])]
        self.positives = replace(train.take(distinct), negative=None, label=None)  # P rows
        self.candidates = find_candidates(self.positives, corpus)
        self.second = scorer_of(config, train.texts)
        used = [self.positives.query, self.positives.document, self.candidates.document]
        self.texts: Ids = np.unique(np.concatenate(used)).astype(np.int32)

    def negatives(self, vectors: Vectors) -> Ids:
        """Return the text id of the negative of each row, (N,), -1 for rows labeled positive.

        The k-th negative of a query, in triplets of a pair, is replaced by the k-th new one, or stays where there are
        fewer.

        Args:
            vectors: (U, D), row t for text t; only those of `texts` are read.
        """
        mined, _ = mine_pairs(self.positives, self.candidates, unit_rows(vectors), self.config, self.second)  # (P, C)
        documents = np.where(mined >= 0, self.candidates.document[mined], -1)
        triplets = self.train.negative is not None
        new: dict[tuple[int, ...], list[int]] = {}
        for row, found in enumerate(documents.tolist()):
            known = new.setdefault(_key(self.positives, row, triplets), [])
            known.extend(document for document in found if document >= 0 and document not in known)
        unused = {key: iter(found) for key, found in new.items()}
        negatives = row_negatives(self.train)
        for row in np.flatnonzero(negatives >= 0).tolist():
            negatives[row] = next(unused.get(_key(self.train, row, triplets), iter(())), negatives[row])
        return negatives


def _key(rows: PairDataset, row: int, triplets: bool) -> tuple[int, ...]:
    """Return what the negatives of a row belong to: the pair in triplets, else the query."""
    return (int(rows.query[row]), int(rows.document[row])) if triplets else (int(rows.query[row]),)

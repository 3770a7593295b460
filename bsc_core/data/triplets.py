"""Triplets from labelled pairs: every positive document of a query beside every negative one."""

# N pairs, T triplets

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bsc_core.data.pairs import PairDataset
from bsc_core.errors import DataError


def triplets(dataset: PairDataset) -> PairDataset:
    """T rows of query, positive document and negative document, in the order of the positives' rows.

    A dataset that has negatives of its own keeps its positive rows. Otherwise each positive row meets every negative
    row of its query group, as in the released BSC code. Raises DataError when there is nothing to make them from.
    """
    if dataset.negative is not None:
        return dataset if not dataset.has_negatives else dataset.take(dataset.positive)
    positives, negatives = np.flatnonzero(dataset.positive), np.flatnonzero(~dataset.positive)
    by_group: dict[int, list[int]] = {}
    for row in negatives.tolist():
        by_group.setdefault(int(dataset.query_group[row]), []).append(row)
    pairs = [(row, other) for row in positives.tolist() for other in by_group.get(int(dataset.query_group[row]), ())]
    if not pairs:
        raise DataError(
            f"{dataset.report.source}: triplets need a negative for each query; name a column of wrong documents in "
            "data.columns.negative, or give queries with both positive and negative labels"
        )
    chosen = np.asarray(pairs, dtype=np.int64)  # (T, 2)
    made = dataset.take(chosen[:, 0])
    return replace(made, negative=dataset.document[chosen[:, 1]])

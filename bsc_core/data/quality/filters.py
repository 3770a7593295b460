"""Row checks that an audit reports, and the filters that drop their rows."""

# N rows, U distinct texts

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import get_args

import numpy as np

from bsc_core.config import FilterName
from bsc_core.data.dataset import DatasetSplits, PairDataset, share_texts
from bsc_core.data.text_quality import DAMAGED
from bsc_core.errors import DataError
from bsc_core.types import Ids, Indices, Mask

MAX_PASSES = 3  # of the filter of near duplicates, since dropped rows change the sets of near duplicates
Filtered = tuple[DatasetSplits, int]


def duplicates(dataset: PairDataset) -> Indices:
    """Return rows that repeat an earlier one: texts (with the negative, if any), positive or not, and class."""
    _, first = np.unique(_numbers(*dataset.text_columns, *_labels(dataset)), return_index=True)
    return np.setdiff1d(np.arange(len(dataset)), first)


def repeated_documents(dataset: PairDataset) -> Indices:
    """Return positive rows whose document is also in positive rows of other queries."""
    pairs = np.unique(np.stack([dataset.query, dataset.document])[:, dataset.positive], axis=1)
    queries = np.bincount(pairs[1], minlength=len(dataset.texts))  # distinct queries of each document
    return np.flatnonzero(dataset.positive & (queries[dataset.document] > 1))


def near_duplicates(dataset: PairDataset) -> Indices:
    """Return rows whose texts are near duplicates, but not equal, to those of an earlier row of the same label."""
    near = dataset.texts.near_groups
    group = _numbers(*(near[column] for column in dataset.text_columns), *_labels(dataset))
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    pair = _numbers(*dataset.text_columns)
    return np.flatnonzero(pair != pair[first[inverse]])


def conflicts(dataset: PairDataset) -> Indices:
    """Return rows whose query and document also have another class, or a label on the other side of the threshold."""
    pair = _numbers(dataset.query, dataset.document)
    pairs = np.unique(np.stack([pair, _numbers(*_labels(dataset))]), axis=1)[0]
    both = np.unique(pairs[1:][pairs[1:] == pairs[:-1]])
    return np.flatnonzero(np.isin(pair, both))


def self_pairs(dataset: PairDataset) -> Indices:
    """Return rows whose query equals their document."""
    return np.flatnonzero(dataset.query == dataset.document)


def without_positive(dataset: PairDataset) -> Indices:
    """Return rows of queries without a positive row; none in a dataset without any positive row."""
    has_positive = np.isin(dataset.query_group, dataset.query_group[dataset.positive])
    return np.flatnonzero(~has_positive & dataset.positive.any())


def damaged(dataset: PairDataset) -> Indices:
    """Return rows with a text of wrongly decoded letters, replacement characters or control characters."""
    return rows_with_texts(dataset, (dataset.texts.quality_flags & DAMAGED) > 0)


def rows_with_texts(dataset: PairDataset, chosen: Mask) -> Indices:
    """Return the rows with a chosen text on any side.

    Args:
        dataset: The pairs.
        chosen: (U,) whether each text is chosen.
    """
    return np.flatnonzero(np.any([chosen[column] for column in dataset.text_columns], axis=0))


def split_pairs(data: DatasetSplits) -> Iterator[tuple[str, str]]:
    """Yield names of two splits that should not share queries: train and dev, train and test, dev and test."""
    yield from combinations(data.splits, 2)


def shared_queries(earlier: PairDataset, later: PairDataset) -> Indices:
    """Return rows of the later split whose query is a query of the earlier one."""
    return np.flatnonzero(np.isin(later.query, earlier.query))


def shared_query_ids(earlier: PairDataset, later: PairDataset) -> Indices:
    """Return rows of the later split whose query id belongs to another text in the earlier split of the same file."""
    if earlier.report.source != later.report.source:
        return np.flatnonzero(())  # equal ids of two files may be different queries
    return np.flatnonzero(np.isin(later.query_group, earlier.query_group) & ~np.isin(later.query, earlier.query))


def texts_across_sides(earlier: PairDataset, later: PairDataset) -> Indices:
    """Return rows of the later split whose query is a document of the earlier one, or the other way round."""
    return np.flatnonzero(np.isin(later.query, earlier.document) | np.isin(later.document, earlier.query))


def near_duplicate_queries(earlier: PairDataset, later: PairDataset) -> Indices:
    """Return rows of the later split whose query is a near duplicate, but not equal, to one of the earlier split."""
    near = later.texts.near_groups
    known = earlier.distinct_queries
    others = np.bincount(near[known], minlength=int(near.max(initial=0)) + 1)[near[later.query]]
    return np.flatnonzero(others - np.isin(later.query, known) > 0)


def leaking(earlier: PairDataset, later: PairDataset) -> Indices:
    """Return rows of the earlier split that contain a query of the later one, or one of its documents as a query."""
    queries = np.isin(earlier.query, later.query) | np.isin(earlier.query, later.document)
    return np.flatnonzero(queries | np.isin(earlier.document, later.query))


WITHIN: dict[str, Callable[[PairDataset], Indices]] = {
    "drop_duplicates": duplicates,
    "drop_near_duplicates": near_duplicates,
    "drop_conflicts": conflicts,
    "drop_self_pairs": self_pairs,
    "drop_queries_without_positive": without_positive,
    "drop_damaged": damaged,
}
"""The rows that a filter drops in each split."""

BETWEEN: dict[str, Callable[[PairDataset, PairDataset], Indices]] = {
    "drop_leaks": leaking,
    "drop_near_duplicates": lambda earlier, later: near_duplicate_queries(later, earlier),
}
"""The rows that a filter drops in the earlier of two splits; evaluation splits stay as they are."""


def _labels(dataset: PairDataset) -> list[Ids]:
    """Return for each row whether it is positive and, where there are classes, its class."""
    return [dataset.positive.astype(np.int32), *([] if dataset.classes is None else [dataset.classes])]


def _numbers(*columns: Indices | Ids) -> Indices:
    """Return (N,) one number for each distinct combination of the columns' values, which are not negative."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = number * (int(column.max(initial=0)) + 1) + column
        _, inverse = np.unique(values, return_inverse=True)
        number = inverse.astype(np.int64)
    return number


def _apply(data: DatasetSplits, name: str) -> Filtered:
    dropped = 0
    for _ in range(MAX_PASSES if name == "drop_near_duplicates" else 1):
        data, rows = _apply_once(data, name)
        dropped += rows
        if not rows:
            break
    return data, dropped


def _apply_once(data: DatasetSplits, name: str) -> Filtered:
    splits = data.splits
    dropped = {split: np.zeros(len(dataset), dtype=bool) for split, dataset in splits.items()}
    if name in WITHIN:
        for split, dataset in splits.items():
            dropped[split][WITHIN[name](dataset)] = True
    if name in BETWEEN:
        for earlier, later in split_pairs(data):
            dropped[earlier][BETWEEN[name](splits[earlier], splits[later])] = True
    for split, dataset in splits.items():
        if 0 < dropped[split].sum() == len(dataset):
            raise DataError(
                f"data.filters: {name} would drop all {len(dataset):,} rows of {split} ({dataset.report.source}); "
                "leave it out, or give other data"
            )
    rows = sum(int(mask.sum()) for mask in dropped.values())
    if not rows:
        return data, 0
    shared = share_texts([dataset.take(~dropped[split]) for split, dataset in splits.items()], data.corpus)
    return replace(data.with_splits(shared.splits), corpus=shared.corpus), rows


FILTERS: dict[FilterName, Callable[[DatasetSplits], Filtered]] = {
    name: partial(_apply, name=name) for name in get_args(FilterName)
}
"""Each filter as a function from the data to new data and the number of dropped rows; unused texts are dropped too.

It raises DataError when a split would have no rows left.
"""

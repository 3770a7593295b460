"""Rows that an audit finds and a remedy drops, each by one rule that both share."""

# N rows, U distinct texts

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt

from bsc_core.data.oddities import DAMAGED
from bsc_core.data.pairs import PairDataset
from bsc_core.data.parts import ExperimentData
from bsc_core.data.texts import Ids

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def repeats(dataset: PairDataset) -> Rows:
    """Rows whose texts, with the negative where there is one, stand in an earlier row of the same side and class."""
    pairs = _numbers(*dataset.text_columns, dataset.positive.astype(np.int32))
    if dataset.classes is not None:
        pairs = _numbers(pairs, dataset.classes)
    _, first = np.unique(pairs, return_index=True)
    return np.setdiff1d(np.arange(len(dataset)), first)


def near_repeats(dataset: PairDataset) -> Rows:
    """Rows whose texts are nearly those of an earlier row of the same label and class, but not the same."""
    near = dataset.texts.near_groups
    group = _numbers(*(near[column] for column in dataset.text_columns), dataset.positive.astype(np.int32))
    if dataset.classes is not None:
        group = _numbers(group, dataset.classes)
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    pair = _numbers(*dataset.text_columns)
    return np.flatnonzero(pair != pair[first[place]])


def conflicts(dataset: PairDataset) -> Rows:
    """Rows whose query and document also stand in a row of another class, or on the other side of the threshold."""
    pair = _numbers(dataset.query, dataset.document)
    kind = dataset.positive.astype(np.int64)
    if dataset.classes is not None:
        kind = _numbers(kind, dataset.classes)
    pairs = np.unique(np.stack([pair, kind]), axis=1)[0]
    both = np.unique(pairs[1:][pairs[1:] == pairs[:-1]])
    return np.flatnonzero(np.isin(pair, both))


def self_pairs(dataset: PairDataset) -> Rows:
    """Rows whose query is their document."""
    return np.flatnonzero(dataset.query == dataset.document)


def without_positive(dataset: PairDataset) -> Rows:
    """Rows of queries that have no positive row; none in a dataset that has no positive row at all."""
    if not dataset.positive.any():
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~np.isin(dataset.query_group, dataset.query_group[dataset.positive]))


def damaged(dataset: PairDataset) -> Rows:
    """Rows with a text of wrongly decoded letters, replacement or control characters."""
    return rows_with(dataset, (dataset.texts.oddities & DAMAGED) > 0)


def rows_with(dataset: PairDataset, chosen: Mask) -> Rows:
    """Rows with one of the chosen texts on any side. chosen: (U,)."""
    return np.flatnonzero(np.any([chosen[column] for column in dataset.text_columns], axis=0))


def part_pairs(data: ExperimentData) -> Iterator[tuple[str, str]]:
    """Names of two parts of which the first must not know the second: train and dev, train and test, dev and test."""
    yield from combinations(data.parts, 2)


def known_queries(earlier: PairDataset, later: PairDataset) -> Rows:
    """Rows of the later part whose query is a query of the earlier one."""
    return np.flatnonzero(np.isin(later.query, earlier.query))


def known_ids(earlier: PairDataset, later: PairDataset) -> Rows:
    """Rows of the later part whose query id stands in the earlier one too, for other texts of the same file."""
    if earlier.report.source != later.report.source:
        return np.flatnonzero(())  # ids of two files need not be the same queries
    return np.flatnonzero(np.isin(later.query_group, earlier.query_group) & ~np.isin(later.query, earlier.query))


def known_across(earlier: PairDataset, later: PairDataset) -> Rows:
    """Rows of the later part whose query is a document of the earlier one, or the other way round."""
    return np.flatnonzero(np.isin(later.query, earlier.document) | np.isin(later.document, earlier.query))


def nearly_known(earlier: PairDataset, later: PairDataset) -> Rows:
    """Rows of the later part whose query is nearly, but not exactly, a query of the earlier one."""
    near = later.texts.near_groups
    known = earlier.distinct_queries
    others = np.bincount(near[known], minlength=int(near.max(initial=0)) + 1)[near[later.query]]
    return np.flatnonzero(others - np.isin(later.query, known) > 0)


def leaking(earlier: PairDataset, later: PairDataset) -> Rows:
    """Rows of the earlier part that hold a query of the later one, or a document of it as their query."""
    queries = np.isin(earlier.query, later.query) | np.isin(earlier.query, later.document)
    return np.flatnonzero(queries | np.isin(earlier.document, later.query))


WITHIN: dict[str, Callable[[PairDataset], Rows]] = {
    "drop_repeats": repeats,
    "drop_near_repeats": near_repeats,
    "drop_conflicts": conflicts,
    "drop_self_pairs": self_pairs,
    "drop_queries_without_positive": without_positive,
    "drop_damaged": damaged,
}
"""Remedies and the rows that they drop in each part."""

BETWEEN: dict[str, Callable[[PairDataset, PairDataset], Rows]] = {
    "drop_leaks": leaking,
    "drop_near_repeats": lambda earlier, later: nearly_known(later, earlier),
}
"""Remedies and the rows that they drop in the earlier of two parts, which leaves what is measured as it is."""


def _numbers(*columns: Rows | Ids) -> npt.NDArray[np.int64]:
    """(N,) one number for each distinct combination of the columns' values, which are not negative."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = number * (int(column.max(initial=0)) + 1) + column
        _, place = np.unique(values, return_inverse=True)
        number = place.astype(np.int64)
    return number

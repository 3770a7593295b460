"""Hold out a share of the queries, so that no query, or no text at all, is on both sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bsc_core.data.pairs import PairDataset
from bsc_core.data.texts import Ids
from bsc_core.errors import ConfigError, DataError

OTHER_SPLIT = 'set data.split_by to "query", or give a dev file'

# N rows, C connected sets of rows, U distinct texts, G query groups


def split_by_query(dataset: PairDataset, *, share: float, seed: int) -> tuple[PairDataset, PairDataset]:
    """Draw about `share` of the queries, with all their rows, for dev.

    Rows that share a query text or a query group stay together, so neither is on both sides. The same dataset, share
    and seed give the same split. Returns (train, dev), neither empty, rows in their old order. Raises ConfigError
    for a share outside 0 to 1, DataError when all rows belong to one query.
    """
    _check_share(share)
    component = connected_queries(dataset)
    queries = _queries_in(dataset, component)
    if len(queries) < 2:
        raise DataError(
            f"{dataset.report.source}: all its rows belong to one query, so none can be held out; give a dev file"
        )
    chosen, _ = _draw(queries, share, seed)
    in_dev = np.isin(component, chosen)
    return dataset.take(np.flatnonzero(~in_dev)), dataset.take(np.flatnonzero(in_dev))


def split_by_component(dataset: PairDataset, *, share: float, seed: int) -> tuple[PairDataset, PairDataset]:
    """Draw about `share` of the rows for dev, so that no text of either side, nor a query group, is in both.

    Rows are held out in whole sets: two rows are in one set when they share a text, or when a chain of such rows leads
    from one to the other. Returns (train, dev), neither empty, rows in their old order. Raises ConfigError for a share
    outside 0 to 1, DataError when the sets are so large that less than half of the share can be held out.
    """
    _check_share(share)
    component = connected_rows(dataset)
    sizes = np.bincount(component)
    if len(sizes) == 1:
        raise DataError(
            f"{dataset.report.source}: all {len(dataset):,} rows hang together by shared texts, so none can be held "
            f"out by component; {OTHER_SPLIT}"
        )
    chosen, held = _draw(sizes, share, seed)
    if 2 * held < round(share * len(dataset)):
        raise DataError(
            f"{dataset.report.source}: {int(sizes.max()):,} of {len(dataset):,} rows hang together by shared texts, so "
            f"only {held:,} of about {round(share * len(dataset)):,} rows can be held out by component; {OTHER_SPLIT}"
        )
    in_dev = np.isin(component, chosen)
    return dataset.take(np.flatnonzero(~in_dev)), dataset.take(np.flatnonzero(in_dev))


def connected_rows(dataset: PairDataset) -> Ids:
    """(N,) number of the set each row belongs to: rows that share a text on any side, or a query group, are in one."""
    texts = dataset.text_columns
    return _connected(texts[0], *texts[1:], dataset.query_group + len(dataset.texts))


def connected_queries(dataset: PairDataset) -> Ids:
    """(N,) number of the set each row belongs to: rows with one query text or one query group are in one set."""
    return _connected(dataset.query, dataset.query_group + len(dataset.texts))


def _connected(first: Ids, *others: Ids) -> Ids:
    """(N,) sets of rows, numbered by first appearance; each row joins the nodes that it names, each a node number."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, places = np.unique(np.concatenate([first, *others]), return_inverse=True)
    sides = np.split(places, 1 + len(others))
    ends = np.concatenate([sides[0]] * len(others)), np.concatenate(sides[1:])
    graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    _, appearance, number = np.unique(component[sides[0]], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(appearance))[number].astype(np.int32)


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(f"dev_share is {share:g}; it must be above 0 and below 1 (0.1 is usual)")


def _draw(sizes: npt.NDArray[np.intp], share: float, seed: int) -> tuple[list[int], int]:
    """Sets that together are about `share` of all, at least one and not all of them, and how much they hold."""
    target = max(1, round(share * int(sizes.sum())))
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen, held = _fill(sizes, order, target)
    if 2 * held < target:  # a few large sets stood in the way: the largest that fit, then
        chosen, held = _fill(sizes, order[np.argsort(-sizes[order], kind="stable")], target)
    if not chosen:
        chosen = [int(np.argmin(sizes))]
        held = int(sizes[chosen[0]])
    return chosen, held


def _fill(sizes: npt.NDArray[np.intp], order: npt.NDArray[np.int64], target: int) -> tuple[list[int], int]:
    """Sets in their order as long as they fit the target, at most all but one, and how much they hold."""
    chosen: list[int] = []
    held = 0
    for candidate in order.tolist():
        if held + sizes[candidate] <= target and len(chosen) < len(sizes) - 1:
            chosen.append(candidate)
            held += int(sizes[candidate])
    return chosen, held


def _queries_in(dataset: PairDataset, component: Ids) -> npt.NDArray[np.intp]:
    """(C,) distinct query texts in each set."""
    _, first = np.unique(dataset.query, return_index=True)
    return np.bincount(component[first])

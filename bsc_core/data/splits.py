"""Held-out splits by query or by connected component."""

import numpy as np
import numpy.typing as npt

from bsc_core.data.dataset import PairDataset
from bsc_core.errors import ConfigError, DataError
from bsc_core.types import Ids

# N rows, C components, U distinct texts, G query groups


def split_by_query(dataset: PairDataset, *, share: float, seed: int) -> tuple[PairDataset, PairDataset]:
    """Hold out about `share` of the queries, with all their rows, for dev; equal arguments give equal splits.

    Rows that share a query text or a query group stay together.

    Returns:
        (train, dev), neither empty, with rows in their previous order.

    Raises:
        ConfigError: `share` is not between 0 and 1.
        DataError: All rows belong to one query.
    """
    component = connected_queries(dataset)
    _, first = np.unique(dataset.query, return_index=True)
    queries = np.bincount(component[first])  # distinct query texts in each component
    chosen, _ = _sample(queries, share, seed)
    if len(queries) < 2:
        raise DataError(
            f"{dataset.report.source}: all its rows belong to one query, so none can be held out; give a dev file"
        )
    in_dev = np.isin(component, chosen)
    return dataset.take(~in_dev), dataset.take(in_dev)


def split_by_component(dataset: PairDataset, *, share: float, seed: int) -> tuple[PairDataset, PairDataset]:
    """Hold out about `share` of the rows for dev, so that train and dev share no text and no query group.

    Rows connected by shared texts, directly or through other rows, form a component and stay together.

    Returns:
        (train, dev), neither empty, with rows in their previous order.

    Raises:
        ConfigError: `share` is not between 0 and 1.
        DataError: The components are so large that less than half of the share can be held out.
    """
    component = connected_rows(dataset)
    sizes = np.bincount(component)
    chosen, size = _sample(sizes, share, seed)
    rows, wanted = len(dataset), round(share * len(dataset))
    if len(sizes) == 1 or 2 * size < wanted:
        connected, possible = f"all {rows:,}", "none"
        if len(sizes) > 1:
            connected, possible = f"{int(sizes.max()):,} of {rows:,}", f"only {size:,} of about {wanted:,} rows"
        raise DataError(
            f"{dataset.report.source}: {connected} rows are connected by shared texts, so {possible} can be held out "
            'by component; set data.split_by to "query", or give a dev file'
        )
    in_dev = np.isin(component, chosen)
    return dataset.take(~in_dev), dataset.take(in_dev)


def connected_rows(dataset: PairDataset) -> Ids:
    """Return (N,) the component of each row: rows that share a text on any side, or a query group, are connected."""
    return _connected(*dataset.text_columns, dataset.query_group + len(dataset.texts))


def connected_queries(dataset: PairDataset) -> Ids:
    """Return (N,) the component of each row: rows that share a query text or a query group are connected."""
    return _connected(dataset.query, dataset.query_group + len(dataset.texts))


def _connected(first: Ids, *others: Ids) -> Ids:
    """Return (N,) components, numbered by first appearance; each row connects the nodes given for it."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, inverse = np.unique(np.concatenate([first, *others]), return_inverse=True)
    sides = np.split(inverse, 1 + len(others))
    ends = np.concatenate([sides[0]] * len(others)), np.concatenate(sides[1:])
    graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    _, appearance, number = np.unique(component[sides[0]], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(appearance))[number].astype(np.int32)


def _sample(sizes: npt.NDArray[np.intp], share: float, seed: int) -> tuple[list[int], int]:
    """Return components with about `share` of all rows or queries, at least one and not all, and their total size."""
    if not 0 < share < 1:
        raise ConfigError(f"dev_size is {share:g}; it must be above 0 and below 1 (0.1 is usual)")
    target = max(1, round(share * int(sizes.sum())))
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen, size = _fill(sizes, order, target)
    if 2 * size < target:  # large components left too little room: take the largest that fit
        chosen, size = _fill(sizes, order[np.argsort(-sizes[order], kind="stable")], target)
    if not chosen:
        chosen, size = [int(np.argmin(sizes))], int(sizes.min())
    return chosen, size


def _fill(sizes: npt.NDArray[np.intp], order: npt.NDArray[np.int64], target: int) -> tuple[list[int], int]:
    """Return components that fit the target, taken in order, at most all but one, and their total size."""
    chosen: list[int] = []
    size = 0
    for candidate in order.tolist():
        if size + sizes[candidate] <= target and len(chosen) < len(sizes) - 1:
            chosen.append(candidate)
            size += int(sizes[candidate])
    return chosen, size

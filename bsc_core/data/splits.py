"""Hold out a share of the queries, so that no query is on both sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bsc_core.data.pairs import PairDataset
from bsc_core.data.texts import Ids
from bsc_core.errors import ConfigError, DataError

# N rows, C connected sets of rows


def split_by_query(dataset: PairDataset, *, share: float, seed: int) -> tuple[PairDataset, PairDataset]:
    """Draw about `share` of the queries, with all their rows, for dev.

    Rows that share a query text or a query group stay together, so neither is on both sides. The same dataset, share
    and seed give the same split. Returns (train, dev), neither empty, rows in their old order. Raises ConfigError
    for a share outside 0 to 1, DataError when all rows belong to one query.
    """
    if not 0 < share < 1:
        raise ConfigError(f"dev_share is {share:g}; it must be above 0 and below 1 (0.1 is usual)")
    component = connected_queries(dataset)
    queries = _queries_in(dataset, component)
    if len(queries) < 2:
        raise DataError(
            f"{dataset.report.source}: all its rows belong to one query, so none can be held out; give a dev file"
        )
    target = max(1, round(share * int(queries.sum())))
    chosen: list[int] = []
    held = 0
    for candidate in np.random.default_rng(seed).permutation(len(queries)).tolist():
        if held + queries[candidate] <= target and len(chosen) < len(queries) - 1:
            chosen.append(candidate)
            held += int(queries[candidate])
    if not chosen:
        chosen = [int(np.argmin(queries))]
    in_dev = np.isin(component, chosen)
    return dataset.take(np.flatnonzero(~in_dev)), dataset.take(np.flatnonzero(in_dev))


def connected_queries(dataset: PairDataset) -> Ids:
    """(N,) number of the set each row belongs to: rows with one query text or one query group are in one set."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]  # halve the path
            node = parent[node]
        return node

    nodes = [("text", text) for text in dataset.query.tolist()]
    for node, group in zip(nodes, dataset.query_group.tolist(), strict=True):
        parent[root(node)] = root(("group", group))
    numbers: dict[tuple[str, int], int] = {}
    return np.asarray([numbers.setdefault(root(node), len(numbers)) for node in nodes], dtype=np.int32)


def _queries_in(dataset: PairDataset, component: Ids) -> npt.NDArray[np.intp]:
    """(C,) distinct query texts in each set."""
    _, first = np.unique(dataset.query, return_index=True)
    return np.bincount(component[first])

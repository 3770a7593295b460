"""Strategy `communities`: groups of rows that are linked in the graph of ranks, as in B3."""

# N rows, V vertices of a graph, each a set of rows; E edges between them

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult
from bsc_core.batching.strategies.graph import rank_graph
from bsc_core.batching.strategies.shingles import group_by_shingle, row_random
from bsc_core.types import Ids

EDGE_STREAM = 111
"""Random stream: the order of edges with the same weight, plus the number of the level."""


def communities(inputs: StrategyInput) -> StrategyResult:
    """Group rows by communities of at most `group_size` rows in the graph of ranks.

    A row is linked to the rows of the documents at ranks `skip_ranks` + 1 to `skip_ranks` + `graph_neighbors` for its
    query, by the embeddings (Thirukovalluru et al., 2025, arXiv 2505.11293); closer documents may be false negatives.
    The paper partitions the graph with METIS; here `partition` does.

    Returns:
        Order, groups and facts: those of the search, and `links_inside_share`, the share of links inside a group.

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    if len(inputs.dataset) == 0:
        return StrategyResult.empty()
    graph, facts = rank_graph(inputs, skip=inputs.config.skip_ranks)
    community, inside = partition(graph, inputs.config.group_size, seed=inputs.seed, epoch=inputs.epoch)
    if inside is not None:
        facts = facts | {"links_inside_share": inside}
    return group_by_shingle(inputs, community.astype(np.int64), facts)


def partition(graph: Any, size: int, *, seed: int, epoch: int) -> tuple[Ids, float | None]:
    """Partition a graph into communities of at most `size` rows by repeated heavy-edge matching.

    At each level every vertex is merged with at most one other: of the edges, the one with the highest weight, divided
    by the product of the sizes of its two vertices, is chosen first, and so on; ties are in random order. Edges
    between vertices that together have more than `size` rows are left out. The merged vertices are those of the next
    level. This resembles the coarsening phase of METIS; its initial partition and refinement are left out.

    Args:
        graph: Symmetric scipy CSR array (N, N) of int8 weights.
        size: Maximum number of rows in a community.
        seed: Seed of the run.
        epoch: Epoch of the plan.

    Returns:
        The community of each row, (N,), and the share of the links inside a community; None without links.
    """
    community = np.arange(graph.shape[0], dtype=np.int32)
    sizes = np.ones(len(community), dtype=np.int32)  # (V,)
    one, two, weight = _edges(graph)  # (E,)
    all_links, level = int(weight.sum()), 0
    inside = 0
    while True:
        allowed = sizes[one] + sizes[two] <= size
        one, two, weight = one[allowed], two[allowed], weight[allowed]
        if not len(one):
            break
        density = weight.astype(np.float32) / (sizes[one] * sizes[two]).astype(np.float32)
        random = row_random(
            one * np.int64(len(sizes)) + two, seed=seed, epoch=epoch, stream=EDGE_STREAM + level
        ) >> np.uint64(32)
        partner = _match(one, two, (density.view(np.uint32).astype(np.uint64) << np.uint64(32)) | random, len(sizes))
        first = np.minimum(partner, np.arange(len(sizes), dtype=np.int32))
        vertex = np.unique(first, return_inverse=True)[1].astype(np.int32)  # (V,), of the next level
        community, sizes = vertex[community], np.bincount(vertex, weights=sizes).astype(np.int32)
        one, two = vertex[one], vertex[two]
        inside += int(weight[one == two].sum())
        one, two, weight = _merged(one, two, weight, len(sizes))
        level += 1
    return community, inside / all_links if all_links else None


def _edges(graph: Any) -> tuple[Ids, Ids, Ids]:
    """Return both ends and the weight of each edge, once."""
    from scipy.sparse import triu

    upper = triu(graph, k=1).tocoo()
    return upper.row.astype(np.int32), upper.col.astype(np.int32), upper.data.astype(np.int32)


def _match(one: Ids, two: Ids, priority: NDArray[np.uint64], vertices: int) -> Ids:
    """Match vertices greedily, the edges with the highest priority first; return the partner of each, or itself.

    In each round those edges are chosen that have the highest priority of all edges of both their vertices.
    """
    partner = np.arange(vertices, dtype=np.int32)
    while len(one):
        highest = np.zeros(vertices, dtype=np.uint64)
        np.maximum.at(highest, one, priority)
        np.maximum.at(highest, two, priority)
        chosen = (highest[one] == priority) & (highest[two] == priority)
        partner[one[chosen]] = two[chosen]
        partner[two[chosen]] = one[chosen]
        single = partner[partner] != np.arange(vertices)  # two edges of a vertex had the same priority
        partner[single] = np.flatnonzero(single)
        free = partner == np.arange(vertices)
        remaining = free[one] & free[two]
        if remaining.all():  # a cycle of edges with one priority
            break
        one, two, priority = one[remaining], two[remaining], priority[remaining]
    return partner


def _merged(one: Ids, two: Ids, weight: Ids, vertices: int) -> tuple[Ids, Ids, Ids]:
    """Return the edges between different vertices, parallel edges as one with the sum of their weights."""
    from scipy.sparse import coo_array

    between = one != two
    one, two, weight = one[between], two[between], weight[between]
    ends = np.minimum(one, two), np.maximum(one, two)
    merged = coo_array((weight, ends), shape=(vertices, vertices)).tocsr().tocoo()
    return merged.row.astype(np.int32), merged.col.astype(np.int32), merged.data.astype(np.int32)

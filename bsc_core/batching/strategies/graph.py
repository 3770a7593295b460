"""Graph of the rows of a dataset: each is linked to rows whose documents are near its query."""

# N rows, Q distinct queries, M distinct documents, n ranked documents of a query, m of them linked, B rows of a block

from typing import Any

import numpy as np

from bsc_core.batching.strategies.base import StrategyInput
from bsc_core.batching.strategies.shingles import row_random
from bsc_core.neighbors import NeighborSearch, TextRows
from bsc_core.types import Ids, Indices

LINK_STREAM = 110
"""Random stream that selects the row of a document with several rows."""
BLOCK = 65_536  # rows linked at a time


def rank_graph(inputs: StrategyInput, *, skip: int = 0) -> tuple[Any, dict[str, float | str]]:
    """Link each row to the rows of the documents at ranks skip + 1 to skip + m for its query, m = `graph_neighbors`.

    Ranks are counted among the distinct documents without the row's own. Of the rows of a document one is sampled, so
    that a row has at most m links to others. Rows with the same query are not linked.

    Returns:
        The links in both directions, a scipy CSR array (N, N) of int8: 2 where both rows link each other, otherwise 1;
        and the facts of the search.

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    from scipy.sparse import csr_array

    dataset, rows = inputs.dataset, len(inputs.dataset)
    queries, query_of_row = np.unique(dataset.query, return_inverse=True)
    documents, document_of_row = np.unique(dataset.document, return_inverse=True)
    config, embeddings = inputs.config, inputs.required_embeddings()
    search = NeighborSearch(embeddings, config.metric, rows=documents, search=config.search, seed=inputs.seed)
    near = search.ranked(TextRows(embeddings, queries), skip + config.graph_neighbors + 1, inputs.report)
    facts = search.facts
    del search
    rows_by_document = np.argsort(document_of_row, kind="stable").astype(np.int32)
    counts = np.bincount(document_of_row)
    starts = np.cumsum(counts) - counts
    targets, lengths = [], np.zeros(rows + 1, dtype=np.int64)
    for first in range(0, rows, BLOCK):
        block = np.arange(first, min(first + BLOCK, rows))
        linked = _without_own(near[query_of_row[block]], document_of_row[block])[:, skip:]  # (B, m)
        keys = block[:, None] * np.int64(max(1, linked.shape[1])) + np.arange(linked.shape[1])
        random = row_random(keys, seed=inputs.seed, epoch=inputs.epoch, stream=LINK_STREAM)
        chosen = (random % counts[linked].astype(np.uint64)).astype(np.int64)
        target = rows_by_document[starts[linked] + chosen]
        other_query = query_of_row[target] != query_of_row[block][:, None]
        targets.append(target[other_query])
        lengths[block + 1] = other_query.sum(axis=1)
    del near
    indices, ends = np.concatenate([*targets, np.empty(0, dtype=np.int32)]), np.cumsum(lengths).astype(np.int32)
    del targets
    links = csr_array((np.ones(len(indices), dtype=np.int8), indices, ends), shape=(rows, rows))
    return links + links.T.tocsr(), facts


def _without_own(ranked: Ids, own: Indices) -> Ids:
    """Remove the own document of each row, or the last one where it is not ranked. ranked: (B, n). own: (B,)."""
    other = ranked != own[:, None]
    other[other.all(axis=1), -1] = False
    return np.asarray(ranked[other].reshape(len(ranked), ranked.shape[1] - 1), dtype=np.int32)

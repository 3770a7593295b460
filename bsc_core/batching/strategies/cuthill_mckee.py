"""Strategy `cuthill_mckee`: an order in which similar rows are close to each other, as in GCBS."""

import numpy as np

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult, plan_generator
from bsc_core.batching.strategies.graph import rank_graph


def cuthill_mckee(inputs: StrategyInput) -> StrategyResult:
    """Order the rows by the reverse Cuthill-McKee algorithm, so that linked rows are close; batches are shuffled.

    The graph links each row to its `graph_neighbors` nearest documents (Sachidananda et al., 2022, arXiv 2210.12874,
    use all pairs above a quantile of the similarities instead). The algorithm breaks ties by row number. In each epoch
    the rows are renumbered at random, and the order starts at a random row and continues from its end with its first
    row, so that the batches differ.

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows = len(inputs.dataset)
    if rows == 0:
        return StrategyResult.empty()
    graph, facts = rank_graph(inputs)
    generator = plan_generator(inputs.seed, inputs.epoch)
    renumbered = generator.permutation(rows).astype(np.int32)
    graph = graph[renumbered][:, renumbered]
    order = np.roll(renumbered[reverse_cuthill_mckee(graph, symmetric_mode=True)], generator.integers(rows))
    return StrategyResult(order, np.arange(rows, dtype=np.int32), facts, shuffle_batches=True)

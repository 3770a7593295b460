"""Random sampling of examples by index, without building the others."""

# N anchors, M sampled examples, C the cap

from dataclasses import dataclass

import numpy as np

from bsc_core.data.dataset import spread
from bsc_core.types import Indices

BLOCK = 20_000_000  # random numbers in memory at a time


@dataclass(frozen=True, eq=False)
class SampledExamples:
    """Sampled examples.

    Attributes:
        anchors: (M,) anchors, ascending.
        indices: (M,) index of each example among the examples of its anchor, from 0.
        after_cap: Count of the examples left by the cap.
        capped: (N,) counts of the examples left by the cap, by anchor.
        table: (N, C) indices of the examples left by the cap, by anchor; None without a cap.
    """

    anchors: Indices
    indices: Indices
    after_cap: int
    capped: Indices
    table: Indices | None

    def spread_all(self, counts: Indices) -> tuple[Indices, Indices]:
        """Return the anchors and indices of three of all examples.

        Args:
            counts: (N,) number of examples of each anchor.
        """
        return locate_examples(spread(int(counts.sum())), counts)

    def spread_capped(self) -> tuple[Indices, Indices]:
        """Return the anchors and indices of three examples left by the cap."""
        anchors, indices = locate_examples(spread(self.after_cap), self.capped)
        return anchors, indices if self.table is None else self.table[anchors, indices]


def sample_examples(
    counts: Indices, *, cap: int | None, target: int | None, generator: np.random.Generator
) -> SampledExamples:
    """Sample at most `cap` examples per anchor, then `target` in all, uniformly and without replacement.

    Args:
        counts: (N,) number of examples of each anchor.
        cap: Maximum per anchor; None: no limit.
        target: Maximum in all; None: no limit.
        generator: Source of randomness.
    """
    table = None if cap is None or not (counts > cap).any() else _sampled_indices(counts, cap, generator)
    capped = counts if cap is None else np.minimum(counts, cap)
    total = int(capped.sum())
    if target is None or target >= total:
        chosen = np.arange(total, dtype=np.int64)
    else:
        chosen = np.sort(generator.choice(total, size=target, replace=False, shuffle=False))
    anchors, indices = locate_examples(chosen, capped)
    if table is not None:
        indices = table[anchors, indices]
        order = np.lexsort((indices, anchors))
        anchors, indices = anchors[order], indices[order]
    return SampledExamples(anchors, indices, total, capped, table)


def locate_examples(chosen: Indices, counts: Indices) -> tuple[Indices, Indices]:
    """Return the anchor, and the index within the anchor, of positions in the concatenated examples of all anchors."""
    ends = np.cumsum(counts)
    anchors = np.searchsorted(ends, chosen, side="right")
    return anchors.astype(np.int64), chosen - (ends - counts)[anchors]


def _sampled_indices(counts: Indices, cap: int, generator: np.random.Generator) -> Indices:
    """Return (N, C) the indices left by the cap for each anchor, padded with unused ones for anchors with fewer."""
    table = np.tile(np.arange(cap, dtype=np.int64), (len(counts), 1))
    over = np.flatnonzero(counts > cap)
    over = over[np.argsort(counts[over], kind="stable")]  # similar widths together
    start = 0
    while start < len(over):
        block = over[start : start + max(1, BLOCK // int(counts[over[-1]]))]
        keys = generator.random((len(block), int(counts[block[-1]])), dtype=np.float32)
        keys[np.arange(keys.shape[1]) >= counts[block][:, None]] = np.inf
        table[block] = np.sort(np.argpartition(keys, cap - 1, axis=1)[:, :cap], axis=1)
        start += len(block)
    return table

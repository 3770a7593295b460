"""Choosing some of very many examples by chance, without making the others."""

# N anchors, M examples chosen, C the cap

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bsc_core.data.stages import spread

Rows = npt.NDArray[np.int64]
BLOCK = 20_000_000  # random numbers held at a time


@dataclass(frozen=True, eq=False)
class Drawn:
    """The chosen examples: (M,) anchors, ascending, and (M,) the place of each among its anchor's examples.

    after_cap: how many there were after the cap; capped: (N,) of each anchor; table: (N, C) their places, or None
    without a cap.
    """

    anchors: Rows
    places: Rows
    after_cap: int
    capped: Rows
    table: Rows | None

    def spread_all(self, counts: Rows) -> tuple[Rows, Rows]:
        """Anchors and places of three of all examples. counts: (N,) of each anchor."""
        return places_of(spread(int(counts.sum())), counts)

    def spread_capped(self) -> tuple[Rows, Rows]:
        """Anchors and places of three of those that the cap leaves."""
        return _through(self.table, *places_of(spread(self.after_cap), self.capped))


def draw_examples(counts: Rows, *, cap: int | None, target: int | None, generator: np.random.Generator) -> Drawn:
    """Keep at most `cap` examples of an anchor, then `target` in all, each choice uniform and without repeats.

    counts: (N,) examples that each anchor can make. A target of all or more keeps all.
    """
    table = None if cap is None or not (counts > cap).any() else _drawn_places(counts, cap, generator)
    capped = counts if cap is None else np.minimum(counts, cap)
    total = int(capped.sum())
    if target is None or target >= total:
        chosen = np.arange(total, dtype=np.int64)
    else:
        chosen = np.sort(generator.choice(total, size=target, replace=False, shuffle=False))
    anchors, places = _through(table, *places_of(chosen, capped))
    order = np.lexsort((places, anchors)) if table is not None else slice(None)
    return Drawn(anchors[order], places[order], total, capped, table)


def places_of(chosen: Rows, counts: Rows) -> tuple[Rows, Rows]:
    """Anchor and place of numbers that count the examples of all anchors, one anchor after the other."""
    ends = np.cumsum(counts)
    anchors = np.searchsorted(ends, chosen, side="right")
    return anchors.astype(np.int64), chosen - (ends - counts)[anchors]


def _through(table: Rows | None, anchors: Rows, places: Rows) -> tuple[Rows, Rows]:
    return anchors, places if table is None else table[anchors, places]


def _drawn_places(counts: Rows, cap: int, generator: np.random.Generator) -> Rows:
    """(N, C) places that the cap leaves of each anchor; of anchors with fewer, all, and what follows has no meaning."""
    table = np.tile(np.arange(cap, dtype=np.int64), (len(counts), 1))
    over = np.flatnonzero(counts > cap)
    over = over[np.argsort(counts[over], kind="stable")]  # alike widths together
    start = 0
    while start < len(over):
        block = over[start : start + max(1, BLOCK // int(counts[over[-1]]))]
        keys = generator.random((len(block), int(counts[block[-1]])), dtype=np.float32)
        keys[np.arange(keys.shape[1]) >= counts[block][:, None]] = np.inf
        table[block] = np.sort(np.argpartition(keys, cap - 1, axis=1)[:, :cap], axis=1)
        start += len(block)
    return table

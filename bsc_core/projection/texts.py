"""Which texts a map draws where there are more than it can hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bsc_core.data.parts import ExperimentData

Rows = npt.NDArray[np.int32]

SEED = 0  # maps of several runs on the same data draw the same texts


def sample_rows(size: int, most: int, *, seed: int = 0) -> Rows:
    """All row numbers below `size`, or `most` of them drawn without repetition with `seed`, ascending."""
    if size <= most:
        return np.arange(size, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(size, most, replace=False)).astype(np.int32)


def drawn_texts(data: ExperimentData, most: int) -> Rows:
    """At most `most` text ids, ascending: the texts of pairs first, then documents of the corpus, drawn by chance."""
    sides = [side for part in data.parts.values() for side in (part.query, part.document)]
    paired = np.unique(np.concatenate(sides))
    others = np.setdiff1d(np.arange(len(data.texts), dtype=np.int32), paired)
    kept = paired[sample_rows(len(paired), most, seed=SEED)]
    filled = others[sample_rows(len(others), max(0, most - len(kept)), seed=SEED)]
    return np.sort(np.concatenate([kept, filled])).astype(np.int32)

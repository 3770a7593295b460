"""The vectors of some texts, read as they are asked for: a memory-mapped file of all texts is never copied whole."""

# M texts that are chosen, U distinct texts, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class TextRows:
    """Stands for `vectors[ids]`, (M, D), and holds no copy of it. vectors: (U, D); ids: (M,) text ids."""

    vectors: NDArray[np.float32]
    ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, D)."""
        return len(self.ids), self.vectors.shape[1]

    def __getitem__(self, rows: slice | NDArray[np.int32]) -> NDArray[np.float32]:
        """A copy of these rows alone."""
        return self.vectors[self.ids[rows]]


Documents = NDArray[np.float32] | TextRows
"""The vectors of M documents, (M, D)."""

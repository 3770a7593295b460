"""A plan that lies on disk as shards: its batches are read one after the other and never held together."""

# M rows of the plan, B rows of a batch, W rows of a window

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids
from bsc_core.batching.packing import cut, pack
from bsc_core.data.shards import Shards
from bsc_core.errors import InputError

if TYPE_CHECKING:
    import pyarrow

WINDOW = 65_536


@dataclass(frozen=True)
class ShardedPlan:
    """The plan of one epoch in a folder of shards.

    keep_groups: whether batches keep groups whole. window: about how many rows are held at a time.
    """

    shards: Shards
    keep_groups: bool = False
    window: int = WINDOW

    def __len__(self) -> int:
        return len(self.shards)

    def batches(self, batch_size: int) -> Iterator[NDArray[np.int64]]:
        """The plan as arrays of at most `batch_size` row numbers, (B,) each; every row is in exactly one.

        Cut in sequence, or with keep_groups packed from whole groups, first-fit within a window; groups larger than a
        batch are cut. A batch of a single row joins one beside it, as in `BatchPlan.batches`. Raises InputError when
        batch_size is below 2, FileFormatError for a shard that cannot be read.
        """
        for table, places in self.windows(batch_size, columns=("row", "group")):
            rows = table["row"].to_numpy()
            yield from (rows[chosen] for chosen in places)

    def windows(
        self, batch_size: int, columns: tuple[str, ...] | None = None
    ) -> Iterator[tuple[pyarrow.Table, list[Ids]]]:
        """The plan some batches at a time: the rows of a window, and for each of its batches the places in it.

        columns: of the tables, which must hold `group`; None for all: row, group and the shards' roles. Windows end
        where a batch does, so that batches are those of the whole plan, except that keep_groups packs each by itself.
        """
        if batch_size < 2:
            raise InputError(
                f"batch_size is {batch_size}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
        return self._windows(batch_size, columns)

    def _windows(self, batch_size: int, columns: tuple[str, ...] | None) -> Iterator[tuple[pyarrow.Table, list[Ids]]]:
        import pyarrow

        held: list[pyarrow.RecordBatch] = []
        left = len(self)
        for batch in self.shards.batches(columns):
            held.append(batch)
            count = sum(len(one) for one in held)
            if self.window <= count < left:
                table = pyarrow.Table.from_batches(held)
                end = self._end(table["group"].to_numpy(), batch_size, left)
                if end:
                    yield table.slice(0, end), self._places(table.slice(0, end), batch_size)
                    held, left = table.slice(end).to_batches(), left - end
        if held:
            table = pyarrow.Table.from_batches(held)
            yield table, self._places(table, batch_size)

    def _places(self, table: pyarrow.Table, batch_size: int) -> list[Ids]:
        return pack(table["group"].to_numpy(), batch_size) if self.keep_groups else cut(len(table), batch_size)

    def _end(self, groups: NDArray[np.int64], batch_size: int, left: int) -> int:
        """Rows of a window, of which more than these follow: it ends where a batch can and leaves no single row.

        groups: (W,). left: rows of the plan from the window's start on. Returns 0 when there is no such end yet.
        """
        if self.keep_groups:
            ends = np.flatnonzero(np.diff(groups)) + 1
        else:
            ends = np.arange(batch_size, len(groups) + 1, batch_size)
        ends = ends[(left - ends != 1) & (ends > 1)]
        return int(ends[-1]) if len(ends) else 0

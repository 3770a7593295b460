"""Batch plans stored as shards, read one window at a time."""

# M rows of the plan, B rows of a batch, W rows of a window

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.packing import cut, pack
from bsc_core.data.io.shards import READ_ROWS, Shards
from bsc_core.errors import InputError
from bsc_core.types import Ids, Mask

if TYPE_CHECKING:
    import pyarrow

WINDOW = 65_536


@dataclass(frozen=True)
class ShardedPlan:
    """The plan of one epoch in a folder of shards."""

    shards: Shards
    keep_groups: bool = False  # whether batches keep groups together
    window: int = WINDOW  # approximate number of rows in memory
    used: Mask | None = None  # (rows of the shards,): False for rows that the plan skips; None: all are used

    def __len__(self) -> int:
        return len(self.shards) if self.used is None else int(self.used.sum())

    def rows(self, columns: tuple[str, ...] | None = None, at_once: int = READ_ROWS) -> Iterator[pyarrow.RecordBatch]:
        """Yield the used rows in plan order, at most `at_once` at a time; see `Shards.batches`."""
        first = 0
        for batch in self.shards.batches(columns, at_once):
            used = None if self.used is None else self.used[first : first + len(batch)]
            first += len(batch)
            yield batch if used is None or used.all() else batch.filter(used)

    def batches(self, batch_size: int) -> Iterator[NDArray[np.int64]]:
        """Yield the row numbers of each batch, (B,); see `BatchPlan.batches`. Groups are packed within a window.

        Raises:
            InputError: batch_size is below 2.
            FileFormatError: A shard cannot be read.
        """
        for table, positions in self.windows(batch_size, columns=("row", "group")):
            rows = table["row"].to_numpy()
            yield from (rows[batch] for batch in positions)

    def windows(
        self, batch_size: int, columns: tuple[str, ...] | None = None
    ) -> Iterator[tuple[pyarrow.Table, list[Ids]]]:
        """Yield the rows of each window, with the positions of its batches in them.

        Windows end at the end of a batch, so the batches are those of the full plan, except that keep_groups packs
        each window separately.

        Args:
            batch_size: Rows in a batch.
            columns: Columns of the tables, including `group`; None for all: row, group and the shards' roles.
        """
        if batch_size < 2:
            raise InputError(
                f"batch_size is {batch_size}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
        return self._windows(batch_size, columns)

    def _windows(self, batch_size: int, columns: tuple[str, ...] | None) -> Iterator[tuple[pyarrow.Table, list[Ids]]]:
        import pyarrow

        pending: list[pyarrow.RecordBatch] = []
        remaining = len(self)
        for batch in self.rows(columns):
            pending.append(batch)
            count = sum(len(one) for one in pending)
            if self.window <= count < remaining:
                table = pyarrow.Table.from_batches(pending)
                end = self._end(table["group"].to_numpy(), batch_size, remaining)
                if end:
                    yield table.slice(0, end), self._positions(table.slice(0, end), batch_size)
                    pending, remaining = table.slice(end).to_batches(), remaining - end
        if pending:
            table = pyarrow.Table.from_batches(pending)
            yield table, self._positions(table, batch_size)

    def _positions(self, table: pyarrow.Table, batch_size: int) -> list[Ids]:
        return pack(table["group"].to_numpy(), batch_size) if self.keep_groups else cut(len(table), batch_size)

    def _end(self, groups: NDArray[np.int64], batch_size: int, remaining: int) -> int:
        """Return the rows of a window that ends with a batch and leaves no single row; 0 if there is none yet.

        groups: (W,). remaining: Rows of the plan from the start of the window.
        """
        if self.keep_groups:
            ends = np.flatnonzero(np.diff(groups)) + 1
        else:
            ends = np.arange(batch_size, len(groups) + 1, batch_size)
        ends = ends[(remaining - ends != 1) & (ends > 1)]
        return int(ends[-1]) if len(ends) else 0

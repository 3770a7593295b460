"""Places of a plan dealt into batches: cut in sequence, or packed so that groups stay whole."""

# M rows of the plan

from __future__ import annotations

import numpy as np

from bsc_core.batching.arrays import Ids


def cut(rows: int, batch_size: int) -> list[Ids]:
    """Places 0 .. rows - 1 in sequence, batch_size at a time; a last single place joins the batch before it."""
    places = np.arange(rows, dtype=np.int32)
    return _join_single([places[start : start + batch_size] for start in range(0, rows, batch_size)])


def pack(groups: Ids, batch_size: int) -> list[Ids]:
    """Places dealt group by group, each group to the first batch with room for all of it.

    groups: (M,) group ids, equal ids next to each other. A group larger than a batch is cut into pieces of
    batch_size. A batch of one place joins a neighbouring batch. Returns arrays of places, which hold each of 0 .. M -
    1 once.
    """
    parts = pieces(groups, batch_size)
    room = np.full(len(parts), batch_size, dtype=np.int64)  # of every batch that could be needed
    dealt: list[list[Ids]] = []
    first_open = 0
    for piece in parts:
        batch = first_open + int(np.argmax(room[first_open : len(dealt) + 1] >= len(piece)))
        if batch == len(dealt):
            dealt.append([])
        dealt[batch].append(piece)
        room[batch] -= len(piece)
        while first_open < len(dealt) and room[first_open] == 0:
            first_open += 1
    return _join_single([np.concatenate(batch) for batch in dealt])


def pieces(groups: Ids, batch_size: int) -> list[Ids]:
    """The places of each group, cut where it is larger than a batch. groups: (M,) group ids."""
    places = np.arange(len(groups), dtype=np.int32)
    starts = np.flatnonzero(np.diff(groups)) + 1
    whole = np.split(places, starts) if len(groups) else []
    return [group[start : start + batch_size] for group in whole for start in range(0, len(group), batch_size)]


def _join_single(batches: list[Ids]) -> list[Ids]:
    """A single row has no negatives in its batch; there is at most one such batch, and a lone batch is left alone."""
    single = next((position for position, batch in enumerate(batches) if len(batch) == 1), None)
    if single is None or len(batches) == 1:
        return batches
    first = max(single - 1, 0)
    return [*batches[:first], np.concatenate(batches[first : first + 2]), *batches[first + 2 :]]

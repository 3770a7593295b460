"""Batches of a plan: cut in sequence, or packed so that groups stay together."""

# M rows of the plan

import numpy as np

from bsc_core.types import Ids


def cut(rows: int, batch_size: int) -> list[Ids]:
    """Split positions 0 .. rows - 1 into batches; a single last position joins the previous batch."""
    positions = np.arange(rows, dtype=np.int32)
    return _join_single([positions[start : start + batch_size] for start in range(0, rows, batch_size)])


def pack(groups: Ids, batch_size: int) -> list[Ids]:
    """Put each group into the first batch with room for all of it (first fit).

    Groups larger than a batch are cut. A batch with a single position joins an adjacent batch.

    Args:
        groups: (M,) group ids; rows of a group are adjacent.
        batch_size: Maximum number of positions in a batch.

    Returns:
        The positions of each batch; together each of 0 .. M - 1 once.
    """
    parts = pieces(groups, batch_size)
    room = np.full(len(parts), batch_size, dtype=np.int64)  # for the largest possible number of batches
    batches: list[list[Ids]] = []
    first_open = 0
    for piece in parts:
        batch = first_open + int(np.argmax(room[first_open : len(batches) + 1] >= len(piece)))
        if batch == len(batches):
            batches.append([])
        batches[batch].append(piece)
        room[batch] -= len(piece)
        while first_open < len(batches) and room[first_open] == 0:
            first_open += 1
    return _join_single([np.concatenate(batch) for batch in batches])


def pieces(groups: Ids, batch_size: int) -> list[Ids]:
    """Return the positions of each group, cut if larger than a batch.

    Args:
        groups: (M,) group ids; rows of a group are adjacent.
        batch_size: Maximum number of positions in a piece.
    """
    positions = np.arange(len(groups), dtype=np.int32)
    starts = np.flatnonzero(np.diff(groups)) + 1
    complete = np.split(positions, starts) if len(groups) else []
    return [group[start : start + batch_size] for group in complete for start in range(0, len(group), batch_size)]


def _join_single(batches: list[Ids]) -> list[Ids]:
    """Merge a batch of a single row, which has no negatives, into an adjacent one; there is at most one."""
    single = next((position for position, batch in enumerate(batches) if len(batch) == 1), None)
    if single is None or len(batches) == 1:
        return batches
    first = max(single - 1, 0)
    return [*batches[:first], np.concatenate(batches[first : first + 2]), *batches[first + 2 :]]

"""Groups of rows that share a shingle: Algorithm 2 of the BSC paper, for words, clusters and nearest neighbours.

Every draw is a function of (seed, epoch, row) alone, so rows may be handled in any order, in parts, or on several
machines, and come out in the same groups.
"""

# N rows, T distinct texts, t words of a shingle, G groups

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids

Shingles = NDArray[np.int64]
ALONE = -1
"""The shingle of a row without words: it forms a group of its own."""
ORDER_STREAM, GROUP_STREAM = 100, 101
"""Streams of draws: below them one for each word of a shingle, then the order inside a shingle, then of the groups."""


def row_random(rows: NDArray[np.integer], *, seed: int, epoch: int, stream: int) -> NDArray[np.uint64]:
    """A uniform 64-bit draw for each row number: splitmix64 of the row, keyed by seed, epoch and stream.

    rows: (N,) row numbers >= 0. Returns uint64 (N,).
    """
    key = np.random.SeedSequence(seed, spawn_key=(epoch, stream)).generate_state(1, np.uint64)[0]
    mixed = rows.astype(np.uint64)
    mixed += np.uint64(1)
    mixed *= np.uint64(0x9E3779B97F4A7C15)  # wraps around
    mixed += key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True)
class WordLists:
    """The words of each text: word ids `flat[starts[t] : starts[t + 1]]` for text t, each once.

    flat: (sum of lengths,) word ids >= 0; starts: int64 (T + 1,).
    """

    flat: Ids
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of_length(cls, words: Ids) -> WordLists:
        """Texts with the same number of words. words: (T, w)."""
        texts, each = words.shape
        return cls(words.reshape(-1), np.arange(texts + 1, dtype=np.int64) * each)


def draw_shingles(
    words: WordLists, text_of_row: NDArray[np.integer], rows: NDArray[np.int64], *, size: int, seed: int, epoch: int
) -> NDArray[np.int32]:
    """A random t-subset of each row's words, without replacement, by Floyd's algorithm.

    text_of_row: (N,) positions in `words`; rows: (N,) row numbers, which key the draws; size: t.
    Returns (N, t) word ids, ascending in each row; a text of fewer words gives all of them, padded with -1 in front.
    """
    starts = words.starts[text_of_row]  # (N,)
    lengths = words.starts[text_of_row + np.int64(1)] - starts
    places = np.full((len(rows), size), -1, dtype=np.int32)
    for draw in range(size):
        highest = lengths - np.minimum(lengths, size) + draw  # the draw is from 0 to this, inclusive
        active = draw < lengths
        random = row_random(rows, seed=seed, epoch=epoch, stream=draw)
        picked = (random % (np.maximum(highest, 0) + 1).astype(np.uint64)).astype(np.int32)
        taken = (places[:, :draw] == picked[:, None]).any(axis=1)
        places[:, draw] = np.where(active, np.where(taken, highest, picked), -1)
    if not len(words.flat):
        return places
    flat = np.minimum(starts[:, None] + np.maximum(places, 0), len(words.flat) - 1)
    drawn: NDArray[np.int32] = np.where(places < 0, np.int32(-1), words.flat[flat])
    drawn.sort(axis=1)
    return drawn


def shingle_ids(drawn: NDArray[np.int32]) -> Shingles:
    """One number for each distinct shingle. drawn: (N, t) as from `draw_shingles`. Returns (N,); ALONE where empty."""
    ids = drawn[:, 0].astype(np.int64)
    base = int(drawn.max(initial=0)) + 2
    for column in drawn.T[1:]:
        pairs = (ids + 1) * base + column + 1
        ids = np.unique(pairs, return_inverse=True)[1].astype(np.int64)  # renumbered, so that numbers stay small
    ids[(drawn < 0).all(axis=1)] = ALONE
    return ids


def form_groups(
    shingles: Shingles, rows: NDArray[np.int64], *, group_size: int, seed: int, epoch: int
) -> tuple[NDArray[np.int64], Ids]:
    """Rows with equal shingles in groups of exactly `group_size`, the last of each shingle smaller; groups shuffled.

    Sorted by (shingle, a draw of the row), cut where the shingle changes or the group is full (Algorithm 2, whose
    counter starts anew with each shingle), then the groups by a draw of their first row.

    shingles: (N,); rows: (N,) row numbers. Returns the positions of the rows in plan order (N,), and group ids (N,)
    from 0 in that order.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    order, fresh = _sorted_by_shingle(shingles, rows, seed=seed, epoch=epoch)
    run = np.flatnonzero(fresh)  # where a shingle begins
    place = np.arange(len(order)) - np.repeat(run, np.diff(np.append(run, len(order))))
    first = np.flatnonzero(place % group_size == 0)  # (G,)
    sizes = np.diff(np.append(first, len(order)))
    draws = row_random(rows[order[first]], seed=seed, epoch=epoch, stream=GROUP_STREAM)
    shuffled = np.argsort(draws, kind="stable")
    sizes = sizes[shuffled]
    ends = np.cumsum(sizes)
    offsets = np.arange(len(order)) - np.repeat(ends - sizes, sizes)
    positions = order[np.repeat(first[shuffled], sizes) + offsets]
    return positions, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def _sorted_by_shingle(
    shingles: Shingles, rows: NDArray[np.int64], *, seed: int, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions sorted by (shingle, the draw's upper half, row), and where a new shingle or a lone row begins."""
    upper = row_random(rows, seed=seed, epoch=epoch, stream=ORDER_STREAM) >> np.uint64(32)
    if len(shingles) and int(shingles.max(initial=0)) < 2**31 - 1:
        keys = ((shingles + 1).astype(np.uint64) << np.uint64(32)) | upper
        order = np.argsort(keys, kind="stable")
    else:
        order = np.lexsort((upper, shingles))
    ordered = shingles[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]) | (ordered[1:] == ALONE)
    return order, fresh

"""Groups of rows that share a shingle, Algorithm 2 of the BSC paper, and the strategies `premises` and `neighbors`.

The strategies `words` and `clusters` form their groups here too. Every random number is a function of (seed, epoch,
row), so the groups are the same if rows are processed in another order, in parts, or on several machines.
"""

# N rows, T distinct texts, t words in a shingle, G groups

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult
from bsc_core.neighbors import NeighborSearch
from bsc_core.types import Ids, Indices, Vectors

ALONE = -1
"""Shingle of a row without words, which is a group by itself."""
ORDER_STREAM, GROUP_STREAM = 100, 101
"""Random streams: 0 to t - 1 for the words of a shingle, then the order in a shingle, then the order of the groups."""
BLOCK = 65_536  # texts searched at a time


def premises(inputs: StrategyInput) -> StrategyResult:
    """Return one group for each query group, of any size, in random order; batches keep groups together."""
    shingles = inputs.dataset.query_group.astype(np.int64)
    return group_by_shingle(inputs, shingles, {}, group_size=max(1, len(inputs.dataset)))


def neighbors(inputs: StrategyInput) -> StrategyResult:
    """Group rows that share a shingle: a random subset of `shingle_size` of the text's nearest other texts.

    Each text has `shingle_neighbors` neighbors, or all others if there are fewer; rows of a single text are groups by
    themselves.

    Raises:
        InputError: Embeddings are missing or not finite.
    """
    config = inputs.config
    embeddings = inputs.required_embeddings()
    search = NeighborSearch(embeddings, config.metric, rows=inputs.texts, search=config.search, seed=inputs.seed)
    blocks = []
    for start in range(0, len(inputs.texts), BLOCK):
        texts = np.arange(start, min(start + BLOCK, len(inputs.texts)), dtype=np.int32)
        blocks.append(search.others(texts, config.shingle_neighbors))
        inputs.report(int(texts[-1]) + 1, len(inputs.texts))
    near = np.concatenate(blocks) if blocks else np.empty((0, 0), dtype=np.int32)  # (T, shingle_neighbors)
    size = min(config.shingle_size, max(1, near.shape[1]))
    return group_by_words(inputs, WordLists.of_length(near), size, dict(search.facts))


def group_by_words(inputs: StrategyInput, words: WordLists, size: int, facts: dict[str, float | str]) -> StrategyResult:
    """Group the rows of a dataset whose random subsets of `size` words are equal."""
    rows = np.arange(len(inputs.dataset), dtype=np.int64)
    sampled = sample_shingles(words, inputs.text_of_row, rows, size=size, seed=inputs.seed, epoch=inputs.epoch)
    return group_by_shingle(inputs, shingle_ids(sampled), facts)


def group_by_shingle(
    inputs: StrategyInput,
    shingles: Indices,
    facts: dict[str, float | str],
    *,
    group_size: int | None = None,
    centroids: Vectors | None = None,
) -> StrategyResult:
    """Return the groups of `form_groups` for all rows of a dataset.

    Args:
        inputs: Dataset, settings, seed and epoch.
        shingles: (N,) shingle of each row; ALONE for a row that is a group by itself.
        facts: Values shown next to the plan.
        group_size: Maximum number of rows in a group; None for that of the config.
        centroids: (C, D) centroids from which the next epoch can start.
    """
    rows = np.arange(len(inputs.dataset), dtype=np.int64)
    size = group_size or inputs.config.group_size
    order, groups = form_groups(shingles, rows, group_size=size, seed=inputs.seed, epoch=inputs.epoch)
    return StrategyResult(order.astype(np.int32), groups, facts, centroids)


def row_random(rows: NDArray[np.integer], *, seed: int, epoch: int, stream: int) -> NDArray[np.uint64]:
    """Return a uniform 64-bit number for each row, uint64 (N,): splitmix64 keyed by seed, epoch and stream."""
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
    """Distinct word ids of each text: `flat[starts[t] : starts[t + 1]]` for text t."""

    flat: Ids  # (sum of lengths,), word ids >= 0
    starts: Indices  # int64 (T + 1,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of_length(cls, words: Ids) -> WordLists:
        """Build lists of equal length from words (T, w)."""
        texts, each = words.shape
        return cls(words.reshape(-1), np.arange(texts + 1, dtype=np.int64) * each)


def sample_shingles(
    words: WordLists, text_of_row: NDArray[np.integer], rows: Indices, *, size: int, seed: int, epoch: int
) -> Ids:
    """Sample t words of each row without replacement, by Floyd's algorithm.

    Args:
        words: Word lists of the texts.
        text_of_row: (N,) positions in `words`.
        rows: (N,) row numbers, which key the random numbers.
        size: Number of words to sample, t.
        seed: Seed of the run.
        epoch: Epoch of the plan.

    Returns:
        (N, t) word ids, ascending in each row; a text with fewer words gives all of them, padded with -1 in front.
    """
    starts = words.starts[text_of_row]  # (N,)
    lengths = words.starts[text_of_row + np.int64(1)] - starts
    positions = np.full((len(rows), size), -1, dtype=np.int32)
    for draw in range(size):
        highest = lengths - np.minimum(lengths, size) + draw  # sampled from 0 to this, inclusive
        active = draw < lengths
        random = row_random(rows, seed=seed, epoch=epoch, stream=draw)
        position = (random % (np.maximum(highest, 0) + 1).astype(np.uint64)).astype(np.int32)
        repeated = (positions[:, :draw] == position[:, None]).any(axis=1)
        positions[:, draw] = np.where(active, np.where(repeated, highest, position), -1)
    if not len(words.flat):
        return positions
    flat = np.minimum(starts[:, None] + np.maximum(positions, 0), len(words.flat) - 1)
    sampled: Ids = np.where(positions < 0, np.int32(-1), words.flat[flat])
    sampled.sort(axis=1)
    return sampled


def shingle_ids(sampled: Ids) -> Indices:
    """Number the distinct shingles, (N,); ALONE if empty.

    Args:
        sampled: (N, t) word ids from `sample_shingles`.
    """
    ids = sampled[:, 0].astype(np.int64)
    base = int(sampled.max(initial=0)) + 2
    for column in sampled.T[1:]:
        pairs = (ids + 1) * base + column + 1
        ids = np.unique(pairs, return_inverse=True)[1].astype(np.int64)  # renumbered, so that numbers stay small
    ids[(sampled < 0).all(axis=1)] = ALONE
    return ids


def form_groups(shingles: Indices, rows: Indices, *, group_size: int, seed: int, epoch: int) -> tuple[Indices, Ids]:
    """Group rows with equal shingles; groups have `group_size` rows, the last of each shingle may have fewer.

    Rows are sorted by (shingle, random number of the row) and cut where the shingle changes or the group is full
    (Algorithm 2); the groups are then shuffled by a random number of their first row.

    Args:
        shingles: (N,) shingle of each row.
        rows: (N,) row numbers, which key the random numbers.
        group_size: Maximum number of rows in a group.
        seed: Seed of the run.
        epoch: Epoch of the plan.

    Returns:
        The positions of the rows in plan order (N,), and group ids (N,) from 0 in that order.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    order, is_start = _sorted_by_shingle(shingles, rows, seed=seed, epoch=epoch)
    starts = np.flatnonzero(is_start)  # of each shingle
    index = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    first = np.flatnonzero(index % group_size == 0)  # (G,)
    sizes = np.diff(np.append(first, len(order)))
    random = row_random(rows[order[first]], seed=seed, epoch=epoch, stream=GROUP_STREAM)
    shuffled = np.argsort(random, kind="stable")
    sizes = sizes[shuffled]
    ends = np.cumsum(sizes)
    offsets = np.arange(len(order)) - np.repeat(ends - sizes, sizes)
    positions = order[np.repeat(first[shuffled], sizes) + offsets]
    return positions, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def _sorted_by_shingle(shingles: Indices, rows: Indices, *, seed: int, epoch: int) -> tuple[Indices, NDArray[np.bool_]]:
    """Return positions sorted by (shingle, random number, row), and bool (N,) where a shingle or single row starts."""
    upper = row_random(rows, seed=seed, epoch=epoch, stream=ORDER_STREAM) >> np.uint64(32)
    if len(shingles) and int(shingles.max(initial=0)) < 2**31 - 1:
        keys = ((shingles + 1).astype(np.uint64) << np.uint64(32)) | upper
        order = np.argsort(keys, kind="stable")
    else:
        order = np.lexsort((upper, shingles))
    ordered = shingles[order]
    is_start = np.ones(len(order), dtype=bool)
    is_start[1:] = (ordered[1:] != ordered[:-1]) | (ordered[1:] == ALONE)
    return order, is_start

"""Batches without conflicting rows.

Two rows conflict if they share a text, on either side, or a query, or if the document of one is a known positive of the
other's query: labeled in another row, or marked as a false negative.
"""

# M rows of the plan, N rows of the dataset, U distinct texts, A distinct queries (by text or id)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bsc_core.data import PairDataset
from bsc_core.errors import InputError
from bsc_core.types import Ids

Numeric = TypeVar("Numeric", int, NDArray[np.integer])
NO_CONFLICT = -1  # placeholder that conflicts with nothing
COPIED = 64  # values of a set that is merged with others; larger ones are shared by rows and batches
MAX_CONFLICT_IDS = 4  # of a row: query, document, negative, and the query's id
UNCHECKED_POSITIVES, MAX_POSITIVES_PER_ROW = 1_000_000, 10  # of saved conflicts
OPEN = 512  # batches that accept rows at a time; beyond that the oldest is closed


@dataclass(frozen=True, eq=False)
class Conflicts:
    """Conflicts of the rows of a dataset."""

    ids: NDArray[np.int64]  # (N, c), ids of the row's texts and of its query
    query_id: Ids  # (N,), query id of each row
    positives: Ids  # known positives: those of query a are `positives[starts[a] : starts[a + 1]]`
    starts: NDArray[np.int64]  # (A + 1,)

    def constraints(self, rows: Ids) -> list[Constraint]:
        """Return the constraint of each row; rows with a query or a text in common share its sets."""
        positives, queries = _Shared(self.starts, self.positives), _Shared(*self._queries_by_text)
        ids, query_id = self.ids[rows].tolist(), self.query_id[rows].tolist()
        constraints = []
        for row, query in zip(ids, query_id, strict=True):
            own = frozenset(row) if NO_CONFLICT not in row else frozenset(row) - {NO_CONFLICT}
            excluded = _merged([positives[query], *[queries[text] for text in row]])
            constraints.append(Constraint(own, own | {_member(query)}, excluded))
        return constraints

    def matches(self, rows: int, texts: int) -> bool:
        """Return whether the arrays can be those of a dataset with so many rows and texts."""
        arrays = (self.ids, self.query_id, self.positives, self.starts)
        if [array.ndim for array in arrays] != [2, 1, 1, 1] or any(array.dtype.kind not in "iu" for array in arrays):
            return False
        queries = len(self.starts) - 1
        return (
            len(self.ids) == len(self.query_id) == rows
            and self.ids.shape[1] <= MAX_CONFLICT_IDS
            and len(self.positives) <= UNCHECKED_POSITIVES + MAX_POSITIVES_PER_ROW * rows
            and queries <= rows
            and min(self.query_id.min(initial=0), self.positives.min(initial=0)) >= 0
            and self.query_id.max(initial=-1) < queries
            and self.positives.max(initial=-1) < texts
            and self.starts[:1].tolist() == [0]
            and self.starts[-1] == len(self.positives)
            and bool((np.diff(self.starts) >= 0).all())
        )

    @cached_property
    def _queries_by_text(self) -> tuple[NDArray[np.int64], Ids]:
        """Queries, as members, that have text t as a known positive: `queries[starts[t] : starts[t + 1]]`."""
        order = np.argsort(self.positives, kind="stable")
        queries = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))[order]
        starts = np.zeros(int(self.positives.max(initial=-1)) + 2, dtype=np.int64)
        np.cumsum(np.bincount(self.positives, minlength=len(starts) - 1), out=starts[1:])
        return starts, np.asarray(_member(queries), dtype=np.int32)

    @classmethod
    def of_dataset(cls, dataset: PairDataset) -> Conflicts:
        """Return all conflicts of a dataset."""
        dataset = dataset.join_sides()
        query_id = _query_ids(dataset)
        columns: list[NDArray[np.integer]] = [*dataset.text_columns, query_id.astype(np.int64) + len(dataset.texts)]
        ids = np.stack([column.astype(np.int64) for column in columns], axis=1)
        labeled = _pair_keys(dataset, query_id, dataset.document)[dataset.positive]
        return cls._with_positives(dataset, ids, query_id, np.concatenate([labeled, _marked(dataset, query_id)]))

    @classmethod
    def of_marked(cls, dataset: PairDataset) -> Conflicts:
        """Return the conflicts of marked false negatives only; rows that share a marked document conflict too."""
        dataset = dataset.join_sides()
        query_id = _query_ids(dataset)
        columns = [column.astype(np.int64) for column in dataset.text_columns[1:]]
        marked = dataset.marked_pairs[:, 1]
        ids = np.stack([np.where(np.isin(column, marked), column, NO_CONFLICT) for column in columns], axis=1)
        return cls._with_positives(dataset, ids, query_id, _marked(dataset, query_id))

    @classmethod
    def _with_positives(
        cls, dataset: PairDataset, ids: NDArray[np.int64], query_id: Ids, known: NDArray[np.int64]
    ) -> Conflicts:
        """Build from known: keys of queries with their positive documents, from `_pair_keys`."""
        queries, positives = np.divmod(np.unique(known), max(1, len(dataset.texts)))
        starts = np.zeros(int(query_id.max(initial=-1)) + 2, dtype=np.int64)
        np.cumsum(np.bincount(queries, minlength=len(starts) - 1), out=starts[1:])
        return cls(ids, query_id, positives.astype(np.int32), starts)


@dataclass(frozen=True)
class Constraint:
    """What a row, or several of a unit, add to a batch, and what may not be in the same batch.

    ids: ids of texts and queries, each of which may be in a batch once; members: these, and the queries as `_member`;
    excluded: sets of members that may not be in the batch, known positives of the queries and queries with the texts as
    known positives.
    """

    ids: frozenset[int]
    members: frozenset[int]
    excluded: tuple[frozenset[int], ...]


class _Shared(dict[int, frozenset[int]]):
    """The sets of consecutive values, each made when it is first used; empty for other numbers."""

    def __init__(self, starts: NDArray[np.int64], values: Ids) -> None:
        super().__init__()
        self._starts, self._values = starts.tolist(), values.tolist()

    def __missing__(self, number: int) -> frozenset[int]:
        inside = 0 <= number < len(self._starts) - 1
        found = frozenset(self._values[self._starts[number] : self._starts[number + 1]]) if inside else frozenset()
        self[number] = found
        return found


def _member(query: Numeric) -> Numeric:
    """Return the member of a query, a negative number, in contrast to ids."""
    return -2 - query


def _merged(sets: list[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Return the union of the small sets, and the large ones, which are not copied."""
    large = {id(one): one for one in sets if len(one) > COPIED}
    if not large:
        return (frozenset().union(*sets),)
    return (frozenset().union(*(one for one in sets if len(one) <= COPIED)), *large.values())


@dataclass
class _OpenBatch:
    """A batch that accepts rows: its positions, and the members that they add."""

    positions: list[int] = field(default_factory=list)
    members: set[int] = field(default_factory=set)

    def fits(self, constraint: Constraint) -> bool:
        members = self.members
        return members.isdisjoint(constraint.ids) and all(members.isdisjoint(one) for one in constraint.excluded)

    def add(self, positions: Iterable[int], constraint: Constraint) -> None:
        self.positions.extend(positions)
        self.members |= constraint.members


class _Window:
    """The open batches of a plan, and which of them contain each member; sets of batches are bits of a number."""

    def __init__(self) -> None:
        self.first = 0  # number of the first open batch
        self._start = 0  # number of the batch of bit 0
        self._with_room = 0
        self._containing: dict[int, int] = {}  # by member

    def close_first(self) -> None:
        """Close the first batch."""
        self._with_room &= ~(1 << (self.first - self._start))
        self.first += 1
        if self.first - self._start >= OPEN:  # drop the bits of closed batches
            closed = self.first - self._start
            self._start, self._with_room = self.first, self._with_room >> closed
            shifted = ((member, bits >> closed) for member, bits in self._containing.items())
            self._containing = {member: bits for member, bits in shifted if bits}

    def add(self, number: int, constraint: Constraint, *, is_full: bool) -> None:
        """Note that a batch, possibly a new one, contains the members of a constraint."""
        bit = 1 << (number - self._start)
        self._with_room = self._with_room & ~bit if is_full else self._with_room | bit
        for member in constraint.members:
            self._containing[member] = self._containing.get(member, 0) | bit

    def fitting(self, constraint: Constraint) -> Iterator[int]:
        """Yield the numbers of the batches with room that have no conflict with a constraint, the first ones first."""
        containing, conflicting = self._containing, 0
        for members in (constraint.ids, *constraint.excluded):
            smaller, larger = (members, containing) if len(members) <= len(containing) else (containing, members)
            for member in smaller:
                if member in larger:
                    conflicting |= containing[member]
        left = self._with_room & ~conflicting
        while left:
            lowest = left & -left
            left ^= lowest
            yield self._start + lowest.bit_length() - 1


def assign_without_conflicts(units: list[Ids], constraints: list[Constraint], batch_size: int) -> list[Ids]:
    """Assign positions to batches without conflicts; positions of a unit stay together where possible.

    Tries the units in order; if that leaves a single row, the units with the most shared ids first, then reverse order.

    Args:
        units: Positions of each unit.
        constraints: One for each position.
        batch_size: Maximum number of positions in a batch.

    Raises:
        InputError: No order works.
    """
    shared = Counter(key for constraint in constraints for key in constraint.ids)
    if len(constraints) > 1 and max(shared.values(), default=0) > len(constraints) // 2:
        raise _no_batch_left()  # each batch has at least two rows, and only one of these
    with suppress(InputError):
        return _assign(units, constraints, batch_size)
    most_shared_first = sorted(
        units, key=lambda unit: -sum(shared[key] for position in unit for key in constraints[position].ids)
    )
    with suppress(InputError):
        return _assign(most_shared_first, constraints, batch_size)
    return _assign(units[::-1], constraints, batch_size)


def _assign(units: list[Ids], constraints: list[Constraint], batch_size: int) -> list[Ids]:
    """Assign each unit, or its parts without inner conflicts, to the first open batch with room and no conflict.

    A batch with a single position takes another one from a larger batch, or joins one, which then has batch_size + 1.
    """
    batches: list[_OpenBatch] = []
    window = _Window()
    for piece in _without_inner_conflicts(units, constraints):
        combined = _union(piece, constraints)
        while window.first < len(batches) and (
            len(batches[window.first].positions) >= batch_size or len(batches) - window.first > OPEN
        ):
            window.close_first()
        fitting = (
            number for number in window.fitting(combined) if len(batches[number].positions) + len(piece) <= batch_size
        )
        number = next(fitting, len(batches))
        if number == len(batches):
            batches.append(_OpenBatch())
        batches[number].add(piece, combined)
        window.add(number, combined, is_full=len(batches[number].positions) >= batch_size)
    _fill_single(batches, constraints)
    return [np.asarray(batch.positions, dtype=np.int32) for batch in batches if batch.positions]


def _union(positions: Iterable[int], constraints: list[Constraint]) -> Constraint:
    chosen = [constraints[position] for position in positions]
    if len(chosen) == 1:
        return chosen[0]
    return Constraint(
        ids=frozenset().union(*(one.ids for one in chosen)),
        members=frozenset().union(*(one.members for one in chosen)),
        excluded=_merged([values for one in chosen for values in one.excluded]),
    )


def _without_inner_conflicts(units: list[Ids], constraints: list[Constraint]) -> Iterator[list[int]]:
    for unit in units:
        if len(unit) == 1:
            yield unit.tolist()
            continue
        pieces: list[_OpenBatch] = []
        for position in unit.tolist():
            piece = next((one for one in pieces if one.fits(constraints[position])), None)
            if piece is None:
                piece = _OpenBatch()
                pieces.append(piece)
            piece.add([position], constraints[position])
        yield from (piece.positions for piece in pieces)


def _fill_single(batches: list[_OpenBatch], constraints: list[Constraint]) -> None:
    """Move a fitting position from a larger batch into each batch with a single position, or merge it."""
    for single in [batch for batch in batches if len(batch.positions) == 1]:
        if len(batches) == 1 or len(single.positions) != 1:
            continue
        larger = (batch for batch in reversed(batches) if len(batch.positions) > 2)
        match = next(
            (
                (batch, position)
                for batch in larger
                for position in batch.positions
                if single.fits(constraints[position])
            ),
            None,
        )
        if match is None:
            _join(single, batches, constraints)
            continue
        batch, position = match
        others = [other for other in batch.positions if other != position]
        batch.positions.clear()
        batch.members = set()
        batch.add(others, _union(others, constraints))
        single.add([position], constraints[position])


def _join(single: _OpenBatch, batches: list[_OpenBatch], constraints: list[Constraint]) -> None:
    """Merge a batch of a single position into the smallest other batch without a conflict."""
    constraint = constraints[single.positions[0]]
    fitting = [one for one in batches if one is not single and one.positions and one.fits(constraint)]
    if not fitting:
        raise _no_batch_left()
    min(fitting, key=lambda batch: len(batch.positions)).add(single.positions, constraint)
    single.positions.clear()


def _no_batch_left() -> InputError:
    return InputError(
        "one row cannot be placed: every batch contains its text or query, or a pair marked as a false negative; "
        "set batching.no_duplicates = false, remove pairs from data.false_negatives, or add rows"
    )


def _query_ids(dataset: PairDataset) -> Ids:
    """Return the query id of each row, (N,), equal for rows with the same query text or query group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    texts = len(dataset.texts)
    nodes = texts + int(dataset.query_group.max(initial=-1)) + 1
    links = (np.ones(len(dataset), dtype=np.int8), (dataset.query, dataset.query_group + texts))
    _, component = connected_components(coo_array(links, shape=(nodes, nodes)), directed=False)
    _, query_id = np.unique(component[dataset.query], return_inverse=True)
    return np.asarray(query_id, dtype=np.int32)


def _pair_keys(dataset: PairDataset, query_id: Ids, document: Ids) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = query_id.astype(np.int64) * len(dataset.texts) + document
    return keys


def _marked(dataset: PairDataset, query_id: Ids) -> NDArray[np.int64]:
    texts, first = np.unique(dataset.query, return_index=True)
    marked = dataset.marked_pairs[np.isin(dataset.marked_pairs[:, 0], texts)]
    return _pair_keys(dataset, query_id[first[np.searchsorted(texts, marked[:, 0])]], marked[:, 1])

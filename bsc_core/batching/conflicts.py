"""Which rows may not meet in a batch, and how batches are dealt so that they do not.

Two rows conflict when they share a text, on either side, or a query, or when the document of one is known to answer the
query of the other: labelled so in another row, or marked by a person as a false negative.
"""

# M rows of the plan, N rows of the dataset, U distinct texts, A distinct queries (by text or id)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Ids
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

NOTHING = -1  # in place of a number that keeps no one away
OPEN = 512  # batches that wait for rows at a time; then the oldest is closed as it is


@dataclass(frozen=True, eq=False)
class Conflicts:
    """What each row is and what it must not meet.

    own: (N, c) numbers of the row's texts, and of its query; asker: (N,) which query asks; answers: the texts that
    answer query a are `answers[starts[a] : starts[a + 1]]`.
    """

    own: NDArray[np.int64]
    asker: Ids
    answers: Ids
    starts: NDArray[np.int64]

    def of(self, rows: Ids) -> list[Needs]:
        """What each of these rows needs of a batch."""
        own, asker = self.own[rows].tolist(), self.asker[rows].tolist()
        return [
            Needs(frozenset(row) - {NOTHING}, frozenset(self.answers[self.starts[one] : self.starts[one + 1]].tolist()))
            for row, one in zip(own, asker, strict=True)
        ]

    @classmethod
    def of_dataset(cls, dataset: PairDataset) -> Conflicts:
        """All conflicts of a dataset's rows."""
        asker = _askers(dataset)
        columns: list[NDArray[np.integer]] = [*dataset.text_columns, asker.astype(np.int64) + len(dataset.texts)]
        own = np.stack([column.astype(np.int64) for column in columns], axis=1)
        labelled = _numbers(dataset, asker, dataset.document)[dataset.positive]
        return cls._answered(dataset, own, asker, np.concatenate([labelled, _marks(dataset, asker)]))

    @classmethod
    def of_marks(cls, dataset: PairDataset) -> Conflicts:
        """The conflicts that a person marked alone; rows that share a marked document stay apart too."""
        asker = _askers(dataset)
        columns = [column.astype(np.int64) for column in dataset.text_columns[1:]]
        marked = dataset.marked_pairs[:, 1]
        own = np.stack([np.where(np.isin(column, marked), column, NOTHING) for column in columns], axis=1)
        return cls._answered(dataset, own, asker, _marks(dataset, asker))

    @classmethod
    def _answered(cls, dataset: PairDataset, own: NDArray[np.int64], asker: Ids, known: NDArray[np.int64]) -> Conflicts:
        """known: numbers of queries with the documents that answer them, as from `_numbers`."""
        asking, answers = np.divmod(np.unique(known), max(1, len(dataset.texts)))
        starts = np.zeros(int(asker.max(initial=-1)) + 2, dtype=np.int64)
        np.cumsum(np.bincount(asking, minlength=len(starts) - 1), out=starts[1:])
        return cls(own, asker, answers.astype(np.int32), starts)


@dataclass(frozen=True)
class Needs:
    """The numbers that a row brings into a batch, and the texts that may not be there beside it."""

    own: frozenset[int]
    answers: frozenset[int]


@dataclass
class _Open:
    """A batch that is being filled: its places, and what all of them bring and must not meet."""

    places: list[int] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    answers: set[int] = field(default_factory=set)

    def fits(self, needs: Needs) -> bool:
        return (
            self.own.isdisjoint(needs.own) and self.own.isdisjoint(needs.answers) and self.answers.isdisjoint(needs.own)
        )

    def add(self, places: Iterable[int], needs: Needs) -> None:
        self.places.extend(places)
        self.own |= needs.own
        self.answers |= needs.answers


def deal_apart(units: list[Ids], needs: list[Needs], batch_size: int) -> list[Ids]:
    """Places dealt to batches in which no two conflict.

    In the units' order; where that leaves a row alone, once more from the rows that share most, and then backwards.
    Raises InputError where no order helps. See `_deal`.
    """
    with suppress(InputError):
        return _deal(units, needs, batch_size)
    shared = Counter(number for need in needs for number in need.own)
    crowded = sorted(units, key=lambda unit: -sum(shared[number] for place in unit for number in needs[place].own))
    with suppress(InputError):
        return _deal(crowded, needs, batch_size)
    return _deal(units[::-1], needs, batch_size)


def _deal(units: list[Ids], needs: list[Needs], batch_size: int) -> list[Ids]:
    """Places dealt to batches in the order of the units.

    units: places that should stay together, which are parted where they conflict with each other; needs: of each place.
    Each unit goes to the first open batch with room and no conflict. A batch of a single place takes another from a
    batch that can spare one, or joins one, which then holds batch_size + 1. Raises InputError when a place conflicts
    with all others, so that it would stand alone.
    """
    batches: list[_Open] = []
    first_open = 0
    for piece in _without_inner_conflicts(units, needs):
        wanted = _together(piece, needs)
        while first_open < len(batches) and (
            len(batches[first_open].places) >= batch_size or len(batches) - first_open > OPEN
        ):
            first_open += 1
        open_ones = (one for one in batches[first_open:] if len(one.places) + len(piece) <= batch_size)
        batch = next((one for one in open_ones if one.fits(wanted)), None)
        if batch is None:
            batch = _Open()
            batches.append(batch)
        batch.add(piece, wanted)
    _give_company(batches, needs)
    return [np.asarray(batch.places, dtype=np.int32) for batch in batches if batch.places]


def _together(places: Iterable[int], needs: list[Needs]) -> Needs:
    """What several places need."""
    chosen = [needs[place] for place in places]
    if len(chosen) == 1:
        return chosen[0]
    return Needs(frozenset().union(*(one.own for one in chosen)), frozenset().union(*(one.answers for one in chosen)))


def _without_inner_conflicts(units: list[Ids], needs: list[Needs]) -> Iterator[list[int]]:
    """The units, parted into pieces of places that do not conflict with each other."""
    for unit in units:
        if len(unit) == 1:
            yield unit.tolist()
            continue
        pieces: list[_Open] = []
        for place in unit.tolist():
            piece = next((one for one in pieces if one.fits(needs[place])), None)
            if piece is None:
                piece = _Open()
                pieces.append(piece)
            piece.add([place], needs[place])
        yield from (piece.places for piece in pieces)


def _give_company(batches: list[_Open], needs: list[Needs]) -> None:
    """A batch of one place gets another from the last batch that can spare one which fits, or joins one."""
    for lonely in [batch for batch in batches if len(batch.places) == 1]:
        if len(batches) == 1 or len(lonely.places) != 1:
            continue
        rich = (batch for batch in reversed(batches) if len(batch.places) > 2)
        found = next(((one, place) for one in rich for place in one.places if lonely.fits(needs[place])), None)
        if found is None:
            _join(lonely, batches)
            continue
        batch, place = found
        left = [other for other in batch.places if other != place]
        batch.places.clear()
        batch.own, batch.answers = set(), set()
        batch.add(left, _together(left, needs))
        lonely.add([place], needs[place])


def _join(lonely: _Open, batches: list[_Open]) -> None:
    """Move the one place of a batch to the smallest other batch in which it has no conflict."""
    needs = Needs(frozenset(lonely.own), frozenset(lonely.answers))
    fitting = [one for one in batches if one is not lonely and one.places and one.fits(needs)]
    if not fitting:
        raise InputError(
            "for one row no batch was found: each shares a text or a query with it, or was marked; "
            "switch forbid_collisions off, take marks back, or give more rows"
        )
    min(fitting, key=lambda batch: len(batch.places)).add(lonely.places, needs)
    lonely.places.clear()


def _askers(dataset: PairDataset) -> Ids:
    """(N,) which query asks in each row: rows with one query text or one query group are asked by one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    texts = len(dataset.texts)
    nodes = texts + int(dataset.query_group.max(initial=-1)) + 1
    links = (np.ones(len(dataset), dtype=np.int8), (dataset.query, dataset.query_group + texts))
    _, component = connected_components(coo_array(links, shape=(nodes, nodes)), directed=False)
    _, asker = np.unique(component[dataset.query], return_inverse=True)
    return np.asarray(asker, dtype=np.int32)


def _numbers(dataset: PairDataset, asker: Ids, document: Ids) -> NDArray[np.int64]:
    """One number for each query with a document."""
    numbers: NDArray[np.int64] = asker.astype(np.int64) * len(dataset.texts) + document
    return numbers


def _marks(dataset: PairDataset, asker: Ids) -> NDArray[np.int64]:
    """The marked pairs as such numbers."""
    found = [
        _numbers(dataset, np.unique(asker[dataset.query == query]), np.array([document]))
        for query, document in dataset.marked_pairs.tolist()
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *found])

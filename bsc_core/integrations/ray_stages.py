"""The maps and reductions of a plan over Parquet files, as functions of Arrow tables; nothing here knows Ray.

Rows get a shingle (map), rows of one bucket of shingles form groups (reduce), and the groups of one range of draws,
sorted by them, are a shard (reduce). Every draw is a function of (seed, epoch, row), so the groups do not depend on how
the rows were dealt to machines.
"""

# N rows of a table, D dimensions

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from bsc_core.batching.shingles import ALONE, GROUP_STREAM, form_groups, row_random
from bsc_core.batching.words import COMMON, cut_words
from bsc_core.data.shards import Part
from bsc_core.integrations.ray_rows import VECTOR, Piece, RowSource
from bsc_core.integrations.ray_shingles import RowVectors, Shingle, Side

DOCUMENTS = 2**48  # added to the numbers of rows, so that documents come after all queries


@dataclass(frozen=True)
class Counted:
    """Pieces in, the number of kept rows of each out."""

    source: RowSource

    def __call__(self, pieces: pyarrow.Table) -> pyarrow.Table:
        counts = [self.source.count(piece) for piece in pieces_of(pieces)]
        return pieces.append_column("kept", [[count["kept"] for count in counts]]).append_column(
            "outside", [[count["outside"] for count in counts]]
        )


@dataclass(frozen=True)
class Shingled:
    """Pieces in, rows with their shingle and the bucket of it out."""

    source: RowSource
    shingle: Shingle
    buckets: int
    vectors: bool

    def __call__(self, pieces: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for piece in pieces_of(pieces):
            for table in self.source.tables(piece, vectors=self.vectors):
                shingles = self.shingle(table)
                bucket = hashed(shingles, self.buckets)
                lone = np.fromiter((not shingle for shingle in shingles), dtype=bool, count=len(shingles))
                bucket[lone] = table["row"].to_numpy()[lone] % self.buckets
                table = table.drop_columns([VECTOR]) if self.vectors else table
                named = pyarrow.array(shingles, type=pyarrow.large_string())
                yield table.append_column("shingle", named).append_column("bucket", pyarrow.array(bucket))


@dataclass(frozen=True)
class Grouped:
    """All rows of a bucket in, the same rows with their group's draw, their place in it and its shard out."""

    group_size: int
    seed: int
    epoch: int
    parts: int

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        table = table.sort_by("row")
        rows = table["row"].to_numpy()
        encoded = table["shingle"].combine_chunks().dictionary_encode()
        shingles = encoded.indices.to_numpy().astype(np.int64)
        names = encoded.dictionary.to_pylist()
        if "" in names:
            shingles[shingles == names.index("")] = ALONE
        order, groups = form_groups(shingles, rows, group_size=self.group_size, seed=self.seed, epoch=self.epoch)
        first = np.flatnonzero(np.diff(groups, prepend=-1))
        sizes = np.diff(np.append(first, len(groups)))
        draws = np.repeat(row_random(rows[order[first]], seed=self.seed, epoch=self.epoch, stream=GROUP_STREAM), sizes)
        part = (draws >> np.uint64(32)) * np.uint64(self.parts) >> np.uint64(32)  # equal ranges of draws, in order
        table = table.take(order).drop_columns(["shingle", "bucket"])
        table = table.append_column("draw", pyarrow.array(draws))
        table = table.append_column("place", pyarrow.array(np.arange(len(groups)) - np.repeat(first, sizes)))
        return table.append_column("part", pyarrow.array(part.astype(np.int64)))


@dataclass(frozen=True)
class Sharded:
    """All rows of a shard in, which are written in the order of their groups; what was written out."""

    folder: str
    write: Callable[[Path | str, int, pyarrow.Table], Part]

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        order = np.lexsort((table["place"].to_numpy(), table["draw"].to_numpy()))
        number = table["part"][0].as_py()
        table = table.take(order)
        groups = np.cumsum(table["place"].to_numpy() == 0) - 1
        table = table.drop_columns(["draw", "place", "part"]).add_column(1, "group", pyarrow.array(groups))
        part = self.write(self.folder, number, table)
        return pyarrow.Table.from_pylist([vars(part)])


@dataclass(frozen=True)
class SideTexts:
    """Pieces in, the distinct texts of the grouped side of each table with the bucket of each out."""

    source: RowSource
    by: Side
    buckets: int

    def __call__(self, pieces: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for piece in pieces_of(pieces):
            for table in self.source.tables(piece):
                texts = table[self.by].combine_chunks().unique()
                bucket = hashed(texts.to_pylist(), self.buckets)
                yield pyarrow.table({"text": texts, "bucket": pyarrow.array(bucket)})


def word_counts(table: pyarrow.Table) -> pyarrow.Table:
    """All texts of a bucket in, in how many of them each word stands out; the word "" stands for all of them."""
    texts = table["text"].combine_chunks().unique().to_pylist()
    lists, names = cut_words(texts)
    counts = np.bincount(lists.flat, minlength=len(names))
    told = {name: int(count) for name, count in zip(names, counts, strict=True) if count} | {"": len(texts)}
    return pyarrow.table(
        {
            "word": pyarrow.array(told, type=pyarrow.large_string()),
            "count": pyarrow.array(told.values(), type=pyarrow.int64()),
            "texts": pyarrow.array([len(texts)] * len(told), type=pyarrow.int64()),
        }
    )


def locally_common(table: pyarrow.Table) -> pyarrow.Table:
    """Words that are common in their bucket: a word that is common in all texts is so in one bucket at least."""
    return table.filter(table["count"].to_numpy() > COMMON * table["texts"].to_numpy())


@dataclass(frozen=True)
class OfWords:
    """Counts in, those of some words out."""

    words: frozenset[str]

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        return table.filter(pyarrow.compute.is_in(table["word"], pyarrow.array(sorted(self.words), table["word"].type)))


@dataclass(frozen=True)
class FirstRows:
    """Pieces in, texts with the place of each in the order of distinct texts and a row that has it out.

    The order is that of texts that are read whole: all queries, by the row of the first that has the text, then
    documents. A text that only stands on the other side has no row.
    """

    source: RowSource
    by: Side
    buckets: int

    def __call__(self, pieces: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for piece in pieces_of(pieces):
            for table in self.source.tables(piece):
                for side in ("query", "document") if self.by == "document" else ("query",):
                    rows = table["row"].to_numpy()
                    places = rows + (DOCUMENTS if side == "document" else 0)
                    columns = {
                        "text": table[side],
                        "place": pyarrow.array(places),
                        "own": pyarrow.array(rows, mask=np.full(len(rows), side != self.by)),
                        "bucket": pyarrow.array(hashed(table[side].to_pylist(), self.buckets)),
                    }
                    yield pyarrow.table(columns)


def first_rows(table: pyarrow.Table) -> pyarrow.Table:
    """All texts of a bucket in; for each of the grouped side its place and one row that has it out."""
    found = table.group_by("text").aggregate([("place", "min"), ("own", "min")])
    found = found.filter(pyarrow.compute.is_valid(found["own_min"]))
    return pyarrow.table({"place": found["place_min"], "row": found["own_min"]})


@dataclass(frozen=True)
class SampleVectors:
    """Pieces in, the vectors of chosen rows out. rows: ascending."""

    source: RowSource
    vectors: RowVectors
    rows: NDArray[np.int64]

    def __call__(self, pieces: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for piece in pieces_of(pieces):
            for table in self.source.tables(piece, vectors=self.vectors.encoder is None):
                chosen = table.filter(np.isin(table["row"].to_numpy(), self.rows))
                if chosen.num_rows:
                    vectors = self.vectors(chosen)
                    flat = pyarrow.array(vectors.reshape(-1))
                    yield pyarrow.table(
                        {
                            "row": chosen["row"],
                            VECTOR: pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
                        }
                    )


def pieces_of(table: pyarrow.Table) -> Iterator[Piece]:
    """The pieces in a table with the columns of `Piece`."""
    for told in table.select(["path", "row_group", "rows", "first"]).to_pylist():
        yield Piece(**told)


def hashed(names: list[Any], buckets: int) -> NDArray[np.int64]:
    """(N,) the bucket of each name, the same on every machine."""
    from pandas.util import hash_array

    found: NDArray[np.int64] = (hash_array(np.asarray(names, dtype=object)) % np.uint64(buckets)).astype(np.int64)
    return found

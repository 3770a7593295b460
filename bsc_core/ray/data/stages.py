"""Maps and reductions of a plan over Parquet files, as functions of Arrow tables that do not use Ray.

Rows get a shingle (map), the rows of a bucket of shingles form groups (reduce), and the groups with random numbers in
one range, sorted by them, form a shard (reduce). Random numbers are functions of (seed, epoch, row), so the groups do
not depend on how rows are distributed. `plan` binds the keyword arguments of a stage.
"""

# N rows of a table, C clusters, D dimensions

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow
import pyarrow.compute

from bsc_core.batching.strategies.clusters import assign
from bsc_core.batching.strategies.shingles import ALONE, GROUP_STREAM, form_groups, row_random, sample_shingles
from bsc_core.batching.strategies.words import COMMON, cut_words, without
from bsc_core.config import BatchingConfig, EncoderConfig
from bsc_core.data.io.shards import Shard
from bsc_core.errors import DataError, InputError
from bsc_core.neighbors import unit_rows
from bsc_core.ray.data.rows import VECTOR, Piece, RowSource
from bsc_core.types import Indices, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Side = Literal["query", "document"]
Shingle = Callable[[pyarrow.Table], list[str]]
RowVectors = Callable[[pyarrow.Table], Vectors]
DOCUMENT_OFFSET = 2**48  # added to row numbers, so that documents come after all queries


def word_shingles(
    table: pyarrow.Table, *, batching: BatchingConfig, stop_words: frozenset[str], seed: int, epoch: int
) -> list[str]:
    """Return the shingle of each row: a random subset of the words of its text without stop words, joined by spaces."""
    texts = table[batching.group_by].to_pylist()
    lists, names = cut_words(texts)
    stopped = np.fromiter((name in stop_words for name in names), dtype=bool, count=len(names))
    every_text = np.arange(len(texts), dtype=np.int32)
    rows = table["row"].to_numpy()
    sampled = sample_shingles(
        without(lists, stopped), every_text, rows, size=batching.shingle_size, seed=seed, epoch=epoch
    )  # (N, shingle_size)
    return [" ".join(sorted(names[word] for word in words if word >= 0)) for words in sampled.tolist()]


def cluster_shingles(table: pyarrow.Table, *, vectors: RowVectors, centroids: Vectors) -> list[str]:
    """Return the shingle of each row: the number of the nearest of the centroids, (C, D)."""
    return [str(cluster) for cluster in assign(vectors(table), centroids).tolist()]


def row_vectors(table: pyarrow.Table, *, batching: BatchingConfig, encoder: EncoderConfig | None) -> Vectors:
    """Return the vectors of the grouped side, (N, D): from the column `vector`, or from an encoder.

    Raises:
        DataError: Vectors have different lengths.
        InputError: Vectors contain a number that is not finite.
    """
    if encoder is None:
        vectors = _column_vectors(table)
    else:
        from bsc_core.encoders import encode, tokenize

        model = _model(encoder.model_dump_json())
        side = batching.group_by if encoder.has_prompts else None
        texts = table[batching.group_by].to_pylist()
        vectors = encode(model, tokenize(model, texts, encoder.max_seq_length, side=side))
    if not np.isfinite(vectors).all():
        raise InputError("vectors contain a number that is not finite; encode the texts again")
    return unit_rows(vectors) if batching.metric == "cosine" else vectors


@cache
def _model(encoder: str) -> SentenceTransformer:
    """Load the encoder once per worker process."""
    from bsc_core.encoders import load_encoder

    return load_encoder(EncoderConfig.model_validate_json(encoder))


def _column_vectors(table: pyarrow.Table) -> Vectors:
    column = table[VECTOR].combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    widths = pyarrow.compute.list_value_length(column)
    if column.null_count or len(pyarrow.compute.unique(widths)) > 1:
        raise DataError(
            f"column {VECTOR!r} contains vectors of different lengths or is empty in some rows; write it again"
        )
    vectors: Vectors = flat.reshape(len(column), -1)
    return vectors


def count_rows(pieces: pyarrow.Table, *, source: RowSource) -> pyarrow.Table:
    """Add to pieces their numbers of usable rows and of labels outside the scale."""
    counts = [source.count(piece) for piece in _pieces(pieces)]
    for name in ("usable", "outside"):
        pieces = pieces.append_column(name, [[count[name] for count in counts]])
    return pieces


def add_shingles(
    pieces: pyarrow.Table, *, source: RowSource, shingle: Shingle, buckets: int, vectors: bool
) -> Iterator[pyarrow.Table]:
    """Map pieces to rows with their shingle and its bucket."""
    for table in _tables(pieces, source, vectors=vectors):
        shingles = shingle(table)
        bucket = hash_buckets(shingles, buckets)
        empty = np.fromiter((not shingle for shingle in shingles), dtype=bool, count=len(shingles))
        bucket[empty] = table["row"].to_numpy()[empty] % buckets
        table = table.drop_columns([VECTOR]) if vectors else table
        column = pyarrow.array(shingles, type=pyarrow.large_string())
        yield table.append_column("shingle", column).append_column("bucket", pyarrow.array(bucket))


def group_rows(table: pyarrow.Table, *, group_size: int, seed: int, epoch: int, parts: int) -> pyarrow.Table:
    """Reduce the rows of a bucket to rows with their group's random number and shard, and their position in it."""
    table = table.sort_by("row")
    rows = table["row"].to_numpy()
    encoded = table["shingle"].combine_chunks().dictionary_encode()
    shingles = encoded.indices.to_numpy().astype(np.int64)
    names = encoded.dictionary.to_pylist()
    if "" in names:
        shingles[shingles == names.index("")] = ALONE
    order, groups = form_groups(shingles, rows, group_size=group_size, seed=seed, epoch=epoch)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(np.append(first, len(groups)))
    random = np.repeat(row_random(rows[order[first]], seed=seed, epoch=epoch, stream=GROUP_STREAM), sizes)
    # equal ranges of random numbers, in order
    part = (random >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)
    table = table.take(order).drop_columns(["shingle", "bucket"])
    table = table.append_column("random", pyarrow.array(random))
    table = table.append_column("position", pyarrow.array(np.arange(len(groups)) - np.repeat(first, sizes)))
    return table.append_column("part", pyarrow.array(part.astype(np.int64)))


def write_shard(
    table: pyarrow.Table, *, folder: str, write: Callable[[str, int, pyarrow.Table], Shard]
) -> pyarrow.Table:
    """Write the rows of a shard in the order of their groups, and return its description."""
    order = np.lexsort((table["position"].to_numpy(), table["random"].to_numpy()))
    number = table["part"][0].as_py()
    table = table.take(order)
    groups = np.cumsum(table["position"].to_numpy() == 0) - 1
    table = table.drop_columns(["random", "position", "part"]).add_column(1, "group", pyarrow.array(groups))
    return pyarrow.Table.from_pylist([vars(write(folder, number, table))])


def side_texts(pieces: pyarrow.Table, *, source: RowSource, by: Side, buckets: int) -> Iterator[pyarrow.Table]:
    """Map pieces to the distinct texts of their grouped side, with buckets."""
    for table in _tables(pieces, source):
        texts = table[by].combine_chunks().unique()
        yield pyarrow.table({"text": texts, "bucket": pyarrow.array(hash_buckets(texts.to_pylist(), buckets))})


def word_counts(table: pyarrow.Table) -> pyarrow.Table:
    """Reduce the texts of a bucket to the number of texts with each word; the word "" counts all texts."""
    texts = table["text"].combine_chunks().unique().to_pylist()
    lists, names = cut_words(texts)
    counts = np.bincount(lists.flat, minlength=len(names))
    totals = {name: int(count) for name, count in zip(names, counts, strict=True) if count} | {"": len(texts)}
    return pyarrow.table(
        {
            "word": pyarrow.array(totals, type=pyarrow.large_string()),
            "count": pyarrow.array(totals.values(), type=pyarrow.int64()),
            "texts": pyarrow.array([len(texts)] * len(totals), type=pyarrow.int64()),
        }
    )


def locally_common(table: pyarrow.Table) -> pyarrow.Table:
    """Select words that are common in their bucket: a word common in all texts is common in at least one bucket."""
    return table.filter(table["count"].to_numpy() > COMMON * table["texts"].to_numpy())


def select_words(table: pyarrow.Table, *, words: frozenset[str]) -> pyarrow.Table:
    """Select the counts of given words."""
    return table.filter(pyarrow.compute.is_in(table["word"], pyarrow.array(sorted(words), table["word"].type)))


def text_positions(pieces: pyarrow.Table, *, source: RowSource, by: Side, buckets: int) -> Iterator[pyarrow.Table]:
    """Map pieces to texts, with their position in the order of distinct texts and a row of the grouped side.

    The order is that of `read_pairs`: queries by their first row, then documents. The row of a text that occurs only on
    the other side is null.
    """
    for table in _tables(pieces, source):
        rows = table["row"].to_numpy()
        for side in ("query", "document") if by == "document" else ("query",):
            columns = {
                "text": table[side],
                "position": pyarrow.array(rows + (DOCUMENT_OFFSET if side == "document" else 0)),
                "row": pyarrow.array(rows, mask=np.full(len(rows), side != by)),
                "bucket": pyarrow.array(hash_buckets(table[side].to_pylist(), buckets)),
            }
            yield pyarrow.table(columns)


def first_rows(table: pyarrow.Table) -> pyarrow.Table:
    """Reduce the texts of a bucket to those of the grouped side, with their position and one row each."""
    distinct = table.group_by("text").aggregate([("position", "min"), ("row", "min")])
    distinct = distinct.filter(pyarrow.compute.is_valid(distinct["row_min"]))
    return pyarrow.table({"position": distinct["position_min"], "row": distinct["row_min"]})


def sample_vectors(
    pieces: pyarrow.Table, *, source: RowSource, vectors: RowVectors, rows: Indices
) -> Iterator[pyarrow.Table]:
    """Map pieces to the vectors of given rows (ascending)."""
    for table in _tables(pieces, source, vectors=source.with_vectors):
        sampled = table.filter(np.isin(table["row"].to_numpy(), rows))
        if sampled.num_rows:
            values = vectors(sampled)
            flat = pyarrow.array(values.reshape(-1))
            column = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
            yield pyarrow.table({"row": sampled["row"], VECTOR: column})


def _pieces(table: pyarrow.Table) -> Iterator[Piece]:
    for values in table.select(["path", "row_group", "rows", "first"]).to_pylist():
        yield Piece(**values)


def _tables(pieces: pyarrow.Table, source: RowSource, *, vectors: bool = False) -> Iterator[pyarrow.Table]:
    for piece in _pieces(pieces):
        yield from source.tables(piece, vectors=vectors)


def hash_buckets(names: list[Any], buckets: int) -> Indices:
    """Return the bucket of each name, (N,), the same on every machine."""
    from pandas.util import hash_array

    buckets_of: Indices = (hash_array(np.asarray(names, dtype=object)) % np.uint64(buckets)).astype(np.int64)
    return buckets_of

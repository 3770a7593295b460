"""Batch plans for data larger than memory: the strategies `words` and `clusters` with Ray Data over Parquet files.

Rows are read in pieces, get a shingle, are grouped by shingle, and are written as shards in the order of the plan,
which training streams. The groups equal those of `build_plan` on the same rows. Each CPU of a node has one bucket of
shingles or one shard in memory; all nodes need the files under the same paths.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.strategies.clusters import cluster_count, fit_centroids, sample_positions
from bsc_core.batching.strategies.words import COMMON, FEW, cut_words
from bsc_core.config import BatchingConfig, RunConfig
from bsc_core.data.io.shards import (
    Shard,
    Shards,
    check_free,
    new_shards_folder,
    open_shards,
    write_manifest,
    write_part,
)
from bsc_core.errors import ConfigError, DataError
from bsc_core.ray.data import stages
from bsc_core.ray.data.cluster import cluster
from bsc_core.ray.data.rows import VECTOR, Piece, RowSource, parquet_pieces, row_source
from bsc_core.training.data import NEEDS_ALL_ROWS, trains_on_negatives
from bsc_core.types import Vectors

PART_ROWS = 250_000
MAX_TASKS = 1000

Report = Callable[[str], object]


def plan_with_ray(
    config: RunConfig,
    out: Path | str,
    *,
    epoch: int = 0,
    address: str | None = None,
    part_rows: int = PART_ROWS,
    say: Report = lambda sentence: None,
) -> Shards:
    """Plan an epoch over a Parquet file or folder of files, `config.data.train`, and write it as shards.

    The strategy `clusters` uses the column `vector` of the files, the vector of each row's grouped side, or else the
    encoder. If an error is raised, `out` is not created.

    Args:
        config: The run's config.
        out: Folder to create.
        epoch: Number of the epoch.
        address: HOST:PORT of a Ray head; None starts a cluster on this machine.
        part_rows: Approximate number of rows in a shard and in a bucket of shingles.
        say: Called with progress messages.

    Returns:
        The shards.

    Raises:
        ConfigError: The strategy is not supported, or a data setting needs all rows at once.
        PathError: `out` exists.
        InputError: No Ray head answers at the address.
        RunError: A disk is full, or a task failed.
    """
    _check(config)
    check_free(out)
    pieces = parquet_pieces(config.data.train)
    source = row_source(config.data, pieces, positives_only=not trains_on_negatives(config))
    with new_shards_folder(out) as folder, cluster(address) as ray:
        pipeline = _Pipeline(ray, config, source, epoch, part_rows, say)
        pipeline.number(pieces)
        parts = pipeline.write(pipeline.shingle(), folder)
        write_manifest(folder, parts, source.columns, pipeline.about())
    return open_shards(out)


def _check(config: RunConfig) -> None:
    strategy = config.batching.strategy
    if strategy not in ("words", "clusters"):
        raise ConfigError(
            f"batching.strategy is {strategy}; shards need words or clusters, which handle each row by itself"
        )
    for name in NEEDS_ALL_ROWS:
        if getattr(config.data, name):
            raise ConfigError(
                f"data.{name} is set; shards contain the rows unchanged, so write the prepared data as Parquet first"
            )


class _Pipeline:
    """The passes over the files, each a small Ray Data pipeline."""

    def __init__(self, ray: Any, config: RunConfig, source: RowSource, epoch: int, part_rows: int, say: Report) -> None:
        self.ray, self.source, self.epoch, self.say = ray, source, epoch, say
        self.batching: BatchingConfig = config.batching
        self.config, self.seed = config, config.training.seed
        self.part_rows = part_rows
        self.pieces: list[Piece] = []
        self.rows = 0
        self.counts: dict[str, Any] = {}

    @property
    def buckets(self) -> int:
        """Number of buckets of a reduction, and of shards."""
        return max(1, -(-self.rows // self.part_rows))

    def number(self, pieces: Sequence[Piece]) -> None:
        """Number the usable rows of all pieces, by counting those of each."""
        self.say(f"Counting the rows of {len(pieces)} pieces")
        counted = self._map(partial(stages.count_rows, source=self.source), pieces).take_all()
        by_piece = {(row["path"], row["row_group"]): row for row in counted}
        outside, total = sum(row["outside"] for row in counted), sum(piece.rows for piece in pieces)
        low, high = self.source.scale
        if 2 * outside > total:
            raise DataError(
                f"{self.config.data.train}: {outside:,} of {total:,} labels are outside {low:g} to {high:g}; "
                "set label_min and label_max to the scale of the files"
            )
        for piece in pieces:
            self.pieces.append(replace(piece, first=self.rows))
            self.rows += by_piece[piece.path, piece.row_group]["usable"]
        if self.rows < 2:
            raise DataError(
                f"{self.config.data.train}: {self.rows} of its {total:,} rows can be used; check its columns, "
                "labels and splits"
            )
        self.counts["rejected"] = total - self.rows

    def shingle(self) -> Any:
        """Return the rows with their shingle, as a lazy Ray dataset."""
        is_words = self.batching.strategy == "words"
        return self._map(
            partial(
                stages.add_shingles,
                source=self.source,
                shingle=self._word_shingles() if is_words else self._cluster_shingles(),
                buckets=self.buckets,
                vectors=self.source.with_vectors and not is_words,
            )
        )

    def write(self, shingled: Any, folder: Path) -> list[Shard]:
        """Form the groups and write them as shards, in the order of the plan."""
        self.say(f"Forming the groups of {self.rows:,} rows and writing {self.buckets} shards")
        group_size, seed = self.batching.group_size, self.seed
        group = partial(stages.group_rows, group_size=group_size, seed=seed, epoch=self.epoch, parts=self.buckets)
        write = partial(stages.write_shard, folder=str(folder), write=write_part)
        written = self._reduce(self._reduce(shingled, group), write, "part").take_all()
        return sorted((Shard(**values) for values in written), key=lambda part: part.file)

    def about(self) -> dict[str, Any]:
        """Return the manifest's description of the plan."""
        fields = ("strategy", "group_size", "group_by", "shingle_size", "clusters")
        settings = self.batching.model_dump(include=set(fields))
        return {**settings, "seed": self.seed, "epoch": self.epoch, "source": self.config.data.train, **self.counts}

    def _word_shingles(self) -> stages.Shingle:
        words = self.batching.stop_words
        stop_words = self._frequent_words() if words is None else frozenset(cut_words(words)[1])
        return partial(
            stages.word_shingles, batching=self.batching, stop_words=stop_words, seed=self.seed, epoch=self.epoch
        )

    def _frequent_words(self) -> frozenset[str]:
        """Return the most frequent of the common words, as `bsc_core.batching.strategies.words.stop_words`."""
        if not self.batching.stop_count:
            return frozenset()
        self.say("Counting the texts of each word")
        counts = self._reduce(self._map(self._of_side(stages.side_texts)), stages.word_counts).materialize()
        common = {row["word"] for row in _map_batches(counts, stages.locally_common).take_all()}
        select = partial(stages.select_words, words=frozenset(common | {""}))
        totals: dict[str, int] = {}
        for row in _map_batches(counts, select).take_all():
            totals[row["word"]] = totals.get(row["word"], 0) + row["count"]
        limit = max(COMMON * totals.pop(""), FEW)
        frequent = sorted((word for word in totals if totals[word] > limit), key=lambda word: (-totals[word], word))
        return frozenset(frequent[: self.batching.stop_count])

    def _cluster_shingles(self) -> stages.Shingle:
        encoder = None if self.source.with_vectors else self.config.encoder
        vectors = partial(stages.row_vectors, batching=self.batching, encoder=encoder)
        return partial(stages.cluster_shingles, vectors=vectors, centroids=self._centroids(vectors))

    def _centroids(self, vectors: stages.RowVectors) -> Vectors:
        """Fit centroids to the same sample of the distinct texts as the strategy `clusters`."""
        self.say("Finding the distinct texts")
        distinct = self._reduce(self._map(self._of_side(stages.text_positions)), stages.first_rows)
        positions, rows = _columns(distinct, "position", "row")
        rows = rows[np.argsort(positions)]  # (T,), a row of each distinct text
        clusters = cluster_count(self.batching.clusters, len(rows))
        sampled = rows[sample_positions(len(rows), clusters, seed=self.seed)]
        self.say(f"Fitting {clusters} centroids to {len(sampled):,} vectors")
        sample_stage = partial(stages.sample_vectors, source=self.source, vectors=vectors, rows=np.sort(sampled))
        result, sample = _columns(self._map(sample_stage), "row", VECTOR)
        order = np.argsort(result)[np.searchsorted(np.sort(result), sampled)]
        return fit_centroids(np.ascontiguousarray(sample[order]), clusters, seed=self.seed)

    def _of_side(self, stage: Callable[..., Any]) -> Callable[..., Any]:
        return partial(stage, source=self.source, by=self.batching.group_by, buckets=self.buckets)

    def _map(self, stage: Callable[..., Any], pieces: Sequence[Piece] | None = None) -> Any:
        items = [asdict(piece) for piece in (self.pieces if pieces is None else pieces)]
        dataset = self.ray.data.from_items(items, override_num_blocks=min(len(items), MAX_TASKS))
        return _map_batches(dataset, stage, batch_size=1)

    def _reduce(self, dataset: Any, stage: Callable[..., Any], key: str = "bucket") -> Any:
        return dataset.groupby(key, num_partitions=self.buckets).map_groups(stage, batch_format="pyarrow")


def _map_batches(dataset: Any, stage: Callable[..., Any], batch_size: int | None = None) -> Any:
    return dataset.map_batches(stage, batch_size=batch_size, batch_format="pyarrow")


def _columns(dataset: Any, *names: str) -> Iterator[NDArray[Any]]:
    """Yield complete columns of a Ray dataset; a list column becomes a matrix."""
    batches = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
    for name in names:
        yield np.concatenate(
            [np.stack(batch[name]) if batch[name].dtype == object else batch[name] for batch in batches]
        )

"""Batch plans past one machine's memory: the strategies `words` and `clusters` as a Ray Data pipeline over Parquet.

The rows are read piece by piece, get a shingle, meet the rows of their shingle in one reduction, and are written as
shards in the order of the plan, which training then streams. The groups are those of `build_plan` on the same rows. A
machine holds one bucket of shingles, or one shard, for each of its processors; all of them must see the files under
the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Vectors
from bsc_core.batching.clusters import fit_centroids, sample_places
from bsc_core.batching.words import COMMON, FEW, cut_words
from bsc_core.config import BatchingConfig, RunConfig
from bsc_core.data.shards import Part, Shards, check_new, new_folder, open_shards, write_manifest, write_part
from bsc_core.errors import ConfigError, DataError, InputError
from bsc_core.integrations.ray_cluster import cluster
from bsc_core.integrations.ray_rows import VECTOR, Piece, RowSource, parquet_pieces, row_source
from bsc_core.integrations.ray_shingles import ClusterShingles, RowVectors, Shingle, WordShingles
from bsc_core.integrations.ray_stages import (
    Counted,
    FirstRows,
    Grouped,
    OfWords,
    SampleVectors,
    Sharded,
    Shingled,
    SideTexts,
    first_rows,
    locally_common,
    word_counts,
)
from bsc_core.training.rows import keeps_negatives

PART_ROWS = 250_000
MOST_TASKS = 1000
WHOLE_DATA = ("mix", "remedies", "examples", "negatives", "nli")

Say = Callable[[str], object]


def plan_with_ray(
    config: RunConfig,
    out: Path | str,
    *,
    epoch: int = 0,
    address: str | None = None,
    part_rows: int = PART_ROWS,
    say: Say = lambda sentence: None,
) -> Shards:
    """Write the plan of an epoch over the Parquet file, or folder of files, `config.data.train` as shards into `out`.

    address: of a Ray head; None starts a cluster on this machine for the time it takes. part_rows: about how many rows
    a shard, and a bucket of shingles, holds. Vectors for `clusters` are the column `vector` of the files, for the
    grouped side of each row, else the encoder's. Raises ConfigError for another strategy or data that must be prepared
    whole, PathError when `out` is there already, InputError when the address does not answer, and RunError when
    a disk is full; then nothing is left.
    """
    _check(config)
    check_new(out)
    pieces = parquet_pieces([config.data.train])
    source = row_source(config.data, pieces, positives_only=not keeps_negatives(config))
    with new_folder(out) as folder, cluster(address) as ray:
        pipeline = _Pipeline(ray, config, source, epoch, part_rows, say)
        pipeline.number(pieces)
        parts = pipeline.write(pipeline.shingle(), folder)
        write_manifest(folder, parts, source.columns, pipeline.about())
    return open_shards(out)


def _check(config: RunConfig) -> None:
    strategy = config.batching.strategy
    if strategy not in ("words", "clusters"):
        raise ConfigError(
            f"batching.strategy is {strategy}; shards are made by words or clusters, which need no other row"
        )
    for name in WHOLE_DATA:
        if getattr(config.data, name):
            raise ConfigError(
                f"data.{name}: shards are made of the rows as they are; write the prepared data as Parquet first"
            )


class _Pipeline:
    """The passes over the files, each a small Ray Data pipeline."""

    def __init__(self, ray: Any, config: RunConfig, source: RowSource, epoch: int, part_rows: int, say: Say) -> None:
        self.ray, self.source, self.epoch, self.say = ray, source, epoch, say
        self.batching: BatchingConfig = config.batching
        self.config, self.seed = config, config.training.seed
        self.part_rows = part_rows
        self.pieces: list[Piece] = []
        self.rows = 0
        self.facts: dict[str, Any] = {}

    @property
    def buckets(self) -> int:
        """Buckets of a reduction, and shards."""
        return max(1, -(-self.rows // self.part_rows))

    def number(self, pieces: Sequence[Piece]) -> None:
        """First pass: how many rows of each piece are kept, which numbers them."""
        self.say(f"Counting the rows of {len(pieces)} pieces")
        counted = self._map(Counted(self.source), pieces).take_all()
        by_piece = {(told["path"], told["row_group"]): told for told in counted}
        outside, whole = sum(told["outside"] for told in counted), sum(piece.rows for piece in pieces)
        low, high = self.source.scale
        if 2 * outside > whole:
            raise DataError(
                f"{self.config.data.train}: {outside:,} of {whole:,} labels are outside {low:g} to {high:g}; "
                "set label_min and label_max to the scale of the files"
            )
        for piece in pieces:
            self.pieces.append(replace(piece, first=self.rows))
            self.rows += by_piece[piece.path, piece.row_group]["kept"]
        if self.rows < 2:
            raise DataError(
                f"{self.config.data.train}: {self.rows} of its {whole:,} rows can be trained on; check its columns, "
                "labels and splits"
            )
        self.facts["rejected"] = whole - self.rows

    def shingle(self) -> Any:
        """Rows with their shingle, as a Ray dataset that is not computed yet."""
        shingle, vectors = self._words() if self.batching.strategy == "words" else self._clusters()
        return self._map(Shingled(self.source, shingle, self.buckets, vectors))

    def write(self, shingled: Any, folder: Path) -> list[Part]:
        """Form the groups and write them as shards, in the order of the plan."""
        self.say(f"Forming the groups of {self.rows:,} rows and writing {self.buckets} shards")
        grouped = self._reduce(shingled, Grouped(self.batching.group_size, self.seed, self.epoch, self.buckets))
        written = self._reduce(grouped, Sharded(str(folder), write_part), "part").take_all()
        return sorted((Part(**told) for told in written), key=lambda part: part.file)

    def about(self) -> dict[str, Any]:
        """What the manifest says of the plan."""
        fields = ("strategy", "group_size", "by", "shingle_size", "clusters")
        chosen = self.batching.model_dump(include=set(fields))
        return {**chosen, "seed": self.seed, "epoch": self.epoch, "source": self.config.data.train, **self.facts}

    def _words(self) -> tuple[Shingle, bool]:
        batching = self.batching
        given = batching.stop_words
        stopped = self._frequent() if given is None else frozenset(cut_words(given)[1])
        return WordShingles(batching.by, batching.shingle_size, stopped, self.seed, self.epoch), False

    def _frequent(self) -> frozenset[str]:
        """The stop words of `bsc_core.batching.words.stop_words`: the most frequent of the common words."""
        if not self.batching.stop_count:
            return frozenset()
        self.say("Counting in how many texts each word stands")
        texts = self._map(SideTexts(self.source, self.batching.by, self.buckets))
        counts = self._reduce(texts, word_counts).materialize()
        common = {told["word"] for told in _arrow(counts, locally_common).take_all()}
        totals: dict[str, int] = {}
        for told in _arrow(counts, OfWords(frozenset(common | {""}))).take_all():
            totals[told["word"]] = totals.get(told["word"], 0) + told["count"]
        limit = max(COMMON * totals.pop(""), FEW)
        found = sorted((word for word in totals if totals[word] > limit), key=lambda word: (-totals[word], word))
        return frozenset(found[: self.batching.stop_count])

    def _clusters(self) -> tuple[Shingle, bool]:
        encoder = None if self.source.with_vectors else self.config.encoder
        vectors = RowVectors(self.batching.by, self.batching.metric, encoder)
        centroids = self._centroids(vectors)
        return ClusterShingles(vectors, centroids), encoder is None

    def _centroids(self, vectors: RowVectors) -> Vectors:
        """Centroids of a sample of the distinct texts, the one that the strategy `clusters` draws."""
        clusters = self.batching.clusters
        self.say("Finding the distinct texts")
        found = self._reduce(self._map(FirstRows(self.source, self.batching.by, self.buckets)), first_rows)
        places, rows = _columns(found, "place", "row")
        rows = rows[np.argsort(places)]  # (T,), a row of each distinct text
        if clusters > len(rows):
            raise InputError(
                f"clusters is {clusters} and there are {len(rows)} distinct texts to cluster; "
                f"choose at most {len(rows)}"
            )
        chosen = rows[sample_places(len(rows), clusters, seed=self.seed)]
        self.say(f"Fitting {clusters} centroids to {len(chosen):,} vectors")
        own, sample = _columns(self._map(SampleVectors(self.source, vectors, np.sort(chosen))), "row", VECTOR)
        place = np.argsort(own)[np.searchsorted(np.sort(own), chosen)]
        return fit_centroids(np.ascontiguousarray(sample[place]), clusters, seed=self.seed)

    def _map(self, stage: Callable[..., Any], pieces: Sequence[Piece] | None = None) -> Any:
        items = [asdict(piece) for piece in (self.pieces if pieces is None else pieces)]
        dataset = self.ray.data.from_items(items, override_num_blocks=min(len(items), MOST_TASKS))
        return _arrow(dataset, stage, batch_size=1)

    def _reduce(self, dataset: Any, stage: Callable[..., Any], key: str = "bucket") -> Any:
        groups = dataset.groupby(key, num_partitions=self.buckets)
        return groups.map_groups(_named(stage), batch_format="pyarrow")


def _arrow(dataset: Any, stage: Callable[..., Any], batch_size: int | None = None) -> Any:
    return dataset.map_batches(_named(stage), batch_size=batch_size, batch_format="pyarrow")


def _named(stage: Callable[..., Any]) -> Callable[..., Any]:
    return partial(_call, stage)


def _call(stage: Callable[..., Any], table: Any) -> Any:
    return stage(table)


def _columns(dataset: Any, *names: str) -> Iterator[NDArray[Any]]:
    """Whole columns of a Ray dataset; a list column becomes a matrix."""
    batches = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
    for name in names:
        yield np.concatenate(
            [np.stack(batch[name]) if batch[name].dtype == object else batch[name] for batch in batches]
        )

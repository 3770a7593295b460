"""The shingle of each row of an Arrow table: random words of its text, or the number of its cluster."""

# N rows of a table, C clusters, D dimensions

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow
import pyarrow.compute

from bsc_core.batching.arrays import Vectors
from bsc_core.batching.clusters import assign
from bsc_core.batching.knn import unit_rows
from bsc_core.batching.shingles import draw_shingles
from bsc_core.batching.words import cut_words, without
from bsc_core.config import EncoderConfig
from bsc_core.errors import DataError, InputError
from bsc_core.integrations.ray_rows import VECTOR

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Side = Literal["query", "document"]
Shingle = Callable[[pyarrow.Table], list[str]]


@dataclass(frozen=True)
class WordShingles:
    """A random subset of `size` of each text's words that are no stop words, joined by a space; "" for none."""

    by: Side
    size: int
    stop_words: frozenset[str]
    seed: int
    epoch: int

    def __call__(self, table: pyarrow.Table) -> list[str]:
        texts = table[self.by].to_pylist()
        lists, names = cut_words(texts)
        stopped = np.fromiter((name in self.stop_words for name in names), dtype=bool, count=len(names))
        everyone = np.arange(len(texts), dtype=np.int32)
        rows = table["row"].to_numpy()
        drawn = draw_shingles(
            without(lists, stopped), everyone, rows, size=self.size, seed=self.seed, epoch=self.epoch
        )  # (N, size)
        return [" ".join(sorted(names[word] for word in words if word >= 0)) for words in drawn.tolist()]


@dataclass(frozen=True)
class ClusterShingles:
    """The number of the nearest centroid. centroids: (C, D)."""

    vectors: RowVectors
    centroids: Vectors

    def __call__(self, table: pyarrow.Table) -> list[str]:
        return [str(cluster) for cluster in assign(self.vectors(table), self.centroids).tolist()]


@dataclass(frozen=True)
class RowVectors:
    """The vectors of the grouped side: column `vector`, or with an encoder those that it gives the texts."""

    by: Side
    metric: Literal["cosine", "l2"]
    encoder: EncoderConfig | None

    def __call__(self, table: pyarrow.Table) -> Vectors:
        """(N, D). Raises DataError for vectors of unequal length, InputError where a number is not finite."""
        vectors = _column_vectors(table) if self.encoder is None else self._encoded(table[self.by].to_pylist())
        if not np.isfinite(vectors).all():
            raise InputError("vectors hold a number that is not finite; encode again, clusters are undefined")
        return unit_rows(vectors) if self.metric == "cosine" else vectors

    def _encoded(self, texts: list[str]) -> Vectors:
        from bsc_core.encoders import encode, tokenise

        assert self.encoder is not None
        model = _model(self.encoder.model_dump_json())
        vectors: Vectors = encode(model, tokenise(model, texts, self.encoder.max_length))
        return vectors


@cache
def _model(encoder: str) -> SentenceTransformer:
    """The encoder of a worker process, loaded once."""
    from bsc_core.encoders import load_encoder

    return load_encoder(EncoderConfig.model_validate_json(encoder))


def _column_vectors(table: pyarrow.Table) -> Vectors:
    column = table[VECTOR].combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    widths = pyarrow.compute.list_value_length(column)
    if column.null_count or len(pyarrow.compute.unique(widths)) > 1:
        raise DataError(f"column {VECTOR!r} holds vectors of several lengths, or none in some rows; write it anew")
    vectors: Vectors = flat.reshape(len(column), -1)
    return vectors

"""Training data of a run: the rows that the loss trains on, in memory or streamed from shards."""

# B rows of a batch, W rows of a window

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.batching.shards import ShardedPlan
from bsc_core.config import (
    BSCLossConfig,
    MNRLConfig,
    RunConfig,
    SoftmaxLossConfig,
    SupConLossConfig,
    single_losses,
)
from bsc_core.data.dataset import PairDataset
from bsc_core.data.decisions import contradicted_rows, decided_rows, read_decisions, with_decisions
from bsc_core.data.generation.negatives import triplets
from bsc_core.data.io.shards import Shards, open_shards
from bsc_core.data.io.sources import open_source
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import DataError, PathError
from bsc_core.files import atomic_write
from bsc_core.formatting import plural
from bsc_core.paths import check_path
from bsc_core.types import Ids, Mask

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow

    from bsc_core.runs import Run
    from bsc_core.training.loop.distributed import Distributed

WINDOW = 16_384
SAMPLE = 1024
_NUMERIC = ("row", "group", "label")
NEEDS_ALL_ROWS = ("mix", "filters", "examples", "negatives", "nli")
"""Keys of `data` that need all rows in memory."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Data of a run."""

    splits: DatasetSplits  # train, dev and test; where the pairs are streamed, `train` is a sample
    train: PairDataset  # the rows of `splits.train` that the loss trains on
    stream: PairStream | None = None  # the streamed training pairs, or None

    @property
    def row_count(self) -> int:
        """Number of training rows."""
        return len(self.train if self.stream is None else self.stream)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of all rows with everything that training reads of them; of streamed shards, their sizes."""
        digest = hashlib.sha256(self.train.digest.encode())
        for name, part in {**self.splits.splits, "corpus": self.splits.corpus}.items():
            if part is not None and name != "train":
                digest.update(f"{name} {part.digest}".encode())
        if self.stream is not None:
            digest.update(self.stream.signature.encode())
        return digest.hexdigest()


def is_streamed(config: RunConfig) -> bool:
    """Return whether the training pairs are streamed.

    They are if they are shards that are read in order, with a dev file, and no setting needs all rows at once.
    Other shards are read into memory.
    """
    needs_all = any(getattr(config.data, name) for name in NEEDS_ALL_ROWS) or config.batching.no_duplicates
    ordered = config.batching.strategy == "sequential" and config.data.dev is not None
    needs_all = needs_all or config.loss.guide is not None or config.data.text_identity == "normalized"
    return ordered and not needs_all and open_source(config.data.train).format == "shards"


class PairStream:
    """Training pairs in shards, of which one window is in memory at a time.

    Raises:
        FileFormatError: The shards are incomplete.
        DataError: They contain rows that the loss does not train on.
    """

    def __init__(self, config: RunConfig, window: int = WINDOW) -> None:
        self.config = config
        self.decisions = read_decisions(config.data.false_negatives) if config.data.false_negatives else []
        shards = open_shards(config.data.train)
        self.plan = ShardedPlan(shards, config.batching.keep_groups, window, self._used_rows(shards))
        sample = replace(self.sample, decided_positives=None)  # no row is added to shards
        if len(select_training_rows(config, sample)) != len(sample):
            self._refuse()

    def __len__(self) -> int:
        return len(self.plan)

    @cached_property
    def sample(self) -> PairDataset:
        """The first pairs, used where a run inspects its training pairs."""
        return self._pairs(next(batch for batch in self.plan.rows(at_once=SAMPLE) if len(batch)))

    @property
    def signature(self) -> str:
        """Identity of the pairs without reading them: sizes and origin of the shards, and the decisions."""
        shards = self.plan.shards
        return repr((shards.parts, sorted(shards.columns.items()), sorted(shards.about.items()), self.decisions))

    def count_batches(self, batch_size: int) -> int:
        """Return the number of batches of an epoch, without reading the texts."""
        return sum(len(batches) for _, batches in self.plan.windows(batch_size, columns=("group",)))

    def windows(self, batch_size: int) -> Iterator[tuple[PairDataset, list[Ids]]]:
        """Yield the pairs of each window with a table of their texts, and the rows of its batches."""
        for table, batches in self.plan.windows(batch_size):
            yield self._pairs(table), batches

    def _used_rows(self, shards: Shards) -> Mask | None:
        """Return bool (rows,), False for the rows that the decisions remove; None without decisions.

        As in `select_training_rows`. All texts are read once.
        """
        if not self.decisions:
            return None
        used = []
        for batch in shards.batches():
            pairs = self._pairs(batch)
            trained = ~contradicted_rows(pairs)
            used.append(trained if trains_on_negatives(self.config) else trained & pairs.positive)
        rows = np.concatenate(used)
        if rows.sum() < 2:
            left = plural(int(rows.sum()), "training pair")
            raise DataError(f"{self.config.data.train}: the decisions leave {left}; a batch needs at least 2")
        return rows

    def _pairs(self, table: pyarrow.Table | pyarrow.RecordBatch) -> PairDataset:
        data = self.config.data
        columns = {name: table[name].to_pylist() for name in table.schema.names if name not in _NUMERIC}
        labels = None
        if "label" in table.schema.names:
            raw = table["label"].to_numpy(zero_copy_only=False)
            labels = ((raw - data.label_min) / (data.label_max - data.label_min)).astype(np.float32)
        pairs = PairDataset.from_pairs(
            columns["query"],
            columns["document"],
            labels,
            query_ids=columns.get("query_id"),
            negatives=columns.get("negative"),
            threshold=data.threshold,
        )
        if not trains_on_negatives(self.config) and pairs.has_negatives:
            self._refuse()
        pairs = pairs.separate_sides() if data.separate_sides else pairs
        return with_decisions(pairs, self.decisions) if self.decisions else pairs

    def _refuse(self) -> None:
        raise DataError(
            f"{self.config.data.train}: the shards contain rows that {self.config.loss.name} does not train on; "
            "write them with `bsc shard` from a config with this loss, its labels and its negatives"
        )


def select_training_rows(config: RunConfig, train: PairDataset) -> PairDataset:
    """Return the rows that the loss trains on.

    These are all rows; only the positive ones with `loss.labeled_negatives = false`; triplets where the loss needs a
    negative for each query. Decisions remove and add rows, see `decided_rows`.

    Raises:
        DataError: The data lack what the loss needs: labels, classes, negatives, a positive pair, or a second row.
    """
    source, needs = config.data.train, config.loss.needs
    if "labels" in needs and train.label is None:
        raise DataError(
            f"{source}: {config.loss.name} learns from labels, and these pairs have none; name the column in "
            "data.columns.label, or choose a loss for positives only, such as bsc"
        )
    if "classes" in needs:
        _check_classes(config, train)
    if "negatives" in needs:
        train = triplets(train)
    losses = single_losses(config.loss)
    if any(isinstance(loss, BSCLossConfig | MNRLConfig) for loss in losses) and not train.positive.any():
        raise DataError(
            f"{source}: no pair has a label above threshold {config.data.threshold:g}; "
            "lower data.threshold or check label_min and label_max"
        )
    train = decided_rows(train)
    if not trains_on_negatives(config):
        train = train.take(np.flatnonzero(train.positive).astype(np.int32))
    if len(np.unique(np.concatenate(train.text_columns))) == 1:
        raise DataError(f"{source}: all texts of the training pairs are equal; check the columns")
    if len(train) < 2:
        raise DataError(f"{source}: one training pair is left; a batch needs at least 2")
    if config.batching.single_source and train.source is not None:
        numbers, counts = np.unique(train.source, return_counts=True)
        for number in numbers[counts == 1].tolist():
            raise DataError(
                f"file {number + 1} of the training pairs: one training pair is left; set batching.single_source = "
                "false, or add rows"
            )
    return train


def trains_on_negatives(config: RunConfig) -> bool:
    """Return whether rows labeled negative are trained on. Only a run with a single loss can leave them out."""
    return any(getattr(loss, "labeled_negatives", True) for loss in single_losses(config.loss))


def _check_classes(config: RunConfig, train: PairDataset) -> None:
    source = config.data.train
    if train.classes is None:
        raise DataError(
            f"{source}: {config.loss.name} learns from classes, and these pairs have none; name the column in "
            "data.columns.class_label"
        )
    present, highest = np.unique(train.classes), int(train.classes.max())
    for loss in single_losses(config.loss):
        if isinstance(loss, SupConLossConfig) and loss.positive_class not in present:
            raise DataError(
                f"{source}: no training pair is of class {loss.positive_class} (entailment), which supcon uses as "
                "anchors; check the class column, or set loss.positive_class"
            )
        if isinstance(loss, SoftmaxLossConfig) and len(present) == 1:
            raise DataError(
                f"{source}: all training pairs are of class {present[0]}, and softmax needs at least 2 "
                "classes; check the class column"
            )
        if isinstance(loss, SoftmaxLossConfig | SupConLossConfig) and highest >= loss.num_classes:
            raise DataError(
                f"{source}: class {highest} does not fit a head of {loss.num_classes} classes; "
                "raise loss.num_classes or correct the class column"
            )


def with_copied_decisions(config: RunConfig, run: Run, distributed: Distributed) -> RunConfig:
    """Return the config with the run's copy of the decisions about false negatives, created now if there is none.

    Later decisions apply only to new runs. Where the file is missing or may not be read, the config is
    unchanged, and reading the data reports it.
    """
    source = config.data.false_negatives
    if source is None:
        return config
    copied = distributed.on_main(lambda: _copy_false_negatives(source, run.false_negatives_file(source)))
    return config.model_copy(update={"data": run.data_config(config.data)}) if copied else config


def _copy_false_negatives(source: str, target: Path) -> bool:
    """Copy the decisions unless the run has a copy. Returns whether it has one that BSC_ROOTS allows it to read."""
    try:
        check_path(target.parents[1])
        if not target.is_file() and check_path(source).is_file():
            atomic_write(target, check_path(source).read_bytes())
    except PathError:
        return False
    return target.is_file()

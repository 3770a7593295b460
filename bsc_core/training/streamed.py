"""Training on more pairs than fit into memory: the batches of a folder of shards, read window by window."""

# B rows of a batch, W rows of a window

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers import SentenceTransformer
from torch import nn

from bsc_core.batching.arrays import Ids
from bsc_core.batching.shards import ShardedPlan
from bsc_core.config import RunConfig
from bsc_core.data.marks import read_marks, with_marks
from bsc_core.data.pairs import PairDataset
from bsc_core.data.shards import is_shards, open_shards
from bsc_core.encoders.tokens import tokenise
from bsc_core.errors import DataError
from bsc_core.training.rows import keeps_negatives, training_rows
from bsc_core.training.trainer import Start, Trainer

if TYPE_CHECKING:
    import pyarrow

WINDOW = 16_384
SAMPLE = 1024
WHOLE_DATA = ("mix", "remedies", "examples", "negatives", "nli")


def streams(config: RunConfig) -> bool:
    """Whether the training pairs are streamed: shards in their own order, with a dev file, and nothing to be done that
    needs all rows at once. Other shards are read whole."""
    whole = any(getattr(config.data, name) for name in WHOLE_DATA) or config.batching.forbid_collisions
    ordered = config.batching.strategy == "sequential" and config.data.dev is not None
    return ordered and not whole and is_shards(config.data.train)


class PairStream:
    """The training pairs of a config that `streams`, of which some thousands are held at a time.

    Raises FileFormatError when the shards are not whole, DataError when they hold rows that the loss does not train on.
    """

    def __init__(self, config: RunConfig, window: int = WINDOW) -> None:
        self.config = config
        self.plan = ShardedPlan(open_shards(config.data.train), config.batching.keep_groups, window)
        self.marks = read_marks(config.data.false_negatives) if config.data.false_negatives else []
        if len(training_rows(config, self.sample)) != len(self.sample):
            self._refuse()

    def __len__(self) -> int:
        return len(self.plan)

    @cached_property
    def sample(self) -> PairDataset:
        """The first pairs, which stand for all where a run looks at its training pairs."""
        return self._pairs(next(self.plan.shards.batches(rows=SAMPLE)))

    @property
    def told(self) -> str:
        """What tells these pairs from others without reading them: the shards' sizes and what made them, the marks."""
        shards = self.plan.shards
        return repr((shards.parts, sorted(shards.columns.items()), sorted(shards.about.items()), self.marks))

    def batches(self, batch_size: int) -> int:
        """Batches of an epoch, counted without reading the texts."""
        return sum(len(places) for _, places in self.plan.windows(batch_size, columns=("group",)))

    def windows(self, batch_size: int) -> Iterator[tuple[PairDataset, list[Ids]]]:
        """The pairs of a window on a table of their own texts, and the rows in it of each batch."""
        for table, places in self.plan.windows(batch_size):
            yield self._pairs(table), places

    def _pairs(self, table: pyarrow.Table | pyarrow.RecordBatch) -> PairDataset:
        data = self.config.data
        told = {name: table[name].to_pylist() for name in table.schema.names if name not in ("row", "group", "label")}
        labels = None
        if "label" in table.schema.names:
            raw = table["label"].to_numpy(zero_copy_only=False)
            labels = ((raw - data.label_min) / (data.label_max - data.label_min)).astype(np.float32)
        pairs = PairDataset.from_pairs(
            told["query"],
            told["document"],
            labels,
            query_ids=told.get("query_id"),
            negatives=told.get("negative"),
            threshold=data.threshold,
        )
        if not keeps_negatives(self.config) and pairs.has_negatives:
            self._refuse()
        return with_marks(pairs, self.marks) if self.marks else pairs

    def _refuse(self) -> None:
        raise DataError(
            f"{self.config.data.train}: the shards hold rows that {self.config.loss.name} does not train on as they "
            "are; write them with `bsc shard` from a config with this loss, its labels and its negatives"
        )


class StreamedTrainer(Trainer):
    """As `Trainer`, but its pairs and their tokens are those of the window that the step is in.

    The shards hold one plan, so each epoch has the same batches.
    """

    fixed_tokens = False

    def __init__(
        self, model: SentenceTransformer, loss: nn.Module, *, stream: PairStream, start: Start | None = None
    ) -> None:
        self.stream, self.max_length = stream, stream.config.encoder.max_length
        super().__init__(
            model,
            loss,
            dataset=stream.sample,
            tokens=tokenise(model, stream.sample.texts.texts, self.max_length),
            config=stream.config.training,
            plan_for=lambda epoch: self,
            start=start,
        )

    def batches(self, batch_size: int) -> StreamedBatches:
        """The batches of an epoch, read as they are asked for."""
        return StreamedBatches(self, batch_size)


class StreamedBatches:
    """The batches of an epoch; before the first of a window, the window becomes the trainer's."""

    def __init__(self, trainer: StreamedTrainer, batch_size: int) -> None:
        self.trainer, self.batch_size = trainer, batch_size
        self._count = trainer.stream.batches(batch_size)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ids]:
        trainer = self.trainer
        for pairs, batches in trainer.stream.windows(self.batch_size):
            trainer.dataset = pairs
            trainer.forward.use_tokens(tokenise(trainer.encoder, pairs.texts.texts, trainer.max_length))
            yield from batches

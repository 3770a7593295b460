"""Samplers: the batches of each epoch, from a plan in memory or from shards."""

# U distinct texts, D dimensions, T texts that a plan compares, n texts of a half

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bsc_core.batching import NEED_VECTORS, BatchPlan, build_plan, compared_texts, plan_collisions
from bsc_core.config import RunConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.data.generation.negatives import row_negatives, with_negatives
from bsc_core.encoders.tokens import TokenTable, tokenize
from bsc_core.files import map_array
from bsc_core.neighbors import unit_rows
from bsc_core.training.data import PairStream, TrainingData
from bsc_core.training.embeddings import Embeddings
from bsc_core.training.loop.trainer import Batches, Sampler, TrainerState
from bsc_core.types import Ids, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from bsc_core.training.run_logger import RunLogger

UNMOVED = 0.02
"""Mean squared change of vectors, as a share of their mean squared length, up to which the other half is not encoded
again; for vectors of length 1 this is a mean cosine of 0.99."""


class Miner(Protocol):
    """Mines the negatives of the training rows again; see `bsc_core.preparation.repeated_mining`."""

    texts: Ids  # (T,) the texts whose vectors are compared

    def negatives(self, vectors: Vectors) -> Ids:
        """Return the text id of the negative of each row, (N,).

        Args:
            vectors: (U, D) current vectors of the texts.
        """
        ...


def make_sampler(
    config: RunConfig,
    data: TrainingData,
    embeddings: Embeddings,
    log: RunLogger,
    resume: TrainerState | None,
    guide: Vectors | None = None,
    miner: Miner | None = None,
) -> Sampler:
    """Return the sampler of a run: shards where the data are streamed, else one plan per epoch.

    A streamed run has neither guide nor miner.

    Args:
        config: Config of the run.
        data: Training data, streamed or in memory.
        embeddings: Vectors of the model in training, from which batches are planned.
        log: Receives the plans.
        resume: State of the checkpoint that training resumes from; None for a new run.
        guide: (U, G) vectors of the guide of the loss; None without one.
        miner: Mines negatives again every `data.negatives.refresh_epochs` epochs; None for fixed negatives.
    """
    if data.stream is not None:
        return ShardSampler(data.stream, embeddings.model)
    planned = 0 if resume is None else resume.epoch
    return PlanSampler(config, data.train, embeddings, log, planned=planned, guide=guide, miner=miner)


class CustomSampler:
    """Batches that a function returns for each epoch, counted from 0."""

    def __init__(
        self,
        dataset: PairDataset,
        tokens: TokenTable,
        batches: Callable[[int], Batches],
        step_vectors: Vectors | None = None,
        guide: Vectors | None = None,
    ) -> None:
        self.dataset, self.tokens, self.batches = dataset, tokens, batches
        self.step_vectors, self.guide = step_vectors, guide
        self.fixed_tokens = True


class PlanSampler:
    """Batches of pairs in memory, from one plan per epoch.

    The main process builds a plan from the current vectors, writes it into the run folder and shares it.

    planned: number of epochs whose plans are in the run folder, for a resumed run. guide: (U, G) vectors of the guide.
    miner: replaces the negatives every `data.negatives.refresh_epochs` epochs.
    """

    def __init__(
        self,
        config: RunConfig,
        train: PairDataset,
        embeddings: Embeddings,
        log: RunLogger,
        *,
        planned: int = 0,
        guide: Vectors | None = None,
        miner: Miner | None = None,
    ) -> None:
        self.guide, self.miner, self.mined_from = guide, miner, train
        self.config, self.dataset, self.embeddings, self.log, self.planned = config, train, embeddings, log, planned
        self.tokens, self.step_vectors, self.fixed_tokens = embeddings.tokens, embeddings.from_steps, True
        self.plan: BatchPlan | None = None
        self.compared = self._load_compared(planned)  # (U, D)

    def batches(self, epoch: int) -> list[Ids]:
        """Return the batches of an epoch, counted from 0; equal in every process."""
        if self.miner is not None:
            negatives = self.log.distributed.on_main(lambda: self._load_or_mine(epoch))
            self.dataset = self.mined_from if negatives is None else with_negatives(self.mined_from, negatives)
        self.plan = self.log.distributed.on_main(lambda: self._load_or_build(epoch))
        return self.plan.batches(self.config.training.batch_size)

    def _load_or_mine(self, epoch: int) -> Ids | None:
        """Return the negatives of an epoch, (N,), mined now where the epoch is due; None for those of the data."""
        settings, run = self.config.data.negatives, self.log.run
        every = None if settings is None else settings.refresh_epochs
        if self.miner is None or every is None or epoch < every:
            return None
        if epoch % every or epoch < self.planned:
            return run.mined_negatives(epoch + 1)
        before = run.mined_negatives(epoch)
        before = row_negatives(self.mined_from) if before is None else before
        with self.log.timed("plan"):
            evaluated = self.config.evaluation.each_epoch
            vectors = self.embeddings.current if evaluated else self.embeddings.encode(self.miner.texts)
            negatives = self.miner.negatives(vectors)
            run.write_mined_negatives(epoch + 1, negatives)
        changed, number = int((negatives != before).sum()), int((negatives >= 0).sum())
        self.log.say(
            f"Epoch {epoch + 1}: mined with the current model; {changed:,} of {number:,} negatives have changed"
        )
        return negatives

    def _load_or_build(self, epoch: int) -> BatchPlan:
        path = self.log.run.plan_file(epoch + 1)
        if epoch < self.planned:
            return BatchPlan.load(path, self.dataset)
        with self.log.timed("plan"):
            self._refresh_vectors(epoch)
            plan = build_plan(
                self.config.batching,
                self.dataset,
                self.compared,
                seed=self.config.training.seed,
                epoch=epoch,
                previous=self.plan,
            )
            path.parent.mkdir(exist_ok=True)
            plan.save(path)
            batches = plan.batches(self.config.training.batch_size)
            self.log.plan(epoch + 1, *plan_collisions(self.dataset, batches), plan)
        return plan

    def _refresh_vectors(self, epoch: int) -> None:
        """Update the vectors that plans compare to those of the current model, every `refresh_epochs` epochs.

        Where no evaluation has encoded all texts after the epoch, only the texts that plans compare are encoded.
        """
        batching = self.config.batching
        evaluated = self.config.evaluation.each_epoch and not self.config.training.merges
        if batching.strategy not in NEED_VECTORS or epoch % batching.refresh_epochs:
            return
        if epoch and batching.refresh == "reuse" and self.embeddings.from_steps is not None:
            self.compared = self.embeddings.from_steps.copy()
        elif epoch and not evaluated:
            self.compared = self._encode_compared(epoch)
        else:
            self.compared = self.embeddings.current
        if batching.refresh_epochs > 1 or (batching.refresh == "encode" and not evaluated):
            self._save_compared(epoch)

    def _encode_compared(self, epoch: int) -> Vectors:
        """Encode the texts that plans compare, (U, D): one half, and the other half only if the first has moved.

        The two halves, sampled with the run's seed, alternate, so that no vector is older than one refresh.
        """
        batching = self.config.batching
        texts = compared_texts(batching, self.dataset)  # (T,)
        order = np.random.default_rng(self.config.training.seed).permutation(len(texts))
        turn = epoch // batching.refresh_epochs % 2
        half, rest = texts[np.sort(order[turn::2])], texts[np.sort(order[1 - turn :: 2])]
        vectors, before = self.embeddings.encode(half), self.compared
        moved = None if before is None else _moved(before[half], vectors[half], unit=batching.metric == "cosine")
        if before is not None and moved is not None and moved <= UNMOVED:
            vectors[rest] = before[rest]
            self.log.say(
                f"Epoch {epoch + 1}: {len(half):,} texts were encoded again; the mean squared change of their vectors "
                f"is {moved:.4f} of the mean squared norm; the other {len(rest):,} were not re-encoded"
            )
        else:
            vectors[rest] = self.embeddings.encode(rest)[rest]
        return vectors

    def _save_compared(self, epoch: int) -> None:
        """Write the compared vectors for a resumed run, and delete those that no checkpoint needs."""
        assert self.compared is not None
        self.log.run.write_array(f"plans/vectors-{epoch + 1:03d}", self.compared)
        for path in list(self._compared_files())[: -1 - self.config.training.save_total_limit]:
            path.unlink()

    def _load_compared(self, epochs: int) -> Vectors | None:
        """Return the vectors that the last of so many plans compared, (U, D), if the run saved them."""
        paths = [path for path, number in self._compared_files().items() if number <= epochs]
        return np.array(map_array(paths[-1])) if paths else None

    def _compared_files(self) -> dict[Path, int]:
        return self.log.run.numbered_plans("vectors-*.npy")


class ShardSampler:
    """Batches of shards, one window of pairs in memory; each epoch has the same batches."""

    def __init__(self, stream: PairStream, model: SentenceTransformer) -> None:
        self.stream, self.model = stream, model
        self.step_vectors: Vectors | None = None
        self.guide: Vectors | None = None
        self.fixed_tokens = False
        self._load_window(stream.sample)

    def batches(self, epoch: int) -> StreamedBatches:
        """Return the batches of an epoch, read while iterating."""
        return StreamedBatches(self, self.stream.config.training.batch_size)

    def _load_window(self, pairs: PairDataset) -> None:
        self.dataset = pairs
        self.tokens = tokenize(self.model, pairs.texts, self.stream.config.encoder.max_seq_length)


class StreamedBatches:
    """Batches of an epoch of shards. Before the first batch of a window, the sampler loads its pairs."""

    def __init__(self, sampler: ShardSampler, batch_size: int) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        self._count = sampler.stream.count_batches(batch_size)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ids]:
        for pairs, batches in self.sampler.stream.windows(self.batch_size):
            self.sampler._load_window(pairs)
            yield from batches


def _moved(before: Vectors, after: Vectors, *, unit: bool) -> float | None:
    """Return the mean squared change of rows as a share of their mean squared length; None if all rows are 0.

    unit: scale rows to length 1 first.
    """
    if unit:
        before, after = unit_rows(before), unit_rows(after)  # (n, D)
    length = float(np.square(after).sum())
    return float(np.square(after - before).sum()) / length if length else None

"""A few steps of a run, taken to time them: the run's own data, encoder, loss and trainer, and nothing kept."""

# B rows of a batch, N rows, U distinct texts, D dimensions

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import psutil

from bsc_core.batching import NEED_VECTORS, build_plan
from bsc_core.batching.arrays import Ids
from bsc_core.config import RunConfig
from bsc_core.data import SPLIT_SEED, ExperimentData
from bsc_core.data.experiment import load_beside
from bsc_core.encoders import encode, tokenise
from bsc_core.encoders.compiled import compile_encoder
from bsc_core.preflight.oddities import Measured, oddities
from bsc_core.preflight.report import Preflight, Say
from bsc_core.preflight.starting import starting_encoder
from bsc_core.preparation.prepare import load_experiment
from bsc_core.runs import RunStore
from bsc_core.training.beginning import begin_loss, begin_model
from bsc_core.training.checkpoint import save_checkpoint
from bsc_core.training.memory import peak_memory_bytes
from bsc_core.training.precision import autocast, resolve_precision
from bsc_core.training.refusals import check_options
from bsc_core.training.rows import training_rows
from bsc_core.training.seeding import seed_everything, set_threads
from bsc_core.training.streamed import PairStream, streams
from bsc_core.training.trainer import StepReport, Trainer

STAGES = 6
TEXTS_TIMED = 256
ROWS_PLANNED = 20_000
"""Of more rows the plan of so many is timed, and the time is scaled by the square of their number."""


@dataclass(frozen=True)
class _Batches:
    """The batches of the probe, as a plan deals them."""

    rows: tuple[Ids, ...]

    def batches(self, batch_size: int) -> list[Ids]:
        return list(self.rows)


class Probe:
    """One config, looked at from the data to a checkpoint. Raises what the run would be refused with."""

    def __init__(self, config: RunConfig, store: RunStore, say: Say) -> None:
        single = config.training.model_copy(update={"seeds": ()})
        self.config, self.store, self.say = config.model_copy(update={"training": single}), store, say
        self.took: dict[str, float] = {}

    def report(self, steps: int) -> Preflight:
        """Everything the probe finds, `steps` steps timed."""
        set_threads(self.config.training.threads)
        seed_everything(self.config.training.seed)
        self._prepare()
        self.say(2, STAGES, "timing the encoder")
        self.took["encode"] = self._encoding_seconds()
        self.say(3, STAGES, "planning an epoch")
        total, epochs = self._length(self._plan())
        self.say(4, STAGES, f"taking {steps} steps")
        trainer, reports = self._take(steps)
        self.took["step"] = statistics.median(report.seconds for report in reports[1:])
        self.say(5, STAGES, "writing a checkpoint")
        checkpoint = self._checkpoint_bytes(trainer, reports[-1])
        found = self._measured(trainer, self._disk_bytes(checkpoint, epochs), checkpoint)
        return Preflight(
            rows=self.rows,
            texts=len(self.data.texts),
            tokens=int(self.tokens.lengths.sum()),
            steps=total,
            epochs=epochs,
            steps_timed=len(reports) - 1,
            step_seconds=self.took["step"],
            pairs_per_second=reports[-1].pairs / self.took["step"],
            seconds=self._seconds(total, epochs),
            memory_bytes=found.memory_bytes,
            memory_free_bytes=found.memory_free_bytes,
            disk_bytes=found.disk_bytes - checkpoint,
            disk_free_bytes=found.disk_free_bytes,
            device=str(trainer.accelerator.device),
            precision=self.precision,
            loss=reports[-1].loss,
            odd=(*self.told, *oddities(found, self.store)),
        )

    def _length(self, batches: int) -> tuple[int, int]:
        """Steps and epochs of the run, whose epochs have so many batches."""
        training = self.config.training
        each = math.ceil(batches / training.accumulation)
        total = training.steps or training.epochs * each
        return total, math.ceil(total / each)

    def _seconds(self, total: int, epochs: int) -> dict[str, float]:
        """Expected time of each part of the run."""
        training, evaluation = self.config.training, self.config.evaluation
        looks = 1 + (epochs if evaluation.each_epoch else 1) + self._looks_for_plans(epochs)
        saved = epochs + total // (training.checkpoint_steps or total + 1)
        return {
            "start": self.took["start"],
            "encode": self.took["encode"] * looks,
            "plan": self.took["plan"] * math.ceil(epochs / self.config.batching.refresh_epochs),
            "train": self.took["step"] * total,
            "checkpoint": self.took["checkpoint"] * saved,
        }

    def _measured(self, trainer: Trainer, disk_bytes: int, checkpoint: int) -> Measured:
        memory = peak_memory_bytes(trainer.accelerator.device)
        return Measured(
            config=self.config,
            data=self.data,
            train=self.train,
            lengths=self.tokens.lengths,
            batches=tuple(self.drawn),
            memory_bytes=memory,
            memory_free_bytes=self._memory_free(memory),
            disk_bytes=disk_bytes + checkpoint,  # one is written beside those that are kept
            disk_free_bytes=shutil.disk_usage(self.store.root).free,
        )

    def _prepare(self) -> None:
        """Data, encoder, loss and tokens, as the run makes them."""
        with self._timed("start"):
            self.say(0, STAGES, "reading the data")
            check_options(self.config)
            encoder, told = starting_encoder(self.config, self.store)
            self.told = list(told)
            self.stream = PairStream(self.config) if streams(self.config) else None
            self.data: ExperimentData = (
                load_experiment(self.config.data, seed=SPLIT_SEED)
                if self.stream is None
                else load_beside(self.stream.sample, self.config.data)
            )
            self.train = training_rows(self.config, self.data.train)
            self.rows = len(self.train) if self.stream is None else len(self.stream)
            self.say(1, STAGES, "loading the encoder")
            self.model = begin_model(self.config.model_copy(update={"encoder": encoder}), self.store, None)
            width = self.model.get_embedding_dimension()
            self.loss = begin_loss(self.config, width, None, self.told.append)
            self.precision = resolve_precision(self.config.training.precision, self.model.device)
            self.tokens = tokenise(self.model, self.data.texts.texts, encoder.max_length)
            if self.config.training.compile:
                self.say(1, STAGES, "compiling the encoder")
                compile_encoder(self.model, self.tokens)

    def _encoding_seconds(self) -> float:
        """Seconds to encode every distinct text once, from some of them drawn at random."""
        number = min(TEXTS_TIMED, len(self.tokens))
        some = np.random.default_rng(0).choice(len(self.tokens), number, replace=False)
        with autocast(self.precision, self.model.device):
            encode(self.model, self.tokens, some[:8])  # what is made once, such as casts and threads, is not counted
            began = time.perf_counter()
            encode(self.model, self.tokens, some)
        share = self.tokens.lengths.sum() / max(1, self.tokens.lengths[some].sum())
        return float((time.perf_counter() - began) * share)

    def _plan(self) -> int:
        """Time one plan on vectors at random, which costs as much as on the encoder's. Returns batches of an epoch."""
        size, batching = self.config.training.batch_size, self.config.batching
        rows = self.train.take(np.arange(min(len(self.train), ROWS_PLANNED), dtype=np.int32))
        vectors = None
        if batching.strategy in NEED_VECTORS:
            shape = (len(self.data.texts), int(self.model.get_embedding_dimension() or 1))
            vectors = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        began = time.perf_counter()
        batches = build_plan(batching, rows, vectors, seed=self.config.training.seed, epoch=0).batches(size)
        more = self.rows / len(rows)
        self.took["plan"] = (time.perf_counter() - began) * (more**2 if vectors is not None else more)
        return max(1, round(len(batches) * more))

    def _looks_for_plans(self, epochs: int) -> int:
        """How often the texts are encoded for a plan alone: where no measurement does it anyway."""
        batching = self.config.batching
        alone = batching.strategy in NEED_VECTORS and batching.refresh == "encode"
        return (epochs - 1) // batching.refresh_epochs if alone and not self.config.evaluation.each_epoch else 0

    def _take(self, steps: int) -> tuple[Trainer, list[StepReport]]:
        """Take one step on the longest rows, then as many as are timed."""
        training = self.config.training
        self.drawn = [self._longest, *self._at_random(steps)]
        each = [rows for rows in self.drawn for _ in range(training.accumulation)]
        batching = self.config.batching
        shape = (len(self.tokens), int(self.model.get_embedding_dimension() or 1))
        trainer = Trainer(
            self.model,
            self.loss,
            dataset=self.train,
            tokens=self.tokens,
            config=training.model_copy(update={"steps": steps + 1}),
            plan_for=lambda epoch: _Batches(tuple(each)),
            memory=np.zeros(shape, dtype=np.float32) if batching.refresh == "reuse" else None,
        )
        reports = []
        for report in trainer:
            reports.append(report)
            self.say(400 + 100 * len(reports) // (steps + 1), 100 * STAGES, f"step {len(reports)} of {steps + 1}")
        return trainer, reports

    @cached_property
    def _longest(self) -> Ids:
        """(B,) the rows with the longest texts."""
        lengths = sum(self.tokens.lengths[column] for column in self.train.text_columns)
        return np.argsort(-np.asarray(lengths), kind="stable")[: self.config.training.batch_size].astype(np.int32)

    def _at_random(self, number: int) -> Iterator[Ids]:
        draw, size = np.random.default_rng(self.config.training.seed), self.config.training.batch_size
        for _ in range(number):
            yield draw.permutation(len(self.train))[:size].astype(np.int32)

    def _checkpoint_bytes(self, trainer: Trainer, report: StepReport) -> int:
        """Write one where the run's would lie, time it, and remove it."""
        root = self.store.root
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".preflight-", dir=root) as folder, self._timed("checkpoint"):
            return _size(save_checkpoint(Path(folder), trainer, report))

    def _disk_bytes(self, checkpoint: int, epochs: int) -> int:
        """What stays: the checkpoints kept, the best model, vectors before, after and of epochs, and the plans."""
        weights = sum(parameter.nbytes for parameter in self.model.parameters())
        texts, evaluation = len(self.data.texts), self.config.evaluation
        of_epochs = 2 * epochs * min(texts, evaluation.epoch_texts) if evaluation.each_epoch else 0
        vectors = (2 * 4 * texts + of_epochs) * int(self.model.get_embedding_dimension() or 1)
        kept = min(self.config.training.keep_checkpoints, epochs)
        return checkpoint * kept + weights + vectors + 8 * self.rows * epochs

    def _memory_free(self, used: int) -> int:
        """What this process has taken and what it could still take."""
        if self.model.device.type == "cuda":
            import torch

            return int(torch.cuda.mem_get_info(self.model.device)[0]) + used
        return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.took[part] = time.perf_counter() - began


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

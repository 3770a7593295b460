"""The training loop, on one screen: it yields one report a step, and whoever iterates logs, evaluates and stops."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from bsc_core.config import LossSection, TrainingConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import InputError, TrainingError
from bsc_core.training.optim import clip_gradients, make_optimizer, make_schedule
from bsc_core.training.precision import autocast, resolve_precision
from bsc_core.training.step import Ids, Memory, make_batch


class Batches(Protocol):
    """The rows of each batch of an epoch; a list, or what reads them as they are asked for."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ids]: ...


class Plan(Protocol):
    """What deals the batches of an epoch, as `BatchPlan` does."""

    def batches(self, batch_size: int) -> Batches: ...


PlanFor = Callable[[int], Plan]


@dataclass(frozen=True)
class StepReport:
    """What one optimiser step did. step and epoch count from 1; seconds is the step's own time.

    `steps` is the expected number, from the first epoch's batches; with whole groups kept, epochs may differ by a
    batch, so `last` says which step ends the training.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    ends_epoch: bool
    last: bool
    loss: float
    terms: dict[str, float]
    temperature: float | None
    learning_rate: float
    grad_norm: float
    pairs: int
    tokens: int
    seconds: float
    position: int = 0  # batches of the epoch that are done


@dataclass(frozen=True, eq=False)
class Start:
    """Where training goes on: after this step, which was batch `position` of an epoch, counted from 1.

    last: it was the last step of all. state: that of optimiser, schedule and random generators, as they were then.
    """

    step: int
    epoch: int
    position: int
    last: bool
    state: dict[str, Any]


class Trainer:
    """One model, one loss, one dataset, trained by a plan for each epoch.

    plan_for(epoch) gives the order of an epoch, counted from 0; it is asked once an epoch, before its first step.
    memory: (U, D) with a row for each text of the dataset; every step leaves the vectors there that it computed.
    start: the step after which to go on; the model and the loss are then those of that step.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module,
        *,
        dataset: PairDataset,
        tokens: TokenTable,
        config: TrainingConfig,
        plan_for: PlanFor,
        memory: Memory | None = None,
        start: Start | None = None,
    ) -> None:
        self.config, self.start = config, start
        self.dataset, self.tokens, self.plan_for, self.memory = dataset, tokens, plan_for, memory
        self.accelerator = Accelerator(cpu=model.device.type == "cpu")
        self.precision = resolve_precision(config.precision, self.accelerator.device)
        self.optimizer = make_optimizer(model, loss, config)
        self.model, self.loss, self.optimizer = self.accelerator.prepare(model, loss, self.optimizer)

    def __iter__(self) -> Iterator[StepReport]:
        """Train to the end, one report a step. Raises TrainingError when the loss is not finite."""
        config = self.config
        first = self.plan_for(0).batches(config.batch_size)
        steps = config.steps or config.epochs * len(first)
        epochs = math.ceil(steps / len(first))
        ends_early = config.schedule == "ends_early"
        schedule = make_schedule(self.optimizer, steps=steps, warmup=config.warmup, ends_early=ends_early)
        self._schedule = schedule
        done = self._restore(schedule) if self.start is not None else 0
        if self.start is not None and self.start.last:
            return
        for step, (epoch, rows, position, ends_epoch) in enumerate(self._batches(first), start=done + 1):
            started = time.perf_counter()
            self.model.train()  # whoever read the last report may have evaluated
            rate = float(schedule.get_last_lr()[0])
            total, terms = self._backward(rows, step)
            norm = clip_gradients(self.model, config.max_grad_norm, self.loss)
            if not math.isfinite(norm):
                raise TrainingError(
                    f"step {step}: the gradient is {norm}; lower learning_rate or raise the temperature"
                )
            self.optimizer.step()
            self.optimizer.zero_grad()
            schedule.step()
            last = step == config.steps if config.steps else ends_epoch and epoch == config.epochs
            yield StepReport(
                step=step,
                steps=max(steps, step),
                epoch=epoch,
                epochs=epochs,
                ends_epoch=ends_epoch or last,
                last=last,
                loss=total,
                terms=terms,
                temperature=self._temperature(),
                learning_rate=rate,
                grad_norm=norm,
                pairs=len(rows),
                tokens=self._tokens(rows),
                seconds=time.perf_counter() - started,
                position=position,
            )
            if last:
                return

    def schedule_state(self) -> dict[str, Any]:
        """Where the schedule stands, for a checkpoint."""
        return self._schedule.state_dict()

    def _restore(self, schedule: LRScheduler) -> int:
        """Put optimiser, schedule and random generators where they were. Returns the steps that are done."""
        assert self.start is not None
        self.optimizer.load_state_dict(self.start.state["optimizer"])
        schedule.load_state_dict(self.start.state["schedule"])
        torch.set_rng_state(self.start.state["random"])
        if self.start.state["cuda_random"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(self.start.state["cuda_random"])
        return self.start.step

    def _batches(self, first: Batches) -> Iterator[tuple[int, Ids, int, bool]]:
        """Epoch after epoch without end: (epoch, rows of a batch, its place in the epoch, whether it is the last).

        Epochs and places count from 1. What was done before the start is left out.
        """
        begun, done = (self.start.epoch - 1, self.start.position) if self.start is not None else (0, 0)
        for epoch in itertools.count(begun):
            batches = self.plan_for(epoch).batches(self.config.batch_size) if epoch else first
            for position, rows in enumerate(batches, start=1):
                if epoch > begun or position > done:
                    yield epoch + 1, rows, position, position == len(batches)

    def _backward(self, rows: Ids, step: int) -> tuple[float, dict[str, float]]:
        wanted = getattr(self.accelerator.unwrap_model(self.loss), "config", LossSection())
        with autocast(self.precision, self.accelerator.device):
            batch = make_batch(
                self.model,
                self.tokens,
                self.dataset,
                rows,
                loss=wanted,
                micro_tokens=self.config.micro_tokens,
                memory=self.memory,
            )
        try:
            parts = self.loss(batch.queries, batch.documents, batch.labels, **batch.ids)
        except (TrainingError, InputError) as error:
            raise TrainingError(f"step {step}: {error}") from None
        self.accelerator.backward(parts.total)
        return float(parts.total.detach()), {name: float(value.detach()) for name, value in parts.terms.items()}

    def _temperature(self) -> float | None:
        temperature = getattr(self.accelerator.unwrap_model(self.loss), "temperature", None)
        return None if temperature is None else float(temperature.value)

    def _tokens(self, rows: Ids) -> int:
        return sum(int(self.tokens.lengths[column[rows]].sum()) for column in self.dataset.text_columns)

"""The training loop, on one screen: it yields one report a step, and whoever iterates logs, evaluates and stops."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from accelerate import Accelerator
from sentence_transformers import SentenceTransformer
from torch import nn

from bsc_core.batching import BatchPlan
from bsc_core.config import LossSection, TrainingConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import InputError, TrainingError
from bsc_core.training.optim import clip_gradients, make_optimizer, make_schedule
from bsc_core.training.precision import autocast, resolve_precision
from bsc_core.training.step import Ids, make_batch

PlanFor = Callable[[int], BatchPlan]


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


class Trainer:
    """One model, one loss, one dataset, trained by a plan for each epoch.

    plan_for(epoch) gives the order of an epoch, counted from 0; it is asked once an epoch, before its first step.
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
    ) -> None:
        self.config = config
        self.dataset, self.tokens, self.plan_for = dataset, tokens, plan_for
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
        for step, (epoch, rows, ends_epoch) in enumerate(self._batches(first), start=1):
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
            )
            if last:
                return

    def _batches(self, first: list[Ids]) -> Iterator[tuple[int, Ids, bool]]:
        """Epoch after epoch without end: (epoch from 1, rows of a batch, whether it is the epoch's last)."""
        for epoch in itertools.count():
            batches = self.plan_for(epoch).batches(self.config.batch_size) if epoch else first
            for position, rows in enumerate(batches, start=1):
                yield epoch + 1, rows, position == len(batches)

    def _backward(self, rows: Ids, step: int) -> tuple[float, dict[str, float]]:
        wanted = getattr(self.accelerator.unwrap_model(self.loss), "config", LossSection())
        with autocast(self.precision, self.accelerator.device):
            batch = make_batch(
                self.model, self.tokens, self.dataset, rows, loss=wanted, micro_tokens=self.config.micro_tokens
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

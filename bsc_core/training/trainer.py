"""The training loop, on one screen: it yields one report a step, and whoever iterates logs, evaluates and stops."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol

import torch
from accelerate import Accelerator
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from bsc_core.config import TrainingConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.encoders.forward import Forward, PlainForward, make_forward
from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import InputError, TrainingError
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.memory import activation_room, peak_memory_bytes
from bsc_core.training.optim import clip_gradients, forget_moments, make_optimizer, make_schedule
from bsc_core.training.precision import make_scaler, resolve_precision
from bsc_core.training.ranks import Ranks
from bsc_core.training.step import BatchReport, Ids, Memory, backward_batch


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
    batch, so `last` says which step ends the training. loss, terms and hardness are means over the step's batches, the
    rest their sums. hardness: as `batch_hardness` defines it. tokens: of both sides of every pair; distinct_tokens: of
    the texts that were encoded. recomputed: share of them encoded twice. memory_bytes: the peak so far.
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
    hardness: float | None = None
    distinct_tokens: int = 0
    micro_batches: int = 0
    recomputed: float = 0.0
    memory_bytes: int = 0


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


@dataclass(frozen=True)
class _Stretch:
    """The batches of one optimiser step, read as they are asked for. position: batches of the epoch done after it."""

    epoch: int
    batches: Iterator[Ids]
    size: int
    position: int
    ends_epoch: bool


class Trainer:
    """One model, one loss, one dataset, trained by a plan for each epoch.

    plan_for(epoch) gives the order of an epoch, counted from 0; it is asked once an epoch, before its first step.
    memory: (U, D) with a row for each text of the dataset; every step leaves the vectors there that it computed.
    start: the step after which to go on; the model and the loss are then those of that step.
    """

    fixed_tokens: ClassVar[bool] = True

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
        self.dataset, self.plan_for, self.memory = dataset, plan_for, memory
        self.accelerator = Accelerator(cpu=model.device.type == "cpu")
        device = self.accelerator.device
        self.ranks = Ranks.of(self.accelerator)
        self.precision = resolve_precision(config.precision, device)
        self.encoder, self.loss = model.to(device), loss.to(device)
        if config.compile:  # what was compiled is the model itself
            self.forward: Forward = PlainForward(model, tokens, self.precision)
        else:
            self.forward = make_forward(model, tokens, self.precision, fixed_tokens=self.fixed_tokens)
        weights = sum(parameter.nbytes for _, parameter in self.forward.named_parameters())
        room = activation_room(device, config.activation_memory, weights)
        self.cached = CachedEncoder(self.forward, config, room, self.ranks)
        self.optimizer = make_optimizer(self.forward, loss, config)
        self.scaler = make_scaler(self.precision, device)

    @property
    def model(self) -> SentenceTransformer:
        """The encoder, which then holds what was trained."""
        self.forward.write_back()
        return self.encoder

    def __iter__(self) -> Iterator[StepReport]:
        """Train to the end, one report a step. Raises TrainingError when the loss is not finite."""
        config = self.config
        first = self.plan_for(0).batches(config.batch_size)
        in_epoch = math.ceil(len(first) / config.accumulation)
        steps = config.steps or config.epochs * in_epoch
        epochs = math.ceil(steps / in_epoch)
        schedule = self._schedule = make_schedule(
            self.optimizer, steps=steps, in_epoch=in_epoch, warmup=config.warmup, kind=config.schedule
        )
        done = self._restore(schedule) if self.start is not None else 0
        if self.start is not None and self.start.last:
            return
        for step, stretch in enumerate(self._stretches(first), start=done + 1):
            started = time.perf_counter()
            if config.schedule == "restarts" and stretch.position == stretch.size:
                forget_moments(self.optimizer, config)
            self.encoder.train()  # whoever read the last report may have evaluated, and drawn random numbers
            self.ranks.share_random_state()
            rate = float(schedule.get_last_lr()[0])
            batches = [self._backward(rows, stretch.size, step) for rows in stretch.batches]
            norm = self._update(schedule, step)
            last = step == config.steps if config.steps else stretch.ends_epoch and stretch.epoch == config.epochs
            if stretch.ends_epoch or last:
                self.forward.write_back()
            yield StepReport(
                step=step,
                steps=max(steps, step),
                epoch=stretch.epoch,
                epochs=epochs,
                ends_epoch=stretch.ends_epoch or last,
                last=last,
                temperature=self._temperature(),
                learning_rate=rate,
                grad_norm=norm,
                seconds=time.perf_counter() - started,
                position=stretch.position,
                memory_bytes=peak_memory_bytes(self.accelerator.device),
                **_summed(batches),
            )
            if last:
                return

    def state(self) -> dict[str, Any]:
        """Where optimiser, schedule and random generators stand, for a checkpoint; `Start.state` takes it back."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def _restore(self, schedule: LRScheduler) -> int:
        """Put everything where it was. Returns the steps that are done."""
        assert self.start is not None
        state = self.start.state
        self._restore_optimizer(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if state["cuda_random"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda_random"])
        return self.start.step

    def _restore_optimizer(self, state: dict[str, Any]) -> None:
        """Raises TrainingError where the state is of other parameters."""
        try:
            self.optimizer.load_state_dict(state)
            fits = all(moments["exp_avg"].shape == weight.shape for weight, moments in self.optimizer.state.items())
        except (ValueError, KeyError):
            fits = False
        if not fits:
            raise TrainingError(
                "the checkpoint's optimiser trained other parameters than are trained here; resume the run on the kind "
                "of device and with the version that it began with, or start it anew"
            )

    def _stretches(self, first: Batches) -> Iterator[_Stretch]:
        """Epoch after epoch without end, the batches of each step. What was done before the start is left out."""
        begun, done = (self.start.epoch - 1, self.start.position) if self.start is not None else (0, 0)
        for epoch in itertools.count(begun):
            batches = self.plan_for(epoch).batches(self.config.batch_size) if epoch else first
            position, rows = (done if epoch == begun else 0), iter(batches)
            for _ in islice(rows, position):
                pass
            while position < len(batches):
                size = min(self.config.accumulation, len(batches) - position)
                position += size
                yield _Stretch(epoch + 1, islice(rows, size), size, position, position == len(batches))

    def _backward(self, rows: Ids, batches: int, step: int) -> BatchReport:
        """Add a batch's share to the gradient of a step of so many batches."""
        scale = self.scaler.scale(torch.ones((), device=self.forward.device)) / batches
        try:
            return backward_batch(self.cached, self.loss, self.dataset, rows, scale=scale, memory=self.memory)
        except (TrainingError, InputError) as error:
            raise TrainingError(f"step {step}: {error}") from None

    def _update(self, schedule: LRScheduler, step: int) -> float:
        """Let the optimiser make its step. Returns the norm of the gradient before it was clipped."""
        self.ranks.sum_gradients(parameter for _, parameter in self.forward.named_parameters())
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.forward, self.config.max_grad_norm, self.loss)
        scale = self.scaler.get_scale()
        overflow = not math.isfinite(norm)
        if overflow and (not self.scaler.is_enabled() or scale < 1):
            raise TrainingError(f"step {step}: the gradient is {norm}; lower learning_rate or raise the temperature")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.forward.weights_changed()
        if not overflow:  # fp16 leaves such a step out and lowers its scale
            schedule.step()
        return norm

    def _temperature(self) -> float | None:
        temperature = getattr(self.loss, "temperature", None)
        return None if temperature is None else float(temperature.value)


def _summed(batches: list[BatchReport]) -> dict[str, Any]:
    """What a step's batches were together, as fields of its report."""
    hardness = [batch.hardness for batch in batches if batch.hardness is not None]
    distinct = sum(batch.distinct_tokens for batch in batches)
    names = dict.fromkeys(name for batch in batches for name in batch.terms)
    return {
        "loss": _mean([batch.loss for batch in batches]),
        "terms": {name: _mean([batch.terms[name] for batch in batches if name in batch.terms]) for name in names},
        "hardness": _mean(hardness) if hardness else None,
        "pairs": sum(batch.pairs for batch in batches),
        "tokens": sum(batch.tokens for batch in batches),
        "distinct_tokens": distinct,
        "micro_batches": sum(batch.micro_batches for batch in batches),
        "recomputed": sum(batch.recomputed * batch.distinct_tokens for batch in batches) / max(1, distinct),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

"""Training loop; yields one `StepReport` per optimizer step and calls callbacks in between."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from bsc_core.config import TrainingConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.encoders import eval_mode
from bsc_core.encoders.forward import Forward, make_forward
from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import InputError, TrainingError
from bsc_core.losses.kernel.temperature import set_progress
from bsc_core.training.loop.device import activation_memory, peak_memory_bytes, resolve_precision
from bsc_core.training.loop.distributed import Distributed
from bsc_core.training.loop.optim import clip_gradients, make_optimizer, make_schedule, reset_moments
from bsc_core.training.loop.step import BatchReport, GradientCachedEncoder, backward_batch
from bsc_core.types import Ids, Vectors

Ending = Literal["done", "stopped"]
CHECKED_TEXTS = 8


class Batches(Protocol):
    """Rows of each batch of an epoch, in a list or read while iterating."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ids]: ...


class Sampler(Protocol):
    """Source of training batches."""

    dataset: PairDataset  # the pairs that the rows of a batch refer to; may change while an epoch is read
    tokens: TokenTable  # the tokenized texts of `dataset`
    step_vectors: Vectors | None  # (U, D), or None; receives the vectors that the steps compute
    guide: Vectors | None  # (U, G) vectors of the guide of the loss, or None
    fixed_tokens: bool  # whether `dataset` and `tokens` never change

    def batches(self, epoch: int) -> Batches:
        """Return the batches of an epoch, counted from 0. Called once per epoch, in every process."""
        ...


@dataclass(frozen=True, kw_only=True)
class StepReport(BatchReport):
    """Results of one optimizer step: mean loss, terms and hardness of its batches, and sums of their counts.

    `steps` is expected from the batches of the first epoch. With `batching.keep_groups` epochs may differ by a batch,
    so use `last` to detect the last step.
    """

    step: int  # counted from 1
    steps: int  # expected number of steps
    epoch: int  # counted from 1
    epochs: int  # expected number of epochs
    ends_epoch: bool  # whether this is the last step of its epoch or of training
    last: bool  # whether this is the last step of training
    position: int  # batches of the epoch that are done
    temperature: float | None  # after the step; None where the loss has none
    learning_rate: float  # of the encoder, in this step
    grad_norm: float  # norm of the gradient before clipping
    seconds: float  # time of the step
    memory_bytes: int  # peak memory so far


@dataclass(frozen=True, eq=False)
class TrainerState:
    """State of a trainer after a step."""

    step: int  # the last step that is done
    epoch: int  # its epoch, counted from 1
    position: int  # batches of the epoch that are done
    last: bool  # whether it was the last step of training
    state: dict[str, Any]  # of optimizer, schedule, scaler and random generators
    ends_epoch: bool = False  # whether it was the last step of its epoch
    best: float | None = None  # dev metric of the best model so far; None before the first evaluation
    best_epoch: int = 0  # its epoch; 0 before the first evaluation
    step_vectors: Vectors | None = None  # (U, D) vectors that the steps computed, or None


class Callback:
    """Hooks of `Trainer.fit`; they run on the main process only, between steps.

    `trainer.stop` ends training after the current step, in every process.
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Called before the first step."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int, batches: Batches) -> None:
        """Called with the batches of an epoch (counted from 1), before its first step in this process."""

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Called after each optimizer step."""

    def on_train_end(self, trainer: Trainer) -> None:
        """Called after the last step; `trainer.ending` says whether training is done or was stopped."""


@dataclass(frozen=True)
class _AccumulationStep:
    """The batches of one optimizer step, read lazily."""

    epoch: int
    batches: Iterator[Ids]
    size: int  # number of its batches
    position: int  # batches of the epoch that are done after it
    ends_epoch: bool


class Trainer:
    """Trains one encoder with one loss on the batches of a sampler.

    Args:
        model: The encoder.
        loss: The loss; its parameters are trained too.
        sampler: Source of the batches.
        config: Optimizer, schedule, length and precision.
        resume: The step to resume after; model and loss have the weights of that step.
        without_padding: See `make_forward`.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module,
        sampler: Sampler,
        config: TrainingConfig,
        *,
        resume: TrainerState | None = None,
        without_padding: bool = False,
    ) -> None:
        self.sampler, self.config, self.resume = sampler, config, resume
        self.accelerator = Accelerator(cpu=model.device.type == "cpu")
        device = self.accelerator.device
        self.distributed = Distributed.from_accelerator(self.accelerator)
        self.precision = resolve_precision(config.precision, device)
        self.encoder, self.loss = model.to(device), loss.to(device)
        if config.compile:  # the model itself was compiled
            self.forward = Forward(model, sampler.tokens, self.precision)
        else:
            fixed = sampler.fixed_tokens
            self.forward = make_forward(
                model, sampler.tokens, self.precision, fixed_tokens=fixed, without_padding=without_padding
            )
        weights = sum(parameter.nbytes for _, parameter in self.forward.named_parameters())
        limit = activation_memory(device, config.activation_memory, weights)
        self.step_encoder = GradientCachedEncoder(self.forward, config, limit, self.distributed)
        self.optimizer = make_optimizer(self.forward, loss, config)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")  # else small gradients vanish
        self.callbacks: Sequence[Callback] = ()
        self.report: StepReport | None = None
        self.ending: Ending | None = None

    @property
    def model(self) -> SentenceTransformer:
        """The encoder with its trained weights."""
        self.forward.write_back()
        return self.encoder

    def fit(self, callbacks: Sequence[Callback] = ()) -> Ending:
        """Train until the last step or until a callback calls `stop`; return `done` or `stopped`.

        Callbacks are called in this order, on the main process only; their decision to stop is shared.

        Raises:
            TrainingError: The loss, the gradient or a weight is not finite.
        """
        self.callbacks = callbacks if self.distributed.is_main else ()
        for callback in self.callbacks:
            callback.on_train_begin(self)
        if not self._stops():
            for report in self:
                self.report = report
                for callback in self.callbacks:
                    callback.on_step_end(self, report)
                if self._stops():
                    break
        self.ending = self.ending or "done"
        for callback in self.callbacks:
            callback.on_train_end(self)
        return self.ending

    def stop(self, ending: Ending) -> None:
        """End training after the current step; the first of several calls decides the ending."""
        self.ending = self.ending or ending

    def __iter__(self) -> Iterator[StepReport]:
        """Train to the end, one report per step.

        Raises:
            TrainingError: The loss is not finite.
        """
        config, resume = self.config, self.resume
        first = self.sampler.batches(0)
        steps_per_epoch = math.ceil(len(first) / config.gradient_accumulation_steps)
        steps = config.max_steps or config.epochs * steps_per_epoch
        epochs = math.ceil(steps / steps_per_epoch)
        schedule = self._schedule = make_schedule(
            self.optimizer,
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            warmup=config.warmup_ratio,
            kind=config.schedule,
        )
        if resume is not None:
            self._restore(resume.state, schedule)
            if resume.last:
                return
        done = 0 if resume is None else resume.step
        for step, part in enumerate(self._accumulation_steps(first), start=done + 1):
            started = time.perf_counter()
            if config.schedule == "restarts" and part.position == part.size:
                reset_moments(self.optimizer, config)
            self.encoder.train()  # a callback may have evaluated, and sampled random numbers
            self.distributed.broadcast_random_state()
            rate = float(schedule.get_last_lr()[0])
            self._set_temperature(step, steps)
            batches = [self._backward(rows, part.size, step) for rows in part.batches]
            norm = self._update(schedule, step)
            last = step == config.max_steps if config.max_steps else part.ends_epoch and part.epoch == config.epochs
            if part.ends_epoch or last:
                self.forward.write_back()
            yield StepReport(
                step=step,
                steps=max(steps, step),
                epoch=part.epoch,
                epochs=epochs,
                ends_epoch=part.ends_epoch or last,
                last=last,
                temperature=self._temperature(),
                learning_rate=rate,
                grad_norm=norm,
                seconds=time.perf_counter() - started,
                position=part.position,
                memory_bytes=peak_memory_bytes(self.accelerator.device),
                **_combine(batches),
            )
            if last:
                return

    def state(self) -> dict[str, Any]:
        """Return the state of optimizer, schedule, scaler and random generators; see `TrainerState.state`."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def check_finite(self, step: int) -> None:
        """Raise TrainingError unless the weights and the vectors of some texts are finite."""
        texts = np.arange(min(CHECKED_TEXTS, len(self.forward.tokens)))
        with eval_mode(self.model), torch.no_grad():
            finite = bool(torch.isfinite(self.forward.embed(texts)).all())
        if not finite or not all(bool(torch.isfinite(weights).all()) for weights in self.model.parameters()):
            raise TrainingError(
                f"step {step}: the encoder's weights or vectors are not finite; lower training.learning_rate (earlier "
                "checkpoints are intact)"
            )

    def _stops(self) -> bool:
        self.ending = self.distributed.broadcast(self.ending)
        return self.ending is not None

    def _restore(self, state: dict[str, Any], schedule: LRScheduler) -> None:
        """Restore optimizer, schedule, scaler and random generators."""
        try:
            self.optimizer.load_state_dict(state["optimizer"])
            fits = all(moments["exp_avg"].shape == weight.shape for weight, moments in self.optimizer.state.items())
            schedule.load_state_dict(state["schedule"])
            if state.get("scaler"):
                self.scaler.load_state_dict(state["scaler"])
            torch.set_rng_state(state["random"])
            if state["cuda_random"] and torch.cuda.is_available():
                torch.cuda.set_rng_state_all(state["cuda_random"])
            schedule.get_last_lr()
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, IndexError):
            fits = False
        if not fits:
            raise TrainingError(
                "the optimizer state of the checkpoint does not match the trained parameters; resume with the same "
                "kind of device and version of BSC Lab as the original run, or launch the run again"
            )

    def _accumulation_steps(self, first: Batches) -> Iterator[_AccumulationStep]:
        """Yield the batches of each step, epoch after epoch without end; batches before the resumed step are skipped.

        first: the batches of epoch 0.
        """
        start, done = (self.resume.epoch - 1, self.resume.position) if self.resume is not None else (0, 0)
        for epoch in itertools.count(start):
            batches = self.sampler.batches(epoch) if epoch else first
            for callback in self.callbacks:
                callback.on_epoch_begin(self, epoch + 1, batches)
            position, rows = (done if epoch == start else 0), iter(batches)
            for _ in islice(rows, position):
                pass
            while position < len(batches):
                size = min(self.config.gradient_accumulation_steps, len(batches) - position)
                position += size
                yield _AccumulationStep(epoch + 1, islice(rows, size), size, position, position == len(batches))

    def _backward(self, rows: Ids, batches: int, step: int) -> BatchReport:
        """Add the gradient of one of the step's `batches`."""
        sampler = self.sampler
        if sampler.tokens is not self.forward.tokens:
            self.forward.use_tokens(sampler.tokens)
        scale = self.scaler.scale(torch.ones((), device=self.forward.device)) / batches
        try:
            return backward_batch(
                self.step_encoder,
                self.loss,
                sampler.dataset,
                rows,
                scale=scale,
                step_vectors=sampler.step_vectors,
                guide=sampler.guide,
            )
        except (TrainingError, InputError) as error:
            raise TrainingError(f"step {step}: {error}") from None

    def _update(self, schedule: LRScheduler, step: int) -> float:
        """Clip the gradient and update the weights. Returns the norm of the gradient before clipping."""
        self.distributed.sum_gradients(parameter for _, parameter in self.forward.named_parameters())
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.forward, self.config.max_grad_norm, self.loss)
        scale = self.scaler.get_scale()
        overflow = not math.isfinite(norm)
        if overflow and (not self.scaler.is_enabled() or scale < 1):
            raise TrainingError(
                f"step {step}: the gradient is {norm}; lower training.learning_rate or raise loss.temperature, if the "
                "loss has one"
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.forward.weights_changed()
        if not overflow:  # fp16 skips such a step and lowers its scale
            schedule.step()
        return norm

    def _set_temperature(self, step: int, steps: int) -> None:
        """Set the temperatures that follow a schedule. step: from 1 to `steps`."""
        set_progress(self.loss, min(1.0, (step - 1) / max(1, steps - 1)))

    def _temperature(self) -> float | None:
        temperature = getattr(self.loss, "temperature", None)
        return None if temperature is None else float(temperature.value)


def _combine(batches: list[BatchReport]) -> dict[str, Any]:
    """Return the batches of a step as fields of its report."""
    hardness = [batch.hardness for batch in batches if batch.hardness is not None]
    distinct = sum(batch.distinct_tokens for batch in batches)
    names = dict.fromkeys(name for batch in batches for name in batch.terms)
    return {
        "loss": _mean([batch.loss for batch in batches]),
        "terms": {name: _mean([batch.terms[name] for batch in batches if name in batch.terms]) for name in names},
        "hardness": _mean(hardness) if hardness else None,
        **{name: sum(getattr(batch, name) for batch in batches) for name in ("pairs", "tokens", "micro_batches")},
        "distinct_tokens": distinct,
        "recomputed": sum(batch.recomputed * batch.distinct_tokens for batch in batches) / max(1, distinct),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

"""Log of a run: its status, metrics for the curves, and times for estimates."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bsc_core.config import RunConfig, flatten
from bsc_core.formatting import metric_name, printable
from bsc_core.runs.documents import GENERAL_SCORE
from bsc_core.training.loop.device import peak_memory_bytes
from bsc_core.training.loop.distributed import Distributed
from bsc_core.training.loop.trainer import Callback, StepReport, Trainer
from bsc_core.training.trackers import Trackers

if TYPE_CHECKING:
    import torch

    from bsc_core.batching import BatchPlan
    from bsc_core.runs import Run

WEIGHT_SECTIONS = ("encoder", "batching", "loss", "training")
"""Sections of the config that determine the weights."""
LOGGED_METRICS = ("mrr", "map", "has_positive@1", "spearman", "f1")
STATUS_SECONDS = 0.5  # between two writes of the status
MAX_READ_STEPS = 10_000


class RunLogger(Callback):
    """Appends to a run's metrics, updates its status and reports to its trackers. Times are in wall-clock seconds.

    Processes other than the main one only measure times. At the end of its context, the trackers write their buffers.
    """

    def __init__(self, run: Run, config: RunConfig, distributed: Distributed | None = None) -> None:
        self.run, self.distributed = run, distributed or Distributed()
        names = config.training.report_to if self.distributed.is_main else ()
        settings = flatten(config, WEIGHT_SECTIONS, exclude_none=True)
        self.trackers = Trackers(names, run.trackers_folder, run_id=run.id, settings=settings)
        self.started = time.perf_counter()
        self._written = 0.0
        self._elapsed = 0.0  # seconds of training steps, before a resume too
        self._seconds: dict[str, float] = defaultdict(float)
        self._last: dict[str, float] = defaultdict(float)
        self._epoch_seconds: dict[int, float] = defaultdict(float)
        self._pairs = self._tokens = self._encoded = self._steps = self._step = 0

    def __enter__(self) -> RunLogger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.trackers.finish()

    def say(self, message: str) -> None:
        """Set the status message and print it with the local time to the run's log."""
        if not self.distributed.is_main:
            return
        self.run.update_status(message=message)
        print(f"{time.strftime('%H:%M:%S')} {printable(message)}", file=sys.stderr, flush=True)  # noqa: T201  (the run's log)

    def encoding(self, done: int, total: int) -> None:
        """Report the progress of encoding `total` texts."""
        self._encoded += total if done == total else 0
        if (self._due() or done == total) and self.distributed.is_main:
            self.run.update_status(message=f"Encoding texts: {done:,} of {total:,}")

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part of the run: build, encode, plan or checkpoint."""
        started = time.perf_counter()
        yield
        self._last[part] = time.perf_counter() - started
        self._seconds[part] += self._last[part]

    def on_train_begin(self, trainer: Trainer) -> None:
        """Reset metrics and status of a resumed run to its checkpoint."""
        resume = trainer.resume
        if resume is None:
            return
        self.say(f"Resuming after step {resume.step:,}")
        self.run.rewind_metrics(step=resume.step, epoch=resume.epoch, ends_epoch=resume.ends_epoch)
        self.run.update_status(step=resume.step, epoch=resume.epoch)
        rows, _ = self.run.metrics(max_steps=MAX_READ_STEPS)
        self._elapsed = max((row.get("elapsed_seconds", 0.0) for row in rows), default=0.0)
        if resume.last:
            self.run.update_status(steps=resume.step, epochs=resume.epoch)

    def plan(self, epoch: int, crossed: int, collisions: int, plan: BatchPlan) -> None:
        """Log the plan of an epoch: pairs of rows that share a batch, and those of them that collide."""
        share = collisions / crossed if crossed else 0.0
        values = {"crossed_pairs": crossed, "collisions": collisions, "collision_share": share, "facts": plan.facts}
        self.run.append_metrics({"kind": "plan", "epoch": epoch, **values})
        self.say(f"Epoch {epoch}: {collisions:,} of {crossed:,} in-batch pairs are positives of the data ({share:.2%})")

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Log one training step."""
        self._seconds["train"] += report.seconds
        self._elapsed += report.seconds
        self._epoch_seconds[report.epoch] += report.seconds
        self._pairs += report.pairs
        self._tokens += report.tokens
        self._steps += 1
        self._step = report.step
        values = {
            "loss": report.loss,
            "elapsed_seconds": round(self._elapsed, 4),
            **{f"loss_{name}": value for name, value in report.terms.items()},
            "temperature": report.temperature,
            "learning_rate": report.learning_rate,
            "grad_norm": report.grad_norm,
            "pairs_per_second": report.pairs / report.seconds,
            "tokens_per_second": report.distinct_tokens / report.seconds,
            "hardness": report.hardness,
            "memory_bytes": report.memory_bytes,
            "micro_batches": report.micro_batches,
            "recomputed": report.recomputed,
        }
        self.run.append_metrics({"kind": "step", "step": report.step, "epoch": report.epoch, **values})
        tracked = {f"train/{name}": value for name, value in values.items()} | {"train/epoch": report.epoch}
        self.trackers.log(tracked, self._step)
        if self._due() or report.ends_epoch:
            self.run.update_status(
                step=report.step,
                steps=report.steps,
                epoch=report.epoch,
                epochs=report.epochs,
                eta_seconds=self._remaining(report),
                message=f"Training: epoch {report.epoch} of {report.epochs}",
            )

    def on_train_end(self, trainer: Trainer) -> None:
        """Correct the number of steps, which was estimated from the batches of the first epoch."""
        if trainer.ending == "done" and self._step:
            self.run.update_status(step=self._step, steps=self._step)

    def evaluation(self, epoch: int, metrics: dict[str, dict[str, float | None]], general: float | None = None) -> None:
        """Log the metrics after an epoch, and the general score if there is one; epoch 0 is before training."""
        self.run.append_metrics(
            {
                "kind": "evaluation",
                "epoch": epoch,
                **metrics,
                "train_seconds": self._epoch_seconds.get(epoch),
                "plan_seconds": self._last["plan"] if epoch else None,
                "encode_seconds": self._last["encode"],
                **({} if general is None else {GENERAL_SCORE: general}),
            }
        )
        for split, values in metrics.items():
            self.trackers.log({f"{split}/{name}": value for name, value in values.items()}, self._step)
        dev = metrics["dev"]
        text = ", ".join(f"{metric_name(name)} {dev[name]:.3f}" for name in LOGGED_METRICS if dev.get(name) is not None)
        text += "" if general is None else f"; general score {general:.3f}"
        self.say(f"Epoch {epoch} on dev: {text}" if epoch else f"Before training, on dev: {text}")

    def summary(self, device: torch.device) -> dict[str, Any]:
        """Return times, speed and memory of the run, on the device that it was trained on."""
        epochs = [self._epoch_seconds[epoch] for epoch in sorted(self._epoch_seconds)]
        train = self._seconds["train"]
        return {
            "seconds": {"total": time.perf_counter() - self.started, **self._seconds, "epochs": epochs},
            "pairs": self._pairs,
            "texts_encoded": self._encoded,
            "pairs_per_second": self._pairs / train if train else None,
            "tokens_per_second": self._tokens / train if train else None,
            "peak_memory_bytes": peak_memory_bytes(device),
        }

    def _remaining(self, report: StepReport) -> float:
        step = self._seconds["train"] / self._steps  # of this process: the run may have been resumed
        evaluations = max(0, report.epochs - report.epoch + (0 if report.ends_epoch else 1))
        between = self._last["encode"] + self._last["plan"] + self._last["checkpoint"]
        return (report.steps - report.step) * step + evaluations * between

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._written < STATUS_SECONDS:
            return False
        self._written = now
        return True

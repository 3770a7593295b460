"""What a run tells while it runs: status for those who watch, metrics for the curves, times for the estimate."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bsc_core.training.memory import peak_memory_bytes

if TYPE_CHECKING:
    import torch

    from bsc_core.batching import BatchPlan
    from bsc_core.runs import Run
    from bsc_core.training.trackers import Trackers
    from bsc_core.training.trainer import StepReport

SHOWN = ("mrr", "map", "has_positive@1", "spearman", "f1")  # in the log
STATUS_SECONDS = 0.5  # between two writes of the status


class Journal:
    """Appends to a run's metrics, keeps its status fresh and tells its trackers. Times are wall-clock seconds.

    silent: takes times only, in a process that helps another.
    """

    def __init__(self, run: Run, trackers: Trackers | None = None, *, silent: bool = False) -> None:
        self.run, self.trackers, self.silent = run, trackers, silent
        self.started = time.perf_counter()
        self._written = 0.0
        self._seconds: dict[str, float] = defaultdict(float)
        self._last: dict[str, float] = defaultdict(float)
        self._epoch_seconds: dict[int, float] = defaultdict(float)
        self._pairs = self._tokens = self._encoded = self._steps = self._step = 0

    def say(self, message: str) -> None:
        """Say what is being done."""
        if self.silent:
            return
        self.run.update_status(message=message)
        print(message, file=sys.stderr, flush=True)  # noqa: T201  (the run's log)

    def encoding(self, done: int, total: int) -> None:
        """Progress of encoding `total` texts."""
        self._encoded += total if done == total else 0
        if (self._due() or done == total) and not self.silent:
            self.run.update_status(message=f"Encoding texts: {done:,} of {total:,}")

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the time of the block under a name: encode, plan or checkpoint."""
        started = time.perf_counter()
        yield
        self._last[part] = time.perf_counter() - started
        self._seconds[part] += self._last[part]

    def plan(self, epoch: int, crossed: int, collisions: int, plan: BatchPlan) -> None:
        """Note what an epoch's batches hold: pairs of rows that meet, and those that collide."""
        share = collisions / crossed if crossed else 0.0
        values = {"crossed_pairs": crossed, "collisions": collisions, "collision_share": share, "facts": plan.facts}
        self.run.append_metrics({"kind": "plan", "epoch": epoch, **values})
        self.say(f"Epoch {epoch}: {collisions:,} of {crossed:,} crossed pairs collide ({share:.2%})")

    def step(self, report: StepReport) -> None:
        """Note one training step."""
        self._seconds["train"] += report.seconds
        self._epoch_seconds[report.epoch] += report.seconds
        self._pairs += report.pairs
        self._tokens += report.tokens
        self._steps += 1
        self._step = report.step
        if not self.silent:
            self._write_step(report)

    def _write_step(self, report: StepReport) -> None:
        values = {
            "loss": report.loss,
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
        self._tell({f"train/{name}": value for name, value in values.items()} | {"train/epoch": report.epoch})
        if self._due() or report.ends_epoch:
            self.run.update_status(
                step=report.step,
                steps=report.steps,
                epoch=report.epoch,
                epochs=report.epochs,
                eta_seconds=self._remaining(report),
                message=f"Training: epoch {report.epoch} of {report.epochs}",
            )

    def evaluation(self, epoch: int, metrics: dict[str, dict[str, float | None]]) -> None:
        """Note the metrics after an epoch; 0 is before training."""
        self.run.append_metrics(
            {
                "kind": "evaluation",
                "epoch": epoch,
                **metrics,
                "train_seconds": self._epoch_seconds.get(epoch),
                "plan_seconds": self._last["plan"] if epoch else None,
                "encode_seconds": self._last["encode"],
            }
        )
        for split, found in metrics.items():
            self._tell({f"{split}/{name}": value for name, value in found.items()})
        dev = metrics["dev"]
        shown = ", ".join(f"{name} {dev[name]:.3f}" for name in SHOWN if dev.get(name) is not None)
        self.say(f"Epoch {epoch} on dev: {shown}" if epoch else f"Before training, on dev: {shown}")

    def summary(self, device: torch.device) -> dict[str, Any]:
        """Times, speed and memory of the whole run, on the device it was trained on."""
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

    def close(self) -> None:
        """Let the trackers write what they still hold."""
        if self.trackers is not None:
            self.trackers.finish()

    def _tell(self, values: dict[str, float | None]) -> None:
        if self.trackers is not None:
            self.trackers.log(values, self._step)

    def _remaining(self, report: StepReport) -> float:
        step = self._seconds["train"] / self._steps  # those of this process: a run may have been resumed
        evaluations = max(0, report.epochs - report.epoch + (0 if report.ends_epoch else 1))
        between = self._last["encode"] + self._last["plan"] + self._last["checkpoint"]
        return (report.steps - report.step) * step + evaluations * between

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._written < STATUS_SECONDS:
            return False
        self._written = now
        return True

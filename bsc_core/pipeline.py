"""The main path, from a config to a trained and measured model. Read this first.

`run_experiment` reads the data, encodes and measures with the untouched encoder, trains epoch by epoch, measures after
each, and keeps the model that was best on dev. All it writes goes into the run's folder.
"""

# U distinct texts, D dimensions

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from bsc_core.batching import NEED_VECTORS, BatchPlan, build_plan, plan_collisions, plan_notes
from bsc_core.config import EncoderConfig, RunConfig
from bsc_core.data import SPLIT_SEED, ExperimentData
from bsc_core.data.experiment import load_beside
from bsc_core.encoders import encode, load_encoder, model_card, save_model, tokenise
from bsc_core.evaluation import main_metric
from bsc_core.losses import build_loss, save_loss
from bsc_core.losses.classification import class_accuracy
from bsc_core.measuring import Metrics, Vectors, measure, rejected_rows
from bsc_core.preparation.prepare import load_experiment
from bsc_core.training.checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from bsc_core.training.estimate import measured_speed
from bsc_core.training.journal import Journal
from bsc_core.training.precision import autocast, resolve_precision
from bsc_core.training.rows import check_views, training_rows
from bsc_core.training.seeding import seed_everything, set_threads
from bsc_core.training.streamed import PairStream, StreamedTrainer, streams
from bsc_core.training.trainer import StepReport, Trainer

if TYPE_CHECKING:
    from bsc_core.runs import Run

PLAN_VECTORS = "plans/vectors"


def run_experiment(
    config: RunConfig, run: Run, *, on_report: Callable[[StepReport], object] | None = None
) -> dict[str, Any]:
    """Train and measure as the config says, writing into the run's folder; also the result, as `result.json`.

    Stops after the current step when the run is asked to. A run whose folder holds checkpoints goes on from the newest
    that can be read, to the same end, bit for bit on a processor. Returns run, state ("done" or "stopped"), model
    (folder) and metrics: before and after, by split. Raises InputError before any work is done, RunError when training
    cannot go on.
    """
    return _Experiment(config, run).conduct(on_report)


class _Experiment:
    """What one run holds while it runs."""

    def __init__(self, config: RunConfig, run: Run) -> None:
        set_threads(config.training.threads)
        seed_everything(config.training.seed)
        self.config, self.run, self.journal = config, run, Journal(run)
        self.journal.say("Reading the data")
        self.stream = PairStream(config) if streams(config) else None
        self.data = self._load_data()
        for sentence in [*rejected_rows(self.data.reports), *(stage.sentence() for stage in self.data.funnel)]:
            self.journal.say(sentence)
        self.train = training_rows(config, self.data.train)
        for sentence in plan_notes(config.batching, self.train):
            self.journal.say(f"Note: {sentence}")
        self.journal.say("Loading the encoder")
        self.resumed = last_checkpoint(run.checkpoints_folder)
        self.model = load_encoder(self._encoder())
        check_views(config, self.model)
        self.loss = self._build_loss()
        self.precision = resolve_precision(config.training.precision, self.model.device)
        self.tokens = tokenise(self.model, self.data.texts.texts, config.encoder.max_length)
        self.vectors: Vectors = np.empty((0, 0), dtype=np.float32)  # (U, D), of the model as it is
        self.memory: Vectors | None = None  # (U, D), what the steps computed, where plans reuse it
        self.plan: BatchPlan | None = None
        self.plan_vectors: Vectors | None = None
        self.best: float | None = None
        self.before: dict[str, Metrics] = {}
        self.after: dict[str, Metrics] = {}
        self.best_epoch = 0

    def _encoder(self) -> EncoderConfig:
        """The encoder to start from: that of the checkpoint, where there is one."""
        if self.resumed is None:
            return self.config.encoder
        return self.config.encoder.model_copy(update={"name": str(self.resumed.model_folder)})

    def _load_data(self) -> ExperimentData:
        """The data; where the training pairs are streamed, a sample stands for them."""
        if self.stream is None:
            return load_experiment(self.config.data, seed=SPLIT_SEED, progress=self.journal.encoding)
        self.journal.say(f"{len(self.stream):,} training pairs are streamed from shards")
        return load_beside(self.stream.sample, self.config.data)

    def _make_trainer(self) -> Trainer:
        if self.stream is not None:
            start = None if self.resumed is None else self.resumed.start
            return StreamedTrainer(self.model, self.loss, stream=self.stream, start=start)
        return Trainer(
            self.model,
            self.loss,
            dataset=self.train,
            tokens=self.tokens,
            config=self.config.training,
            plan_for=self._plan,
            memory=self.memory,
            start=None if self.resumed is None else self.resumed.start,
        )

    def _build_loss(self) -> nn.Module:
        """The loss; what it warns of when it is made is said in the log."""
        width = self.model.get_embedding_dimension()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loss = build_loss(self.config.loss, threshold=self.config.data.threshold, dimensions=width)
        for warning in told:
            self.journal.say(f"Note: {warning.message}")
        return loss

    def conduct(self, on_report: Callable[[StepReport], object] | None) -> dict[str, Any]:
        if self.resumed is None:
            self._measure_untrained()
        else:
            self._go_on_from(self.resumed)
        if self.config.batching.refresh == "reuse" and self.memory is None:
            self.memory = self.vectors.copy()
        trainer = self._make_trainer()
        state, report, every = "done", None, self.config.training.checkpoint_steps
        for report in trainer:
            self.journal.step(report)
            if on_report is not None:
                on_report(report)
            if report.ends_epoch:
                self._measure_epoch(report)
            if report.ends_epoch or (every and report.step % every == 0):
                with self.journal.timed("checkpoint"):
                    self._save_checkpoint(trainer, report)
            if self.run.stop_requested() and not report.last:
                state = "stopped"
                break
        if state == "stopped" and report is not None:
            self._stop_here(trainer, report)
        return self._finish(state, trainer)

    def _save_checkpoint(self, trainer: Trainer, report: StepReport) -> None:
        save_checkpoint(self.run.checkpoints_folder, trainer, report, best=(self.best, self.best_epoch))

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        """Be where the run was when the checkpoint was written."""
        self.journal.say(f"Going on after step {checkpoint.start.step:,}")
        self.loss.load_state_dict(checkpoint.loss)
        self.before = self.run.read_json("evaluation/before")
        self.best, self.best_epoch = checkpoint.best, checkpoint.best_epoch
        if self.best_epoch:
            self.after = self.run.read_json(f"evaluation/epoch-{self.best_epoch:03d}")
        self.memory = checkpoint.memory
        kept = self.run.array(PLAN_VECTORS)
        self.plan_vectors = None if kept is None else np.array(kept)
        self.vectors = np.array(self.run.array("embeddings_before"))
        if checkpoint.ends_epoch and not checkpoint.start.last:
            self._encode_texts()

    def _measure_untrained(self) -> None:
        with self.journal.timed("encode"):
            self._encode_texts()
        self.before = measure(self.config, self.data, self.vectors)
        main_metric(self.before["dev"], self.config.evaluation.metric)  # refuses a metric that the data do not define
        self.run.write_json("evaluation/before", self.before)
        self.run.write_array("embeddings_before", self.vectors)
        self.run.write_json("texts", {"digest": self.data.texts.digest, "count": len(self.data.texts)})
        self.journal.evaluation(0, self.before)

    def _plan(self, epoch: int) -> BatchPlan:
        path = self.run.plans_folder / f"epoch-{epoch + 1:03d}.npz"
        if self.resumed is not None and epoch < self.resumed.start.epoch:
            self.plan = BatchPlan.load(path)
            return self.plan
        with self.journal.timed("plan"):
            self._look_again(epoch)
            seed = self.config.training.seed
            self.plan = build_plan(
                self.config.batching, self.train, self.plan_vectors, seed=seed, epoch=epoch, previous=self.plan
            )
            self.run.plans_folder.mkdir(exist_ok=True)
            self.plan.save(path)
            batches = self.plan.batches(self.config.training.batch_size)
            self.journal.plan(epoch + 1, *plan_collisions(self.train, batches), self.plan)
        return self.plan

    def _look_again(self, epoch: int) -> None:
        """The vectors that the plans compare: every `refresh_epochs` those of the current model."""
        batching = self.config.batching
        if batching.strategy not in NEED_VECTORS or epoch % batching.refresh_epochs:
            return
        reused = self.memory if epoch and batching.refresh == "reuse" else None
        if reused is None and epoch and not self.config.evaluation.each_epoch:
            self._encode_texts()
        self.plan_vectors = self.vectors if reused is None else reused.copy()
        if batching.refresh_epochs > 1:
            self.run.write_array(PLAN_VECTORS, self.plan_vectors)  # for a run that is resumed before the next look

    def _encode_texts(self) -> None:
        """Vectors of the model as it is, in the precision that the run trains in."""
        with autocast(self.precision, self.model.device):
            self.vectors = encode(self.model, self.tokens, progress=self.journal.encoding)

    def _measure_epoch(self, report: StepReport) -> None:
        """Measure after an epoch and keep the model when it is the best on dev so far (strictly)."""
        if not (self.config.evaluation.each_epoch or report.last):
            return
        with self.journal.timed("encode"):
            self._encode_texts()
        metrics = self._measure()
        name, value = main_metric(metrics["dev"], self.config.evaluation.metric)
        self.run.write_json(f"evaluation/epoch-{report.epoch:03d}", metrics)
        self.journal.evaluation(report.epoch, metrics)
        if self.best is None or value > self.best:
            self._keep(metrics, report.epoch, name, value)

    def _measure(self) -> dict[str, Metrics]:
        """Metrics of the model as it is; where its loss classifies pairs, also the accuracy of its classes."""
        metrics = measure(self.config, self.data, self.vectors)
        for name, part in self.data.parts.items():
            if name in metrics and (accuracy := class_accuracy(self.loss, part, self.vectors)) is not None:
                metrics[name]["class_accuracy"] = accuracy
        return metrics

    def _keep(self, metrics: dict[str, Metrics], epoch: int, name: str, value: float) -> None:
        self.best, self.after, self.best_epoch = value, metrics, epoch
        self.run.update_status(metric_name=name, metric_best=value)
        self._save_model()
        self.run.write_array("embeddings_after", self.vectors)

    def _save_model(self) -> None:
        card = model_card(
            f"bsc-lab {self.run.id}",
            base=self.config.encoder.name,
            settings=_settings(self.config),
            before=self.before,
            after=self.after,
        )
        save_model(self.model, self.run.model_folder, card)
        if any(True for _ in self.loss.parameters()):
            save_loss(self.loss, self.run.folder / "loss")

    def _stop_here(self, trainer: Trainer, report: StepReport) -> None:
        """Keep the state that the stop found; before the first epoch's end it is also the model."""
        if not report.ends_epoch:
            self._save_checkpoint(trainer, report)
        if not self.after:
            self._save_model()
            self._encode_texts()
            metrics = self._measure()
            self._keep(metrics, report.epoch, *main_metric(metrics["dev"], self.config.evaluation.metric))

    def _finish(self, state: str, trainer: Trainer) -> dict[str, Any]:
        self.run.write_json("evaluation/after", self.after)
        summary = self.journal.summary()
        result = {
            "run": self.run.id,
            "state": state,
            "model": str(self.run.model_folder),
            "metrics": {"before": self.before, "after": self.after},
            "best_epoch": self.best_epoch,
            "rows": {"train": len(self.train if self.stream is None else self.stream), "dev": len(self.data.dev)},
            "rejected": rejected_rows(self.data.reports),
            "funnel": {stage.name: stage.count for stage in self.data.funnel},
            "texts": len(self.data.texts),
            "precision": self.precision,
            "device": str(trainer.accelerator.device),
            **summary,
            **measured_speed(summary, self.data, self.run.folder),
        }
        self.run.write_json("result", result)
        return result


def _settings(config: RunConfig) -> dict[str, object]:
    """The sections that decide the weights, flat: `loss.temperature` and so on."""
    chosen = config.model_dump(include={"encoder", "batching", "loss", "training"}, exclude_none=True)
    return {f"{section}.{name}": value for section, fields in chosen.items() for name, value in fields.items()}

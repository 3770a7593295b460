"""The main path, from a config to a trained and measured model. Read this first.

`run_experiment` reads the data, encodes and measures with the untouched encoder, trains epoch by epoch, measures after
each, and keeps the model that was best on dev. All it writes goes into the run's folder. Where several processes train
one run, the first of them measures, plans, writes and decides, and the others follow.
"""

# U distinct texts, D dimensions

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from bsc_core.batching import BatchPlan, plan_notes
from bsc_core.batching.arrays import Ids
from bsc_core.comparison import keep_measured
from bsc_core.config import RunConfig
from bsc_core.data import SPLIT_SEED, ExperimentData, PairDataset
from bsc_core.data.experiment import load_beside
from bsc_core.encoders import tokenise
from bsc_core.encoders.compiled import compile_encoder
from bsc_core.evaluation import main_metric
from bsc_core.losses.classification import class_accuracy
from bsc_core.measuring import Metrics, measure, rejected_rows
from bsc_core.preparation.prepare import load_experiment
from bsc_core.runs import RunStore
from bsc_core.training.beginning import begin_loss, begin_model, chain_to
from bsc_core.training.best import Best, flat_settings
from bsc_core.training.checkpoint import Checkpoint, check_finite, fingerprint, last_checkpoint, save_checkpoint
from bsc_core.training.epoch_plans import EpochPlans
from bsc_core.training.epoch_vectors import keep_vectors
from bsc_core.training.estimate import measured_speed
from bsc_core.training.first_batch import first_batch
from bsc_core.training.journal import Journal
from bsc_core.training.precision import resolve_precision
from bsc_core.training.ranks import start_ranks
from bsc_core.training.refusals import check_options
from bsc_core.training.rows import training_rows
from bsc_core.training.same_data import check_same_data, digest_of, with_own_marks
from bsc_core.training.seeding import seed_everything, set_threads
from bsc_core.training.streamed import PairStream, StreamedTrainer, streams
from bsc_core.training.text_vectors import TextVectors
from bsc_core.training.trackers import Trackers
from bsc_core.training.trainer import StepReport, Trainer

if TYPE_CHECKING:
    from bsc_core.runs import Run


def run_experiment(
    config: RunConfig, run: Run, *, on_report: Callable[[StepReport], object] | None = None
) -> dict[str, Any]:
    """Train and measure as the config says, writing into the run's folder; also the result, as `result.json`.

    Stops after the current step when the run is asked to. A run whose folder holds checkpoints goes on from the newest
    that can be read, to the same end, bit for bit on a processor. Returns run, state ("done" or "stopped"), model
    (folder) and metrics: before and after, by split. Raises InputError before any work is done, RunError when training
    cannot go on.
    """
    check_options(config)
    is_main = start_ranks().is_main
    told = config.training.report_to if is_main else ()
    trackers = Trackers(told, run.folder / "trackers", run_id=run.id, settings=flat_settings(config))
    with closing(Journal(run, trackers, silent=not is_main)) as journal:
        return _Experiment(config, run, journal).conduct(on_report)


class _Experiment:
    """What one run holds while it runs."""

    def __init__(self, config: RunConfig, run: Run, journal: Journal) -> None:
        set_threads(config.training.threads)
        seed_everything(config.training.seed)
        self.run, self.journal, self.ranks = run, journal, start_ranks()
        self.made_by = fingerprint(config)
        self.config = config = with_own_marks(config, run, self.ranks)
        self.journal.say("Reading the data")
        self.stream = PairStream(config) if streams(config) else None
        self.data = self._load_data()
        for sentence in [*rejected_rows(self.data.reports), *(stage.sentence() for stage in self.data.funnel)]:
            self.journal.say(sentence)
        self.train = training_rows(config, self.data.train)
        for sentence in plan_notes(config.batching, self.train):
            self.journal.say(f"Note: {sentence}")
        self.digest = digest_of(self.data, self.train, self.stream)
        self.resumed = last_checkpoint(run.checkpoints_folder, self.made_by)
        check_same_data(config, self.resumed, self.digest)
        self.journal.say("Loading the encoder")
        self.model = begin_model(config, RunStore(run.folder.parent), self.resumed)
        self.loss = begin_loss(config, self.model.get_embedding_dimension(), self.resumed, self.journal.say)
        self.precision = resolve_precision(config.training.precision, self.model.device)
        self.tokens = tokenise(self.model, self.data.texts.texts, config.encoder.max_length)
        if config.training.compile:
            self.journal.say("Compiling the encoder")
            compile_encoder(self.model, self.tokens)
        self.vectors = TextVectors(self.model, self.tokens, precision=self.precision, progress=self.journal.encoding)
        kept = 0 if self.resumed is None else self.resumed.start.epoch
        self.plans = EpochPlans(config, self.train, self.vectors, journal=self.journal, ranks=self.ranks, kept=kept)
        self.before: dict[str, Metrics] = {}
        self.best = Best(config, run)

    def _load_data(self) -> ExperimentData:
        """The data; where the training pairs are streamed, a sample stands for them."""
        if self.stream is None:
            return load_experiment(self.config.data, seed=SPLIT_SEED, progress=self.journal.encoding)
        self.journal.say(f"{len(self.stream):,} training pairs are streamed from shards")
        return load_beside(self.stream.sample, self.config.data)

    def _make_trainer(self) -> Trainer:
        start = None if self.resumed is None else self.resumed.start
        if self.stream is not None:
            pairs, batches = next(self.stream.windows(self.config.training.batch_size))
            self._show_first_batch(pairs, batches[0])
            return StreamedTrainer(self.model, self.loss, stream=self.stream, start=start)
        return Trainer(
            self.model,
            self.loss,
            dataset=self.train,
            tokens=self.tokens,
            config=self.config.training,
            plan_for=self._plan,
            memory=self.vectors.steps,
            start=start,
        )

    def conduct(self, on_report: Callable[[StepReport], object] | None) -> dict[str, Any]:
        if self.resumed is not None:
            self._go_on_from(self.resumed)
        elif self.ranks.is_main:
            self._measure_untrained()
        if self.config.batching.refresh == "reuse" and self.vectors.steps is None:
            self.vectors.steps = self.vectors.all.copy()
        trainer, state = self._make_trainer(), "done"
        for report in () if self._gave_up_before() else trainer:
            self.journal.step(report)
            if on_report is not None:
                on_report(report)
            ending = None
            if self.ranks.is_main:
                self._after_step(trainer, report)
                ending = self._ending(report)
            if (ending := self.ranks.share(ending)) is not None:
                state = ending
                break
        if state == "stopped" and self.ranks.is_main:
            self._stop_here(trainer, report)
        return self._finish(state, trainer) if self.ranks.is_main else {"run": self.run.id, "state": state}

    def _after_step(self, trainer: Trainer, report: StepReport) -> None:
        """Measure where an epoch ends, and save where it is time to."""
        every = self.config.training.checkpoint_steps
        if not report.ends_epoch and not (every and report.step % every == 0):
            return
        check_finite(trainer, report)
        if report.ends_epoch:
            self._measure_epoch(report)
        self._save_checkpoint(trainer, report)

    def _ending(self, report: StepReport) -> str | None:
        """The state in which training ends after this step, before its time; None where it goes on."""
        if report.last:
            return None
        if report.ends_epoch and self.best.gives_up_after(report.epoch):
            self.run.update_status(steps=report.step, epochs=report.epoch)
            self.journal.say(f"Ending: epoch {self.best.epoch} on dev was not surpassed since")
            return "done"
        return "stopped" if self.run.stop_requested() else None

    def _gave_up_before(self) -> bool:
        """Whether the checkpoint is of the very step after which training ended before its time."""
        resumed = self.resumed
        return resumed is not None and resumed.ends_epoch and self.best.gives_up_after(resumed.start.epoch)

    def _save_checkpoint(self, trainer: Trainer, report: StepReport) -> None:
        with self.journal.timed("checkpoint"):
            save_checkpoint(
                self.run.checkpoints_folder,
                trainer,
                report,
                keep=self.config.training.keep_checkpoints,
                best=(self.best.value, self.best.epoch),
                made_by=self.made_by,
                data=self.digest,
            )

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        """Be where the run was when the checkpoint was written."""
        start = checkpoint.start
        self.journal.say(f"Going on after step {start.step:,}")
        if self.ranks.is_main:
            self.run.rewind_metrics(step=start.step, epoch=start.epoch, ends_epoch=checkpoint.ends_epoch)
        self.before = self.run.read_json("evaluation/before")
        self.best.restore(checkpoint.best, checkpoint.best_epoch)
        if self.ranks.is_main:
            self._tell_where(checkpoint)
        self.vectors.steps = checkpoint.memory
        self.vectors.all = np.array(self.run.array("embeddings_before"))
        goes_on = not start.last and not self._gave_up_before()
        if goes_on and checkpoint.ends_epoch and self.config.evaluation.each_epoch and self.ranks.is_main:
            with self.journal.timed("encode"):
                self.vectors.refresh()  # as the measuring left them

    def _tell_where(self, checkpoint: Checkpoint) -> None:
        """Let the status be that of the checkpoint, whatever comes after it."""
        start = checkpoint.start
        ended = start.last or self._gave_up_before()
        length = {"steps": start.step, "epochs": start.epoch} if ended else {}
        self.run.update_status(step=start.step, epoch=start.epoch, **length)
        if self.best.metrics:
            name, _ = main_metric(self.best.metrics["dev"], self.config.evaluation.metric)
            self.run.update_status(metric_name=name, metric_best=self.best.value)

    def _measure_untrained(self) -> None:
        started = RunStore(self.run.folder.parent).encoder(self.config.encoder)
        with self.journal.timed("encode"):
            self.vectors.begin(started, self.data.texts)
        self.before = measure(self.config, self.data, self.vectors.all)
        main_metric(self.before["dev"], self.config.evaluation.metric)  # refuses a metric that the data do not define
        self.run.write_json("evaluation/before", self.before)
        self.run.write_array("embeddings_before", self.vectors.all)
        self.run.write_json("texts", {"digest": self.data.texts.digest, "count": len(self.data.texts)})
        self.journal.evaluation(0, self.before)

    def _plan(self, epoch: int) -> BatchPlan:
        plan = self.plans(epoch)
        if epoch == 0:
            self._show_first_batch(self.train, plan.batches(self.config.training.batch_size)[0])
        return plan

    def _measure_epoch(self, report: StepReport) -> None:
        """Measure after an epoch and keep the model when it is the best on dev so far (strictly)."""
        if not (self.config.evaluation.each_epoch or report.last):
            return
        with self.journal.timed("encode"):
            self.vectors.refresh()
        keep_vectors(self.run, report.epoch, self.vectors.all, self.data, self.config.evaluation)
        metrics = self._measure()
        metric = main_metric(metrics["dev"], self.config.evaluation.metric)
        self.run.write_json(f"evaluation/epoch-{report.epoch:03d}", metrics)
        self.journal.evaluation(report.epoch, metrics)
        if self.best.is_beaten_by(metric[1]):
            self._keep(report.epoch, metrics, metric, ends_epoch=True)

    def _measure(self) -> dict[str, Metrics]:
        """Metrics of the model as it is; where its loss classifies pairs, also the accuracy of its classes."""
        metrics = measure(self.config, self.data, self.vectors.all)
        for name, part in self.data.parts.items():
            if name in metrics and (accuracy := class_accuracy(self.loss, part, self.vectors.all)) is not None:
                metrics[name]["class_accuracy"] = accuracy
        return metrics

    def _keep(self, epoch: int, metrics: dict[str, Metrics], metric: tuple[str, float], *, ends_epoch: bool) -> None:
        self.best.keep(epoch, metrics, metric=metric, vectors=self.vectors.all)
        self.best.save(self.model, self.loss, self.before, ends_epoch=ends_epoch)

    def _stop_here(self, trainer: Trainer, report: StepReport) -> None:
        """Keep the state that the stop found; before the first epoch's end it is also the model."""
        if not report.ends_epoch:
            check_finite(trainer, report)
            self._save_checkpoint(trainer, report)
        if not self.best.metrics:
            self.vectors.refresh()
            metrics = self._measure()
            metric = main_metric(metrics["dev"], self.config.evaluation.metric)
            self._keep(report.epoch, metrics, metric, ends_epoch=False)

    def _finish(self, state: str, trainer: Trainer) -> dict[str, Any]:
        self.run.write_json("evaluation/after", self.best.metrics)
        self.journal.say("Drawing the intervals of the metrics")
        keep_measured(self.run, self.data)
        summary = self.journal.summary(trainer.accelerator.device)
        result = {
            "run": self.run.id,
            "state": state,
            "model": str(self.run.model_folder),
            "metrics": {"before": self.before, "after": self.best.metrics},
            "best_epoch": self.best.epoch,
            "chain": chain_to(self.config, self.run),
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

    def _show_first_batch(self, pairs: PairDataset, rows: Ids) -> None:
        if self.ranks.is_main:
            length = self.config.encoder.max_length
            shown = first_batch(self.model, pairs, rows, loss=self.config.loss, max_length=length)
            self.run.write_json("first_batch", shown)

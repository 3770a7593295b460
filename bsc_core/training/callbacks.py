"""Callbacks of the training loop; subclass `Callback` to write another."""

# N sampled texts, U distinct texts, D dimensions

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import EvaluationConfig, RunConfig, flatten
from bsc_core.data import DatasetSplits
from bsc_core.encoders import model_card, save_model
from bsc_core.encoders.merging import MergeWithStart
from bsc_core.evaluation import Evaluator
from bsc_core.evaluation.general import GeneralSuite
from bsc_core.losses import save_loss
from bsc_core.losses.classification import class_accuracy
from bsc_core.neighbors import unit_rows
from bsc_core.projection import sample_texts
from bsc_core.runs import Run
from bsc_core.runs.documents import BEST_EPOCH, FIRST_BATCH, GENERAL, GENERAL_SCORE, TEXTS
from bsc_core.runs.store import EPOCH_TEXTS, epoch_array, epoch_name
from bsc_core.training.checkpoint import fingerprint, save_checkpoint
from bsc_core.training.data import TrainingData
from bsc_core.training.embeddings import Embeddings
from bsc_core.training.first_batch import first_batch
from bsc_core.training.loop.trainer import Batches, Callback, StepReport, Trainer, TrainerState
from bsc_core.training.run_logger import WEIGHT_SECTIONS, RunLogger
from bsc_core.types import Vectors

__all__ = [
    "Callback",
    "EarlyStopping",
    "EvaluateEpochs",
    "OnStep",
    "SaveBest",
    "SaveCheckpoints",
    "SaveEpochVectors",
    "SaveFirstBatch",
    "StopOnRequest",
]

Metrics = dict[str, dict[str, float | None]]


class SaveFirstBatch(Callback):
    """Writes the pairs of the first batch of training into the run folder."""

    def __init__(self, config: RunConfig, run: Run) -> None:
        self.config, self.run = config, run

    def on_epoch_begin(self, trainer: Trainer, epoch: int, batches: Batches) -> None:
        """Write the first batch of the first epoch."""
        if epoch == 1:
            rows, length = next(iter(batches)), self.config.encoder.max_seq_length
            pairs = first_batch(
                trainer.encoder, trainer.sampler.dataset, rows, loss=self.config.loss, max_seq_length=length
            )
            self.run.write_json(FIRST_BATCH, pairs)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Vectors (U, D) and metrics by split after an epoch (from 1), and the dev metric that epochs are compared by.

    `general` has the metrics of the general suite; {} without `evaluation.general`.
    """

    epoch: int
    vectors: Vectors
    metrics: Metrics
    general: dict[str, float | None]
    name: str
    value: float


class EvaluateEpochs(Callback):
    """Evaluates the encoder before training, and after each epoch or, without `evaluation.each_epoch`, the last.

    With `training.merge_with_start`, the model is merged with its start while it is evaluated.

    Attributes:
        before: Metrics of the untrained encoder, by split.
        general: Metrics of the general suite, by `before`, epoch and `after`; {} without `evaluation.general`.
        latest: The evaluation of the current step; None if there was none.
    """

    def __init__(
        self,
        config: RunConfig,
        data: DatasetSplits,
        embeddings: Embeddings,
        log: RunLogger,
        merge: MergeWithStart | None = None,
    ) -> None:
        self.config, self.data, self.embeddings, self.log, self.run = config, data, embeddings, log, log.run
        self.merge = merge or MergeWithStart(None, None)
        self.evaluator = Evaluator(data, config.evaluation)
        self.before: Metrics = {}
        self.general: Metrics = {}
        self.latest: Evaluation | None = None
        self.suite: GeneralSuite | None = None
        if config.evaluation.general:
            self.suite = GeneralSuite.load(used=data.texts.texts, separate_sides=config.encoder.has_prompts)

    def on_train_begin(self, trainer: Trainer) -> None:
        """Evaluate the untrained encoder, or restore its metrics in a resumed run."""
        if trainer.resume is None:
            self._evaluate_untrained()
            return
        self.before, self.general = self.run.evaluation("before"), self.run.evaluation(GENERAL)
        untrained = np.array(self.run.embeddings("before"))
        self.embeddings.restore_steps(untrained if trainer.resume.step_vectors is None else trainer.resume.step_vectors)
        if not (trainer.resume.ends_epoch and self.config.evaluation.each_epoch):  # else those after the epoch
            self.embeddings.restore(untrained)

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Evaluate after an epoch."""
        self.latest = None
        if not report.ends_epoch:
            return
        trainer.check_finite(report.step)
        if self.config.evaluation.each_epoch or report.last:
            self.latest = self.evaluate(trainer, report.epoch)
            self.run.write_evaluation(epoch_name(report.epoch), self.latest.metrics)
            self.log.evaluation(report.epoch, self.latest.metrics, self.latest.general.get(GENERAL_SCORE))

    def evaluate(self, trainer: Trainer, epoch: int) -> Evaluation:
        """Encode all texts and return the metrics; for a loss with a classifier also its accuracy."""
        general: dict[str, float | None] = {}
        with self.log.timed("encode"), self.merge.applied(trainer.model):
            self.embeddings.update()
            if self.suite is not None:
                general = self.suite.evaluate(self.embeddings.of_texts)
                self.save_general(epoch_name(epoch), general)
        vectors = self.embeddings.current
        if self.merge.is_active:
            self.embeddings.clear()
        metrics = self.evaluator.evaluate(vectors)
        for name, split in self.data.splits.items():
            if name in metrics and (accuracy := class_accuracy(trainer.loss, split, vectors)) is not None:
                metrics[name]["class_accuracy"] = accuracy
        return Evaluation(epoch, vectors, metrics, general, *self.evaluator.main_metric(metrics))

    def save_general(self, name: str, metrics: dict[str, float | None]) -> None:
        """Write the metrics of the general suite under a name: `before`, an epoch, or `after`."""
        if metrics:
            self.general[name] = metrics
            self.run.write_evaluation(GENERAL, self.general)

    def _evaluate_untrained(self) -> None:
        encoder = self.run.store.resolve_encoder(self.config.encoder)
        with self.log.timed("encode"):
            self.embeddings.load_or_encode(encoder, self.data.texts)
        vectors = self.embeddings.current
        self.before = self.evaluator.evaluate(vectors)
        self.evaluator.main_metric(self.before)  # raises an error for a metric that the data do not define
        self.run.write_evaluation("before", self.before)
        self.run.write_embeddings("before", vectors)
        self.run.write_json(TEXTS, {"digest": self.data.texts.digest, "count": len(self.data.texts)})
        if self.suite is not None:
            with self.log.timed("encode"):
                general = self.suite.evaluate(lambda texts: self.embeddings.of_texts(texts, encoder))
            self.save_general("before", general)
        self.log.evaluation(0, self.before, self.general.get("before", {}).get(GENERAL_SCORE))


def forgets(evaluate: EvaluateEpochs, epoch: int) -> bool:
    """Return whether the general score after an epoch is lower than before training by more than is tolerated."""
    tolerated = evaluate.config.training.early_stopping_general_loss
    before, after = (evaluate.general.get(name, {}).get(GENERAL_SCORE) for name in ("before", epoch_name(epoch)))
    return tolerated is not None and before is not None and after is not None and before - after > tolerated


class SaveEpochVectors(Callback):
    """Saves the vectors of at most `evaluation.epoch_texts` texts after each evaluated epoch, for the embedding map."""

    def __init__(self, evaluate: EvaluateEpochs) -> None:
        self.evaluate = evaluate

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Save the vectors if this step was evaluated."""
        evaluate = self.evaluate
        if evaluate.latest is not None:
            vectors, config = evaluate.latest.vectors, evaluate.config.evaluation
            save_epoch_vectors(evaluate.run, report.epoch, vectors, evaluate.data, config)


def save_epoch_vectors(
    run: Run, epoch: int, vectors: NDArray[np.float32], data: DatasetSplits, config: EvaluationConfig
) -> None:
    """Write the vectors (U, D) of at most `config.epoch_texts` texts as unit rows, (N, D) float16.

    Their text ids, (N,) int32, ascending and equal for every epoch, are the array `vectors/texts`. Nothing is written
    without `each_epoch` or with `epoch_texts = 0`. Cosines of the stored vectors are exact to about 1e-3.
    """
    if not (config.each_epoch and config.epoch_texts):
        return
    texts = sample_texts(data, config.epoch_texts)
    if run.array(EPOCH_TEXTS) is None:
        run.write_array(EPOCH_TEXTS, texts)
    run.write_array(epoch_array(epoch), unit_rows(vectors[texts]).astype(np.float16))


class SaveBest(Callback):
    """Saves the model, its vectors and its metrics whenever its dev metric is better than before.

    After the first model, one that loses more of the general score than is tolerated is not saved.

    Attributes:
        value: Dev metric of the best epoch; None before the first evaluation.
        epoch: The best epoch, counted from 1; 0 before the first evaluation.
        metrics: Metrics of the best epoch, by split.
    """

    def __init__(self, config: RunConfig, evaluate: EvaluateEpochs) -> None:
        self.config, self.evaluate, self.run = config, evaluate, evaluate.run
        self.value: float | None = None
        self.epoch = 0
        self.metrics: Metrics = {}

    def on_train_begin(self, trainer: Trainer) -> None:
        """Restore the best epoch of a resumed run.

        A process that was killed may have saved a better model after the checkpoint was written.
        """
        if trainer.resume is None:
            return
        self.value, self.epoch = trainer.resume.best, trainer.resume.best_epoch
        saved = self.run.read_json(BEST_EPOCH)
        if saved and saved["epoch"] > self.epoch:
            self.value, self.epoch = saved["value"], saved["epoch"]
        if self.epoch:
            self.metrics = self.run.evaluation(epoch_name(self.epoch))
        if self.metrics:
            name, _ = self.evaluate.evaluator.main_metric(self.metrics)
            self.run.update_status(metric_name=name, metric_best=self.value)

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Save the model if this step was evaluated and is the best so far."""
        evaluation = self.evaluate.latest
        if evaluation is None:
            return
        is_better = self.value is not None and evaluation.value > self.value
        if self.value is None or (is_better and not forgets(self.evaluate, evaluation.epoch)):
            self._save(trainer, evaluation)
            self.run.write_json(BEST_EPOCH, {"epoch": self.epoch, "value": self.value})

    def on_train_end(self, trainer: Trainer) -> None:
        """Save the current model if training was stopped before the first evaluation; a resumed run replaces it."""
        if trainer.ending == "stopped" and trainer.report is not None and not self.metrics:
            self._save(trainer, self.evaluate.evaluate(trainer, trainer.report.epoch))

    def _save(self, trainer: Trainer, evaluation: Evaluation) -> None:
        self.value, self.epoch, self.metrics = evaluation.value, evaluation.epoch, evaluation.metrics
        self.run.update_status(metric_name=evaluation.name, metric_best=evaluation.value)
        self.run.write_embeddings("after", evaluation.vectors)
        self.evaluate.save_general("after", evaluation.general)
        card = model_card(
            f"bsc-lab {self.run.id}",
            base=self.config.encoder.name,
            settings=flatten(self.config, WEIGHT_SECTIONS, exclude_none=True),
            before=self.evaluate.before,
            after=self.metrics,
        )
        with self.evaluate.merge.applied(trainer.model):
            save_model(trainer.model, self.run.model_folder, card)
        if any(True for _ in trainer.loss.parameters()):
            save_loss(trainer.loss, self.run.loss_folder)


class EarlyStopping(Callback):
    """Ends training when `training.early_stopping_patience` epochs have passed without a better dev metric.

    Also ends it when the general score has lost more than `training.early_stopping_general_loss`.
    """

    def __init__(self, config: RunConfig, best: SaveBest, log: RunLogger) -> None:
        self.patience, self.best, self.log = config.training.early_stopping_patience, best, log

    def on_train_begin(self, trainer: Trainer) -> None:
        """End a resumed run at once if its checkpoint is of the step at which it stopped early."""
        if trainer.resume is not None:
            self._end_if_due(trainer, trainer.resume)

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """End training after an epoch if the patience is used up."""
        if reason := self._end_if_due(trainer, report):
            self.log.say(f"Early stopping: {reason}")

    def _end_if_due(self, trainer: Trainer, at: StepReport | TrainerState) -> str:
        """End training where it is due; return the reason, or an empty text."""
        reason = "" if at.last or not at.ends_epoch else self._reason(at.epoch)
        if reason:
            self.log.run.update_status(steps=at.step, epochs=at.epoch)
            trainer.stop("done")
        return reason

    def _reason(self, epoch: int) -> str:
        if forgets(self.best.evaluate, epoch):
            return "the general score has lost more than training.early_stopping_general_loss"
        if self.patience is not None and epoch - self.best.epoch >= self.patience:
            return f"dev has not improved since epoch {self.best.epoch}"
        return ""


class StopOnRequest(Callback):
    """Stops training after the step in which a stop was requested; after the last step, the run is done instead."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Stop if requested."""
        if not report.last and self.run.stop_requested():
            trainer.stop("stopped")


class SaveCheckpoints(Callback):
    """Saves a checkpoint after each epoch, every `training.save_steps` steps, and where training is stopped.

    It saves none if `training.save_total_limit` is 0. Add it after the callbacks that stop training.
    """

    def __init__(self, config: RunConfig, data: TrainingData, best: SaveBest, log: RunLogger) -> None:
        self.config, self.data, self.best, self.log = config, data, best, log

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Save a checkpoint if it is due."""
        every, keep = self.config.training.save_steps, self.config.training.save_total_limit
        if not keep or not (report.ends_epoch or (every and report.step % every == 0) or trainer.ending):
            return
        if not report.ends_epoch:  # after an epoch, `EvaluateEpochs` has checked
            trainer.check_finite(report.step)
        with self.log.timed("checkpoint"):
            save_checkpoint(
                self.log.run.checkpoints_folder,
                trainer,
                report,
                keep=keep,
                best=(self.best.value, self.best.epoch),
                config_fingerprint=fingerprint(self.config),
                data=self.data.digest,
            )


class OnStep(Callback):
    """Calls a function with the report of each step, for example to print progress."""

    def __init__(self, function: Callable[[StepReport], object]) -> None:
        self.function = function

    def on_step_end(self, trainer: Trainer, report: StepReport) -> None:
        """Call the function."""
        self.function(report)

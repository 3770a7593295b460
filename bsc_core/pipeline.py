"""The main path, from a config to a trained and measured model. Read this first.

`run_experiment` reads the data, encodes and measures with the untouched encoder, trains epoch by epoch, measures after
each, and keeps the model that was best on dev. All it writes goes into the run's folder.
"""

# U distinct texts, D dimensions

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bsc_core.batching import BatchPlan, build_plan, plan_hardness
from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.data import SPLIT_SEED, ExperimentData, ReadReport, load_data, load_evaluation_data
from bsc_core.encoders import embed, encode, load_encoder, model_card, save_model, tokenise
from bsc_core.evaluation import Evaluator, evaluate, main_metric
from bsc_core.losses import build_loss, save_loss
from bsc_core.losses.classification import class_accuracy
from bsc_core.training.checkpoint import save_checkpoint
from bsc_core.training.estimate import measured_speed
from bsc_core.training.journal import Journal
from bsc_core.training.precision import autocast, resolve_precision
from bsc_core.training.rows import check_views, training_rows
from bsc_core.training.seeding import seed_everything, set_threads
from bsc_core.training.trainer import StepReport, Trainer

if TYPE_CHECKING:
    from bsc_core.runs import Run

Metrics = dict[str, float | None]
Vectors = NDArray[np.float32]


def run_experiment(
    config: RunConfig, run: Run, *, on_report: Callable[[StepReport], object] | None = None
) -> dict[str, Any]:
    """Train and measure as the config says, writing into the run's folder; also the result, as `result.json`.

    Stops after the current step when the run is asked to. Returns run, state ("done" or "stopped"), model (folder) and
    metrics: before and after, by split. Raises InputError before any work is done, RunError when training cannot go on.
    """
    return _Experiment(config, run).conduct(on_report)


class _Experiment:
    """What one run holds while it runs."""

    def __init__(self, config: RunConfig, run: Run) -> None:
        set_threads(config.training.threads)
        seed_everything(config.training.seed)
        self.config, self.run, self.journal = config, run, Journal(run)
        self.journal.say("Reading the data")
        self.data = load_data(config.data, seed=SPLIT_SEED)
        for sentence in rejected_rows(self.data.reports):
            self.journal.say(sentence)
        self.train = training_rows(config, self.data.train)
        self.journal.say("Loading the encoder")
        self.model = load_encoder(config.encoder)
        check_views(config, self.model)
        self.loss = self._build_loss()
        self.precision = resolve_precision(config.training.precision, self.model.device)
        self.tokens = tokenise(self.model, self.data.texts.texts, config.encoder.max_length)
        self.vectors: Vectors = np.empty((0, 0), dtype=np.float32)  # (U, D), of the model as it is
        self.best: float | None = None
        self.before: dict[str, Metrics] = {}
        self.after: dict[str, Metrics] = {}
        self.best_epoch = 0

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
        self._measure_untrained()
        trainer = Trainer(
            self.model,
            self.loss,
            dataset=self.train,
            tokens=self.tokens,
            config=self.config.training,
            plan_for=self._plan,
        )
        state, report, every = "done", None, self.config.training.checkpoint_steps
        for report in trainer:
            self.journal.step(report)
            if on_report is not None:
                on_report(report)
            if report.ends_epoch:
                self._measure_epoch(report)
            if report.ends_epoch or (every and report.step % every == 0):
                with self.journal.timed("checkpoint"):
                    save_checkpoint(self.run.checkpoints_folder, trainer, report)
            if self.run.stop_requested() and not report.last:
                state = "stopped"
                break
        if state == "stopped" and report is not None:
            self._stop_here(trainer, report)
        return self._finish(state, trainer)

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
        with self.journal.timed("plan"):
            if self.config.batching.strategy == "examples" and epoch and not self.config.evaluation.each_epoch:
                self._encode_texts()
            plan = build_plan(
                self.config.batching, self.train, self.vectors, seed=self.config.training.seed, epoch=epoch
            )
            self.run.plans_folder.mkdir(exist_ok=True)
            plan.save(self.run.plans_folder / f"epoch-{epoch + 1:03d}.npz")
        return plan

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
            save_checkpoint(self.run.checkpoints_folder, trainer, report)
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
            "rows": {"train": len(self.train), "dev": len(self.data.dev)},
            "rejected": rejected_rows(self.data.reports),
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


def rejected_rows(reports: Sequence[ReadReport], shown: int = 20) -> list[str]:
    """One sentence for each row that was not read, at most `shown` for a file, and then one for how many there are."""
    sentences = []
    for report in reports:
        sentences += [f"{report.source}: {row.sentence(report.unit)}" for row in report.rejected[:shown]]
        if report.rejected:
            sentences.append(f"{report.source}: {len(report.rejected):,} of {report.rows_read:,} rows rejected")
    return sentences


def measure(config: RunConfig, data: ExperimentData, vectors: Vectors) -> dict[str, Metrics]:
    """Metrics of dev and, where there is one, test; the threshold of F1 is chosen on dev and applied to test."""
    return Evaluator(data, config.evaluation).evaluate(vectors)


def evaluate_model(encoder: EncoderConfig, data: DataConfig, *, decision: float | None = None) -> dict[str, Any]:
    """Measure an encoder on all pairs of `data.train`. Returns model, data, rows, rejected and metrics.

    decision: cosine from which a pair counts as positive, such as a run's `f1_threshold` on its dev pairs; None chooses
    it on the measured pairs themselves, so that F1 is optimistic. `f1_threshold_from` says which.
    """
    dataset, documents = load_evaluation_data(data)
    vectors = embed(encoder, dataset.texts)
    return {
        "model": encoder.name,
        "data": data.train,
        "rows": len(dataset),
        "rejected": rejected_rows([dataset.report]),
        "metrics": evaluate(vectors, dataset, documents, decision=decision),
        "f1_threshold_from": "these pairs" if decision is None else "the dev pairs of the run",
    }


def plan_report(config: RunConfig, *, epoch: int = 0) -> dict[str, Any]:
    """What the batches of an epoch would hold, seen by the encoder the run starts from. Trains nothing.

    epoch counts from 0. Returns counts, sizes of the groups, and how hard the in-batch negatives are.
    """
    data = load_data(config.data, seed=SPLIT_SEED)
    train = training_rows(config, data.train)
    vectors = embed(config.encoder, data.texts)
    started = time.perf_counter()
    plan = build_plan(config.batching, train, vectors, seed=config.training.seed, epoch=epoch)
    seconds = time.perf_counter() - started
    found = plan_hardness(plan, train, vectors, config.training.batch_size)
    sizes, counts = np.unique(np.unique(plan.groups, return_counts=True)[1], return_counts=True)
    return {
        "strategy": config.batching.strategy,
        "epoch": epoch,
        "rows": len(train),
        "rejected": rejected_rows(data.reports),
        "batches": len(plan.batches(config.training.batch_size)),
        "groups": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "hardest_negative": _quantiles(found.hardest),
        "closer_share": found.closer_share,
        "collisions": found.collisions,
        "intact": found.intact,
        "seconds": seconds,
    }


def _quantiles(values: NDArray[np.floating[Any]]) -> dict[str, float | None]:
    """Tenth, middle and ninetieth percentile of the values that are defined."""
    defined = values[~np.isnan(values)]
    shares = {"p10": 0.1, "median": 0.5, "p90": 0.9}
    return {name: float(np.quantile(defined, share)) if len(defined) else None for name, share in shares.items()}

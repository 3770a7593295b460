"""Main path from a config to a trained and evaluated model. Read this module first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from bsc_core.batching import plan_warnings
from bsc_core.config import EncoderConfig, RunConfig
from bsc_core.data.decisions import applied_sentence, decisions_sentence
from bsc_core.data.generation.negatives import row_negatives
from bsc_core.data.load import load_evaluation_splits
from bsc_core.data.read_report import rejected_rows
from bsc_core.encoders import build_encoder, embed, load_encoder, tokenize
from bsc_core.encoders.compiled import compile_encoder
from bsc_core.encoders.layers import freeze_layers, load_initial_encoder
from bsc_core.encoders.lora import add_lora, check_lora, load_lora_state
from bsc_core.encoders.merging import MergeWithStart
from bsc_core.errors import CheckpointError, ConfigError
from bsc_core.files import error_reason
from bsc_core.losses import build_loss
from bsc_core.neighbors import check_finite
from bsc_core.preparation.experiment import load_experiment
from bsc_core.preparation.repeated_mining import RepeatedMining
from bsc_core.run_results import save_results
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESULT
from bsc_core.runs.ids import parent_run_id
from bsc_core.training.callbacks import (
    Callback,
    EarlyStopping,
    EvaluateEpochs,
    SaveBest,
    SaveCheckpoints,
    SaveEpochVectors,
    SaveFirstBatch,
    StopOnRequest,
)
from bsc_core.training.checkpoint import Checkpoint, load_resume_state
from bsc_core.training.data import PairStream, TrainingData, is_streamed, select_training_rows, with_copied_decisions
from bsc_core.training.embeddings import Embeddings
from bsc_core.training.estimate import measured_speed
from bsc_core.training.loop.device import device_name, seed_everything, set_threads
from bsc_core.training.loop.distributed import Distributed
from bsc_core.training.loop.optim import layer_rates
from bsc_core.training.loop.trainer import Trainer
from bsc_core.training.run_logger import RunLogger
from bsc_core.training.sampler import make_sampler
from bsc_core.training.trackers import check_trackers
from bsc_core.types import Progress, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def run_experiment(config: RunConfig, run: Run, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and evaluate one model, and write everything into the run folder.

    A run whose folder has checkpoints resumes from the newest readable one, bit for bit on a CPU. Several processes
    that a launcher started train one run together.

    Args:
        config: The experiment.
        run: The run folder to write into.
        callbacks: Additional callbacks, called after each step before the evaluation.

    Returns:
        The content of `result.json`: `run`, `state` ("done" or "stopped"), `model` (folder), `metrics` ("before" and
        "after", by split) and more; in processes other than the main one only `run` and `state`.

    Raises:
        InputError: The config, the data or the encoder cannot be used; nothing has been trained.
        RunError: Training cannot continue.
    """
    validate(config)
    distributed = Distributed.from_environment()
    with RunLogger(run, config, distributed) as log:
        set_threads(config.training.threads)
        seed_everything(config.training.seed)
        data = load_training_data(with_copied_decisions(config, run, distributed), log.say, log.encoding)
        resume = load_resume_state(run, config, data)  # None for a fresh run
        with log.timed("build"):
            build_encoder(config.encoder.name, log.say)
        log.say("Loading the encoder")
        model = load_model(config, run.store, resume)
        merge = load_merge(config, model, run.store, resume)
        loss = init_loss(config, model, resume, log.say)
        tokens = tokenize(model, data.splits.texts, config.encoder.max_seq_length)
        if config.training.compile:
            log.say("Compiling the encoder")
            compile_encoder(model, tokens)
        embeddings = Embeddings(model, tokens, config, log.encoding)
        guide = distributed.on_main(lambda: guide_vectors(config, data, run.store, log.encoding))
        sampler = make_sampler(config, data, embeddings, log, resume, guide, make_miner(config, data))
        trainer = Trainer(model, loss, sampler, config.training, resume=resume, without_padding=config.encoder.unpadded)
        evaluate = EvaluateEpochs(config, data.splits, embeddings, log, merge)
        best = SaveBest(config, evaluate)
        trainer.fit(
            [
                log,
                *callbacks,
                SaveFirstBatch(config, run),
                evaluate,
                SaveEpochVectors(evaluate),
                best,
                EarlyStopping(config, best, log),
                StopOnRequest(run),
                SaveCheckpoints(config, data, best, log),
            ]
        )
        return summarize(config, data, trainer, best, log)


def load_training_data(
    config: RunConfig,
    say: Callable[[str], object] = lambda message: None,
    progress: Callable[[int, int], object] | None = None,
) -> TrainingData:
    """Read, filter and generate the data of a run, and select the rows that the loss trains on.

    Args:
        config: Config of the run.
        say: Called with messages for the log.
        progress: Called with (texts done, texts in total) while texts are encoded to generate rows.
    """
    say("Reading the data")
    stream = PairStream(config) if is_streamed(config) else None
    if stream is None:
        splits = load_experiment(config.data, progress=progress)
    else:
        say(f"{len(stream):,} training pairs are streamed from shards")
        splits = load_evaluation_splits(stream.sample, config.data)
    for sentence in [*rejected_rows(splits.reports), *(stage.sentence() for stage in splits.funnel)]:
        say(sentence)
    if stream is not None and stream.decisions:
        say(decisions_sentence(stream.decisions))
    elif applied := applied_sentence(splits.train):
        say(applied)
    train = select_training_rows(config, splits.train)
    for sentence in plan_warnings(config.batching, train):
        say(f"Note: {sentence}")
    return TrainingData(splits, train, stream)


def make_miner(config: RunConfig, data: TrainingData) -> RepeatedMining | None:
    """Return what mines the negatives again during training, or None where the config does not request it."""
    negatives = config.data.negatives
    if negatives is None or negatives.refresh_epochs is None or not (row_negatives(data.train) >= 0).any():
        return None
    return RepeatedMining(data.train, data.splits.corpus, negatives)


def guide_vectors(
    config: RunConfig, data: TrainingData, store: RunStore, progress: Progress | None = None
) -> Vectors | None:
    """Return the vectors of the guide of the loss for all texts, (U, G), from the cache if they are there.

    Returns None for a loss without a guide.

    Raises:
        InputError: The guide cannot be loaded, or one of its vectors is not finite.
    """
    if config.loss.guide is None:
        return None
    guide = EncoderConfig(name=config.loss.guide, max_seq_length=config.encoder.max_seq_length)
    vectors = embed(store.resolve_encoder(guide), data.splits.texts, progress=progress)
    problem = f"{config.loss.guide}: the guide gives a text a vector that is not finite; choose another one"
    return check_finite(vectors, problem)


def summarize(
    config: RunConfig, data: TrainingData, trainer: Trainer, best: SaveBest, log: RunLogger
) -> dict[str, Any]:
    """Write the results of a run and return them; in processes other than the main one only its id and state."""
    run, splits, parent = log.run, data.splits, parent_run_id(config.encoder.name)
    if not log.distributed.is_main:
        return {"run": run.id, "state": trainer.ending}
    run.write_evaluation("after", best.metrics)
    general = {name: best.evaluate.general[name] for name in ("before", "after") if name in best.evaluate.general}
    log.say("Computing confidence intervals of the metrics")
    save_results(run, splits)
    summary = log.summary(trainer.accelerator.device)
    result = {
        "run": run.id,
        "state": trainer.ending,
        "model": str(run.model_folder),
        "metrics": {"before": best.evaluate.before, "after": best.metrics},
        **({"general": general} if general else {}),
        "best_epoch": best.epoch,
        "chain": None if parent is None else {"run": parent, "model": str(run.folder.parent / parent / "model")},
        "rows": {"train": data.row_count, "dev": len(splits.dev)},
        "rejected": rejected_rows(splits.reports),
        "funnel": {stage.name: stage.count for stage in splits.funnel},
        "decisions": applied_sentence(splits.train),
        "texts": len(splits.texts),
        "precision": trainer.precision,
        "device": device_name(trainer.accelerator.device),
        **summary,
        **measured_speed(summary, splits, run),
    }
    run.write_json(RESULT, result)
    return result


def validate(config: RunConfig) -> None:
    """Raise ConfigError for options that contradict each other or need a package that is not installed."""
    training = config.training
    if training.seeds:
        raise ConfigError(
            f"training.seeds is {list(training.seeds)}, and a run has one seed; launch a group with bsc sweep, or "
            "leave training.seeds empty"
        )
    if training.early_stopping_patience is not None and not config.evaluation.each_epoch:
        raise ConfigError(
            f"training.early_stopping_patience is {training.early_stopping_patience} and evaluation.each_epoch is "
            "false, so no epoch is evaluated; change one of them"
        )
    if training.merges and config.encoder.reinit_layers:
        raise ConfigError(
            f"training.merge_with_start is {training.merge_with_start:g} and encoder.reinit_layers is "
            f"{config.encoder.reinit_layers}, so trained layers would be merged with random ones; leave one of them out"
        )
    if training.early_stopping_general_loss is not None and not (
        config.evaluation.general and config.evaluation.each_epoch
    ):
        raise ConfigError(
            f"training.early_stopping_general_loss is {training.early_stopping_general_loss:g}, which needs "
            "evaluation.general and evaluation.each_epoch; set both to true, or leave it out"
        )
    check_trackers(training.report_to)
    if config.encoder.lora is not None:
        check_lora()
        for name in ("reinit_layers", "freeze_layers"):
            if count := getattr(config.encoder, name):
                raise ConfigError(
                    f"encoder.{name} is {count}, and encoder.lora freezes these layers; leave one of them out"
                )


def load_model(config: RunConfig, store: RunStore, resume: Checkpoint | None = None) -> SentenceTransformer:
    """Load the encoder of a run: from the checkpoint if resumed, else the config's, or that of its run in `store`.

    Upper layers are re-initialized unless resumed, lower layers frozen, and low-rank matrices added, where the config
    says so.

    Raises:
        InputError: The encoder cannot be loaded, or not be trained with this config.
    """
    encoder = config.encoder
    if resume is None:
        model = load_initial_encoder(store.resolve_encoder(encoder), config.training.seed)
    else:
        model = load_encoder(encoder.model_copy(update={"name": str(resume.model_folder)}))
    if encoder.lora is not None:
        add_lora(model, encoder.lora)
    if encoder.freeze_layers:
        freeze_layers(model, encoder.freeze_layers, encoder.reinit_layers)
    if resume is not None and resume.lora is not None:
        lora = resume.lora
        _load_state(resume, lambda: load_lora_state(model, lora))
    check_dropout(config, model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    layer_rates(trained, config.training)  # raises an error for an encoder without layers
    return model


def load_merge(
    config: RunConfig, model: SentenceTransformer, store: RunStore, resume: Checkpoint | None = None
) -> MergeWithStart:
    """Return the interpolation of a run's model with its start, which a resumed run loads again.

    Raises:
        InputError: The start cannot be loaded.
    """
    training, encoder = config.training, config.encoder
    if not training.merges or encoder.lora is not None:
        return MergeWithStart(training.merge_with_start, None)
    start = model if resume is None else load_encoder(store.resolve_encoder(encoder))
    return MergeWithStart(training.merge_with_start, start)


def init_loss(
    config: RunConfig,
    model: SentenceTransformer,
    resume: Checkpoint | None = None,
    say: Callable[[str], object] = lambda message: None,
) -> nn.Module:
    """Build the loss of a run, with the checkpoint's parameters if resumed; its warnings are passed to `say`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dimensions = model.get_embedding_dimension()
        loss = build_loss(config.loss, threshold=config.data.threshold, dimensions=dimensions)
    for warning in caught:
        say(f"Note: {warning.message}")
    if resume is not None:
        _load_state(resume, lambda: loss.load_state_dict(resume.loss))
    return loss


def _load_state(resume: Checkpoint, load: Callable[[], object]) -> None:
    try:
        load()
    except (RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{resume.folder}: its parameters are of another model ({error_reason(error)})") from None


def check_dropout(config: RunConfig, model: nn.Module) -> None:
    """Raise ConfigError for a loss that needs two dropout views of a text if the encoder has no dropout."""
    has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
    if "views" in config.loss.needs and not has_dropout:
        raise ConfigError(
            f"{config.loss.name} compares two dropout views of a text, and encoder {config.encoder.name} has no "
            "dropout; use a transformer, such as bundled, or another loss"
        )

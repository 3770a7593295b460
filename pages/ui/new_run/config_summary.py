"""A run config as text: one sentence per section, the full plan, and warnings. Imports no Streamlit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bsc_core.batching.plan import NEED_VECTORS
from bsc_core.config import BatchingConfig, EncoderConfig, LossConfig, RunConfig, TrainingConfig
from bsc_core.data.decisions import decided_rows
from bsc_core.formatting import count, number, plural
from bsc_core.losses.catalog import CATALOG
from bsc_core.presets.suitable_losses import DataShape, shape_of, suitable_losses
from bsc_core.runs.ids import parent_run_id
from bsc_core.training.data import trains_on_negatives

if TYPE_CHECKING:
    from bsc_core.data.load import DatasetSplits

ENCODER_NAMES = {"bundled": "all-MiniLM-L6-v2 (bundled)", "static": "static token vectors (fast)"}
LOSS_NAMES = {
    "bsc": "batch softmax",
    "combined": "weighted sum",
    "mse": "squared error",
    "pearson": "correlation",
    "softmax": "classifier",
    "supcon": "supervised contrastive",
    "triplet": "triplet",
    "contrastive": "contrastive",
    "online_contrastive": "online contrastive",
    "simcse": "SimCSE",
    "mnrl": "multiple negatives ranking (MNRL)",
    "sigmoid": "sigmoid of every query-document pair (SigLIP)",
    "cosent": "order of the cosines (CoSENT)",
    "angle": "order of the angles (AnglE)",
}
NORMALIZATIONS = {
    "l2": "cosine similarity",
    "l2_columns": "columns of unit length",
    "range_columns": "columns scaled by their range",
    "minmax_columns": "columns scaled to 0..1",
    "none": "raw dot products",
}
IN_BATCH_LOSSES = ("bsc", "mnrl", "simcse", "sigmoid")
USUAL_TEMPERATURES = {"l2": (0.02, 0.5), "none": (0.5, 20.0)}
USUAL_TEMPERATURES_BY_COLUMN = (1.0, 3.0)
FEW_STEPS, ENOUGH_STEPS = 20, 60  # of a run: where a warning begins, and what it suggests
BATCHING = {  # strategy: fields shown first, fields under More
    "nearest": (("group_size", "group_by", "metric"), ("neighbors", "search", "distinct_texts", "easy_first")),
    "words": (("group_size", "group_by", "shingle_size"), ("stop_count",)),
    "clusters": (("group_size", "group_by", "clusters"), ("metric",)),
    "neighbors": (("group_size", "group_by", "shingle_size"), ("shingle_neighbors", "metric", "search")),
    "communities": (("group_size", "graph_neighbors", "skip_ranks"), ("metric", "search")),
    "cuthill_mckee": (("graph_neighbors", "metric"), ("search",)),
}
SOURCES = ("single_source", "mixing", "mixing_temperature")  # for training pairs of several files
LEARNING_RATE = "training.learning_rate"
MIN_ROWS_FOR_COLUMNS = 8
FEATURES = {"u": "u", "v": "v", "difference": "|u - v|", "product": "u * v (elementwise)"}


@dataclass(frozen=True)
class DataSummary:
    """Counts of the data that a plan mentions: rows, files, corpus size, distinct queries, and what losses can use."""

    train: int
    dev: int
    dev_queries: int
    corpus: int
    train_queries: int
    train_files: int
    shape: DataShape


def summarize_data(data: DatasetSplits) -> DataSummary:
    """Count the rows of each split, those of training after the decisions on pairs."""
    train = decided_rows(data.train)
    return DataSummary(
        train=len(train),
        dev=len(data.dev),
        dev_queries=len(data.dev.distinct_queries),
        corpus=len(data.corpus.document) if data.corpus is not None else 0,
        train_queries=len(train.distinct_queries),
        train_files=1 if train.source is None else len(np.unique(train.source)),
        shape=shape_of(train),
    )


def data_sentence(summary: DataSummary) -> str:
    """Describe the data section in one sentence."""
    shape = summary.shape
    has_negatives = shape.labeled and (shape.negatives > 0 or shape.graded)
    kind = "pair with a class" if shape.classes else "labeled pair" if has_negatives else "positive pair"
    corpus = f", search in {plural(summary.corpus, 'document')}" if summary.corpus else ""
    return f"Data: {plural(summary.train, kind)} to train, {count(summary.dev)} for dev{corpus}"


def encoder_sentence(encoder: EncoderConfig) -> str:
    """Describe the encoder section in one sentence."""
    lora = f", LoRA of rank {encoder.lora.rank}" if encoder.lora else ""
    prompts = ", with prompts" if encoder.has_prompts else ""
    layers = plural(encoder.reinit_layers, "layer")
    random = f", random weights in the upper {layers} and the pooler" if encoder.reinit_layers else ""
    return f"Encoder: {encoder_name(encoder.name)}, texts up to {encoder.max_seq_length} tokens{prompts}{lora}{random}"


def encoder_name(name: str) -> str:
    """Return the display name of an encoder; for a folder, its last part."""
    if (run_id := parent_run_id(name)) is not None:
        return f"the model of run {run_id}"
    return ENCODER_NAMES.get(name, Path(name).name or name)


def batching_sentence(batching: BatchingConfig) -> str:
    """Describe the batching section in one sentence."""
    groups = ", groups never split" if batching.keep_groups else ""
    collisions = ", no collisions" if batching.no_duplicates else ""
    sources = ", one dataset per batch" if batching.single_source else ""
    return f"Batches: {_order(batching)}{groups}{collisions}{sources}"


def _order(batching: BatchingConfig) -> str:
    groups = f"groups of up to {batching.group_size}"
    sides = "queries" if batching.group_by == "query" else "documents"
    shared = plural(batching.shingle_size, "word" if batching.strategy == "words" else "neighbor")
    return {
        "random": "random",
        "sequential": "that of the file",
        "nearest": f"{groups} pairs with similar {sides}",
        "words": f"{groups} pairs whose {sides} share {shared}",
        "clusters": f"{groups} pairs from the same of up to {plural(batching.clusters, 'cluster')}",
        "neighbors": f"{groups} pairs whose {sides} share {shared}",
        "premises": "all rows of a query together",
        "communities": f"{groups} pairs that are hard negatives of each other",
        "cuthill_mckee": "similar pairs close to each other (Cuthill-McKee)",
    }[batching.strategy]


def batching_fields(strategy: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a strategy that are shown first, and those under More."""
    shown, more = BATCHING.get(strategy, ((), ()))
    refresh = ("refresh", "refresh_epochs") if strategy in NEED_VECTORS else ()
    return ("strategy", *shown), (*more, *refresh, "keep_groups", "no_duplicates", *SOURCES)


def training_sentence(training: TrainingConfig) -> str:
    """Describe the training section in one sentence."""
    length = plural(training.max_steps, "step") if training.max_steps else plural(training.epochs, "epoch")
    rate = f"learning rate {number(training.learning_rate)}"
    seeds = plural(len(training.seeds), "seed") if training.seeds else f"seed {training.seed}"
    return f"Training: {length}, batch {count(training.batch_size)}, {rate}, {seeds}"


def format_bytes(number: int | None) -> str:
    """Format a number of bytes: `312 MB`, `1.4 GB`; `unknown` for None."""
    if number is None:
        return "unknown"
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(1, round(number / 1e6))} MB"


def weighted_losses(loss: LossConfig) -> list[tuple[float, Any]]:
    """Return the weighted parts of a combined loss, or the loss with weight 1."""
    return [(part.weight, part.loss) for part in loss.summands] if loss.name == "combined" else [(1.0, loss)]


def has_in_batch_negatives(loss: LossConfig) -> bool:
    """Whether the other pairs of a batch serve as negatives."""
    return any(part.name in IN_BATCH_LOSSES for _, part in weighted_losses(loss))


def handled_findings(config: RunConfig) -> dict[str, str]:
    """Return the codes of the audit findings that the settings handle, and how."""
    parts = [part for _, part in weighted_losses(config.loss) if part.name in IN_BATCH_LOSSES]
    if not parts:
        return {"repeated_documents": "without effect on this loss"}
    if all(getattr(part, "duplicates", "keep") != "keep" for part in parts):
        return {"repeated_documents": "handled by Duplicates of the loss"}
    return {"repeated_documents": "handled by No duplicates in a batch"} if config.batching.no_duplicates else {}


def loss_sentence(loss: Any) -> str:
    """Describe the loss section in one sentence."""
    name, temperature, normalization = LOSS_NAMES[loss.name], "", NORMALIZATIONS.get(getattr(loss, "normalization", ""))
    if hasattr(loss, "temperature"):
        kind = "learned, initially " if loss.learn_temperature else ""
        temperature = f"temperature {kind}{loss.temperature:g}"
        if getattr(loss, "temperature_end", None) is not None:
            temperature = f"temperature from {loss.temperature:g} to {loss.temperature_end:g}"
    match loss.name:
        case "bsc":
            text = f"{name}, {temperature}, {normalization}, {_directions(loss)}"
        case "combined":
            text = " + ".join(f"{weight:.3g} × {LOSS_NAMES[part.name]}" for weight, part in weighted_losses(loss))
        case "mse":
            text = "squared error of cosine and label"
        case "pearson":
            text = "negative correlation of cosines and labels"
        case "softmax":
            features = ", ".join(FEATURES[feature] for feature in loss.features)
            text = f"{name} of {loss.num_classes} classes on {features}{', frozen head' if loss.frozen_head else ''}"
        case "supcon":
            classifier = "" if loss.mix == 1 else f", classifier with weight {1 - loss.mix:g}"
            text = f"{name}, {temperature}, {normalization}{classifier}"
        case "simcse":
            text = f"{name}, two dropout views of each query, {temperature}"
        case "sigmoid" | "cosent" | "angle":
            text = f"{name}, {temperature}"
        case "mnrl":
            text = f"{name}, {temperature}, {_directions(loss)}"
        case _:
            text = f"{name}, margin {loss.margin:g} in {loss.distance} distance"
    return f"Loss: {', '.join([text, *_treatment(loss)])}"


def _directions(loss: Any) -> str:
    """Name the directions of an in-batch loss."""
    if loss.directions and loss.directions != ("query_to_doc",):
        return f"directions {' + '.join(loss.directions)} ({loss.partition.replace('_', ' ')})"
    return "both directions" if not loss.directions and loss.symmetric else "query to document"


def _treatment(loss: Any) -> Iterator[str]:
    """Name what an in-batch loss does with its negatives, and what any loss does with its dimensions."""
    if getattr(loss, "mask", "none") != "none":
        guide = "the model" if loss.mask == "self" else loss.mask_guide
        yield f"false-negative mask by {guide} ({loss.mask_margin_kind} margin {loss.mask_margin:g})"
    if getattr(loss, "hardness", "none") != "none":
        yield f"hardness weights {loss.hardness_strength:g} on {loss.hardness.replace('_', ' ')}"
    if getattr(loss, "decoupled", False):
        yield "decoupled"
    if getattr(loss, "debiased_prior", 0):
        yield f"debiased for {loss.debiased_prior:.0%} false negatives"
    if loss.matryoshka_dims:
        yield f"Matryoshka dimensions {', '.join(map(str, loss.matryoshka_dims))}"


def fitting_sentence(shape: DataShape) -> str:
    """List the losses that fit data of this shape."""
    return f"Losses that fit these data: {', '.join(CATALOG[name].title for name in suitable_losses(shape))}."


def count_rows(config: RunConfig, summary: DataSummary) -> int:
    """Count the rows of one epoch: triplets, all pairs, or only positive pairs where negatives are left out."""
    if "negatives" in config.loss.needs:
        return summary.shape.triplets
    return summary.train if trains_on_negatives(config) else summary.shape.positives


def count_steps(config: RunConfig, summary: DataSummary) -> int:
    """Count the optimizer steps of the run; a last batch of one pair joins the batch before it."""
    if config.training.max_steps:
        return config.training.max_steps
    batches, rest = divmod(count_rows(config, summary), config.training.batch_size)
    batches = max(1, batches + (rest > 1))
    return config.training.epochs * math.ceil(batches / config.training.gradient_accumulation_steps)


def effective_batch_size(config: RunConfig, summary: DataSummary) -> int:
    """Return the pairs in a batch, at most all rows."""
    return max(1, min(config.training.batch_size, count_rows(config, summary)))


def count_pairs(config: RunConfig, summary: DataSummary) -> int:
    """Count the pairs that the run trains on, repeated ones each time."""
    training = config.training
    if training.max_steps:
        return training.max_steps * training.batch_size * training.gradient_accumulation_steps
    return training.epochs * count_rows(config, summary)


def plan_sentences(config: RunConfig, summary: DataSummary) -> list[str]:
    """Describe the run as numbered steps."""
    rows, size = count_rows(config, summary), effective_batch_size(config, summary)
    kind = "triplet" if "negatives" in config.loss.needs else "training pair"
    corpus = f"search in {plural(summary.corpus, 'document')}" if summary.corpus else "without a corpus"
    negatives = positives = ""
    if has_in_batch_negatives(config.loss):
        if kind == "training pair" and summary.shape.positives < rows:
            positives = f"{count(summary.shape.positives)} positive, the others only add negatives; "
        negatives = f"; in a full batch, each query has up to {plural(size - 1, 'in-batch negative')}"
    each = " and after every epoch" if config.evaluation.each_epoch else ""
    patience = config.training.early_stopping_patience
    stop = f"; stop after {plural(patience, 'epoch')} without improvement" if patience else ""
    return [
        f"Start from {encoder_name(config.encoder.name)} and evaluate it on {plural(summary.dev, 'dev pair')} "
        f"({corpus}).",
        f"Put {plural(rows, kind)} ({positives}{plural(summary.train_queries, 'distinct query', 'distinct queries')}) "
        f"in batches of {count(size)}{negatives}. Order: {_order(config.batching)}.",
        f"Train for {_least(config)}{plural(count_steps(config, summary), 'step')}{_at_temperature(config.loss)} "
        f"with a learning rate that {_schedule(config.training)}.",
        f"Evaluate before and after training{each}; save the model that is best on dev{stop}.",
    ]


def _least(config: RunConfig) -> str:
    """Rows that may not share a batch can need more batches, so the steps are the least number."""
    has_conflicts = config.batching.no_duplicates or config.data.false_negatives
    return "at least " if has_conflicts and not config.training.max_steps else ""


def _at_temperature(loss: LossConfig) -> str:
    part = next((part for _, part in weighted_losses(loss) if hasattr(part, "temperature")), None)
    if part is None:
        return ""
    kind = "learned temperature, initially" if part.learn_temperature else "temperature of"
    return f" at a {kind} {part.temperature:g},"


def _schedule(training: TrainingConfig) -> str:
    rate = number(training.learning_rate)
    if training.schedule == "restarts":
        return f"rises to {rate} in each epoch"
    return f"rises to {rate} and decays linearly to 0" if training.warmup_ratio else f"decays linearly from {rate} to 0"


class ConfigWarning(NamedTuple):
    """What is unusual about a config, and the setting that changes it: a key and its usual value, or no key."""

    text: str
    key: str = ""
    value: Any = None


def config_warnings(config: RunConfig, summary: DataSummary) -> Iterator[ConfigWarning]:
    """Yield what is allowed but unusual; nothing for an ordinary plan."""
    training, encoder = config.training, config.encoder
    rate, rate_text = training.learning_rate, f"Learning rate {number(training.learning_rate)}"
    yield from map(ConfigWarning, loss_warnings(config, summary.shape))
    if config.batching.strategy == "nearest" and config.batching.group_size > training.batch_size:
        size = training.batch_size
        text = (
            f"Groups of {count(config.batching.group_size)} do not fit in a batch of {count(size)}; they will be split."
        )
        yield ConfigWarning(text, "batching.group_size", size)
    if rate > 1e-4 and encoder.name != "static" and not encoder.lora:
        text = f"{rate_text} is high for a transformer (1e-5 to 5e-5 is usual)."
        yield ConfigWarning(text, LEARNING_RATE, 2e-5)
    if rate >= 0.1 and encoder.name == "static":
        yield ConfigWarning(f"{rate_text} is high for static vectors (1e-3 is usual).", LEARNING_RATE, 1e-3)
    if rate < 1e-4 and encoder.name == "static":
        yield ConfigWarning(f"{rate_text} is low for static vectors (1e-3 is usual).", LEARNING_RATE, 1e-3)
    if encoder.lora and rate < 1e-4:
        yield ConfigWarning(f"{rate_text} is low for LoRA (1e-4 to 1e-3 is usual).", LEARNING_RATE, 2e-4)
    if (steps := count_steps(config, summary)) < FEW_STEPS:
        text = f"Only {plural(steps, 'step')} in total: too few to learn much."
        if training.max_steps:
            yield ConfigWarning(text, "training.max_steps", ENOUGH_STEPS)
        else:
            yield ConfigWarning(text, "training.epochs", math.ceil(training.epochs * ENOUGH_STEPS / steps))
    yield from map(ConfigWarning, _length_warnings(config, summary))


def _length_warnings(config: RunConfig, summary: DataSummary) -> Iterator[str]:
    """Yield what is unusual about the number of rows and steps, the schedule and the evaluation."""
    training, rows = config.training, count_rows(config, summary)
    size, patience = training.batch_size, training.early_stopping_patience
    if size > rows:
        yield f"A batch of {count(size)} is larger than the data ({plural(rows, 'row')}): every epoch is one step."
    rest = rows % size
    if has_in_batch_negatives(config.loss) and 1 < rest <= size // 8 and rows > size:
        yield f"The last batch of each epoch has only {plural(rest, 'pair')}, so its loss is lower than the others."
    if summary.dev_queries < 20:
        queries = plural(summary.dev_queries, "dev query", "dev queries")
        yield f"Only {queries} ({plural(summary.dev, 'pair')}): the metric is noisy."
    if training.gradient_accumulation_steps > 1 and has_in_batch_negatives(config.loss):
        yield (
            f"Gradient accumulation adds no negatives: each of {training.gradient_accumulation_steps} batches has its "
            "own. Gradient caching trains on one large batch in the same memory."
        )
    if patience and not config.evaluation.each_epoch:
        yield (
            "Early stopping needs a dev evaluation after every epoch; turn on 'Evaluate each epoch' or remove early "
            "stopping, otherwise the run fails."
        )
    if training.early_stopping_general_loss and not (config.evaluation.general and config.evaluation.each_epoch):
        yield (
            "'Tolerated decrease of the general score' needs that score after every epoch; turn on 'General score' and "
            "'Evaluate each epoch', otherwise the run fails."
        )
    if patience and patience >= training.epochs and not training.max_steps:
        yield f"Early stopping after {patience} epochs has no effect in a run of {plural(training.epochs, 'epoch')}."
    if training.schedule == "ends_early":
        yield "The learning rate is 0 for the last steps. This reproduces a mistake of the article."
    if training.schedule == "restarts":
        yield (
            "The learning rate rises over 10,000 steps and restarts in each epoch. "
            "This reproduces a mistake of the paper."
        )
    if not summary.corpus and not summary.shape.labeled:
        yield (
            "There is no corpus and no label: each dev query searches only the documents of the "
            f"{plural(summary.dev, 'dev pair')}. A search in few documents is easy, so metrics can be near 1 before "
            "training. To make it harder, import the data with a corpus, or increase the dev size."
        )


def loss_warnings(config: RunConfig, shape: DataShape) -> Iterator[str]:
    """Yield what is allowed but unusual about the loss, or what it cannot learn from these data."""
    loss, fitting = config.loss, suitable_losses(shape)
    parts = [part for _, part in weighted_losses(loss)]
    if loss.name not in fitting and not (loss.name == "combined" and all(part.name in fitting for part in parts)):
        yield f"These data offer little for the {LOSS_NAMES[loss.name]} loss to learn from. {fitting_sentence(shape)}"
    warnings = (warning for part in parts for warning in _part_warnings(part, shape, config.training.batch_size))
    yield from dict.fromkeys(warnings)
    if "views" in loss.needs and config.encoder.name == "static":
        yield "SimCSE needs dropout, which the static encoder lacks; select a transformer encoder, or the run fails."


def _part_warnings(loss: Any, shape: DataShape, batch_size: int) -> Iterator[str]:
    normalization = getattr(loss, "normalization", "l2")
    low, high = USUAL_TEMPERATURES.get(normalization, USUAL_TEMPERATURES_BY_COLUMN)
    temperature = getattr(loss, "temperature", low)
    if not low <= temperature <= high:
        effect = "low: only the hardest negative counts" if temperature < low else "high: all negatives count equally"
        yield f"Temperature {temperature:g} is {effect} ({low:g} to {high:g} is usual here)."
    if normalization.endswith("_columns") and batch_size < MIN_ROWS_FOR_COLUMNS:
        yield f"Columns are normalized over a batch of {batch_size}: too few texts to estimate a column's range."
    if loss.name == "supcon" and normalization == "none":
        yield "Raw dot products grow with the vectors, so temperatures are not comparable; l2 makes them so."
    if getattr(loss, "margin_warning", None):
        yield loss.margin_warning
    if getattr(loss, "frozen_head", False):
        yield "The head stays a random projection. This reproduces a mistake of the article."
    if getattr(loss, "mix", 0) == 1:
        yield "A mix of 1 leaves the classifier out, so no class accuracy is reported."
    if shape.negatives and not getattr(loss, "labeled_negatives", True):
        yield "The data have labeled negatives, and this plan leaves them out."

"""A config in words: one sentence for each section, the whole plan, and what is odd about it. No Streamlit here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.config import BatchingConfig, EncoderConfig, RunConfig, TrainingConfig
from bsc_core.figures import theme
from bsc_core.recipes.fitting import DataShape, shape_of
from bsc_core.runs import chain_of
from bsc_core.training.rows import keeps_negatives
from pages.ui import loss_words

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

NAMES = {"bundled": "all-MiniLM-L6-v2 (bundled)", "static": "static token vectors (fast)"}


@dataclass(frozen=True)
class Facts:
    """What the plan's words need to know of the data: rows, corpus size, distinct queries, what a loss can use."""

    train: int
    dev: int
    test: int
    corpus: int
    train_queries: int
    shape: DataShape


def facts(data: ExperimentData) -> Facts:
    """Count what the plan speaks of."""
    return Facts(
        train=len(data.train),
        dev=len(data.dev),
        test=len(data.test) if data.test is not None else 0,
        corpus=len(data.corpus.document) if data.corpus is not None else 0,
        train_queries=len(data.train.distinct_queries),
        shape=shape_of(data.train),
    )


def data_sentence(label: str, known: Facts | None) -> str:
    """The data section in one sentence."""
    if known is None:
        return f"Data: {label}"
    kind = data_kind(known.shape)
    corpus = f", search in {theme.many(known.corpus, 'document')}" if known.corpus else ""
    return f"Data: {theme.many(known.train, f'{kind} pair')} to train, {theme.count(known.dev)} for dev{corpus}"


def data_kind(shape: DataShape) -> str:
    """What the pairs carry, in one word."""
    if shape.classes:
        return "classified"
    return "graded" if shape.labelled else "positive"


def encoder_sentence(encoder: EncoderConfig) -> str:
    """The encoder section in one sentence."""
    lora = f", LoRA of rank {encoder.lora.rank}" if encoder.lora else ""
    return f"Encoder: {encoder_name(encoder.name)}, texts up to {encoder.max_length} tokens{lora}"


def encoder_name(name: str) -> str:
    """An encoder's name as one says it: the built-in ones by their model, a folder by its last part."""
    if (run_id := chain_of(name)) is not None:
        return f"the model of run {run_id}"
    return NAMES.get(name, Path(name).name or name)


def batching_sentence(batching: BatchingConfig) -> str:
    """The batching section in one sentence."""
    whole = ", kept whole" if batching.keep_groups else ""
    apart = ", no collisions" if batching.forbid_collisions else ""
    return f"Batches: {_order(batching)}{whole}{apart}"


def _order(batching: BatchingConfig) -> str:
    """What a strategy makes of the pairs."""
    groups = f"groups of {batching.group_size}"
    shared = theme.many(batching.shingle_size, "word" if batching.strategy == "words" else "neighbour")
    return {
        "random": "pairs in random order",
        "sequential": "pairs in the order of the file",
        "examples": f"{groups} nearest {batching.by} neighbours",
        "words": f"{groups} whose {'queries' if batching.by == 'query' else 'documents'} share {shared}",
        "clusters": f"{groups} from one of {theme.many(batching.clusters, 'cluster')}",
        "neighbours": f"{groups} whose {'queries' if batching.by == 'query' else 'documents'} share {shared}",
        "premises": "all rows of a query together",
    }[batching.strategy]


def training_sentence(training: TrainingConfig) -> str:
    """The training section in one sentence."""
    length = theme.many(training.steps, "step") if training.steps else theme.many(training.epochs, "epoch")
    rate = f"learning rate {small(training.learning_rate)}"
    seeds = f"{len(training.seeds)} seeds" if training.seeds else f"seed {training.seed}"
    return f"Training: {length}, batch {theme.count(training.batch_size)}, {rate}, {seeds}"


def small(value: float) -> str:
    """A rate as one writes it: `3e-5`, `0.001`."""
    return f"{value:g}".replace("e-0", "e-")


def size(number: int | None) -> str:
    """A number of bytes: `312 MB`, `1.4 GB`; `unknown` for None."""
    if number is None:
        return "unknown"
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(1, round(number / 1e6))} MB"


def rows(config: RunConfig, known: Facts) -> int:
    """The rows that the loss trains on: triplets, all pairs, or the positive ones where negatives are left out."""
    if "negatives" in config.loss.needs:
        return known.shape.triplets
    return known.train if keeps_negatives(config) else known.shape.positives


def steps(config: RunConfig, known: Facts) -> int:
    """Optimiser steps of the whole run; a last batch of one pair joins the batch before."""
    if config.training.steps:
        return config.training.steps
    whole, rest = divmod(rows(config, known), config.training.batch_size)
    return config.training.epochs * math.ceil(max(1, whole + (rest > 1)) / config.training.accumulation)


def batch(config: RunConfig, known: Facts) -> int:
    """Pairs of a whole batch: all there are, where they are fewer than asked for."""
    return max(1, min(config.training.batch_size, rows(config, known)))


def pairs(config: RunConfig, known: Facts) -> int:
    """Pairs that the run trains on, one counted as often as it comes."""
    training = config.training
    if training.steps:
        return training.steps * training.batch_size * training.accumulation
    return training.epochs * rows(config, known)


def plan_sentences(config: RunConfig, known: Facts) -> list[str]:
    """The whole plan in words, in the order it will happen."""
    each = " and after every epoch" if config.evaluation.each_epoch else ""
    encoder = encoder_name(config.encoder.name)
    kind = "triplet" if "negatives" in config.loss.needs else "training pair"
    measured = f"search in {theme.many(known.corpus, 'document')}" if known.corpus else "the dev pairs themselves"
    return [
        f"Start from {encoder} and measure it on {theme.many(known.dev, 'dev pair')} ({measured}).",
        f"Put {theme.many(rows(config, known), kind)} about {theme.many(known.train_queries, 'query', 'queries')} "
        f"in batches of {theme.count(batch(config, known))}{_told_apart(config, known)}: {_order(config.batching)}.",
        f"Take {theme.many(steps(config, known), 'step')}{loss_words.at_temperature(config.loss)} "
        f"with a learning rate that {_course(config.training)}.",
        f"Measure before, after{each}; keep the model that is best on dev{_until(config)}.",
    ]


def _until(config: RunConfig) -> str:
    patience = config.training.early_stopping
    return f", and end after {theme.many(patience, 'epoch')} without a better one" if patience else ""


def _course(training: TrainingConfig) -> str:
    rate = small(training.learning_rate)
    return f"rises to {rate} and falls to 0" if training.warmup else f"falls from {rate} to 0"


def _told_apart(config: RunConfig, known: Facts) -> str:
    if not loss_words.in_batch(config.loss):
        return ""
    return f", so each has {theme.many(batch(config, known) - 1, 'negative')} to be told from"


def oddities(config: RunConfig, known: Facts) -> list[str]:
    """What is allowed but unusual, and why one would look twice; empty for an ordinary plan."""
    training, batching = config.training, config.batching
    found = loss_words.oddities(config, known.shape)
    if training.batch_size > rows(config, known):
        found.append(
            f"A batch of {theme.count(training.batch_size)} is larger than the data "
            f"({theme.many(rows(config, known), 'row')}): every epoch is one step."
        )
    if batching.strategy == "examples" and batching.group_size > training.batch_size:
        groups, batches = theme.count(batching.group_size), theme.count(training.batch_size)
        found.append(f"Groups of {groups} do not fit in a batch of {batches}; they will be cut.")
    if training.learning_rate > 1e-4 and config.encoder.name != "static" and not config.encoder.lora:
        found.append(
            f"Learning rate {small(training.learning_rate)} is high for a transformer (1e-5 to 5e-5 is usual)."
        )
    if config.encoder.name == "static" and training.learning_rate < 1e-4:
        found.append(f"Learning rate {small(training.learning_rate)} is low for static vectors (1e-3 is usual).")
    if steps(config, known) < 20:
        found.append(f"Only {theme.many(steps(config, known), 'step')} in all: hardly time to learn.")
    if known.dev < 20:
        found.append(f"Only {theme.many(known.dev, 'dev pair')}: the metric will jump by chance.")
    found += _of_engine(config)
    if training.schedule == "ends_early":
        found.append("The learning rate is 0 for the last steps: the article's mistake, kept as a lesson.")
    if training.schedule == "restarts":
        found.append("The learning rate rises over 10,000 steps, anew in each epoch: the paper's mistake, a lesson.")
    if not known.corpus and not known.shape.labelled:
        found.append("No corpus and no labels: dev is measured by search among its own documents.")
    return found


def _of_engine(config: RunConfig) -> list[str]:
    """What is unusual about how the steps are taken."""
    training, found = config.training, []
    if training.accumulation > 1 and loss_words.in_batch(config.loss):
        found.append(
            f"Accumulation averages {training.accumulation} batches, but negatives stay within each: gradient caching "
            "takes one large batch in the same memory."
        )
    if training.early_stopping and not config.evaluation.each_epoch:
        found.append(
            "Early stopping looks at the dev metric of every epoch, and this plan measures none: it will be refused."
        )
    if training.early_stopping and training.early_stopping >= training.epochs and not training.steps:
        found.append(f"Early stopping after {training.early_stopping} epochs cannot act in {training.epochs}.")
    if config.encoder.lora and training.learning_rate < 1e-4:
        rate = small(training.learning_rate)
        found.append(f"Learning rate {rate} is low for LoRA (1e-4 to 1e-3 is usual).")
    return found

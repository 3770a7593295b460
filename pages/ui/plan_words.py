"""A config in words: one sentence for each section, the whole plan, and what is odd about it. No Streamlit here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.config import BatchingConfig, BSCLossConfig, EncoderConfig, RunConfig, TrainingConfig
from bsc_core.figures import theme

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

NAMES = {"bundled": "all-MiniLM-L6-v2 (bundled)", "static": "static token vectors (fast)"}


@dataclass(frozen=True)
class Facts:
    """What the plan's words need to know of the data: rows, distinct queries, labels, corpus size, longest group."""

    train: int
    train_positive: int
    dev: int
    test: int
    corpus: int
    labelled: bool
    negatives: bool
    train_queries: int


def facts(data: ExperimentData) -> Facts:
    """Count what the plan speaks of."""
    return Facts(
        train=len(data.train),
        train_positive=int(data.train.positive.sum()),
        dev=len(data.dev),
        test=len(data.test) if data.test is not None else 0,
        corpus=len(data.corpus.document) if data.corpus is not None else 0,
        labelled=data.train.label is not None,
        negatives=data.train.has_negatives,
        train_queries=len(data.train.distinct_queries),
    )


def data_sentence(label: str, known: Facts | None) -> str:
    """The data section in one sentence."""
    if known is None:
        return f"Data: {label}"
    kind = "graded" if known.labelled else "positive"
    corpus = f", search in {theme.many(known.corpus, 'document')}" if known.corpus else ""
    return f"Data: {theme.many(known.train, f'{kind} pair')} to train, {theme.count(known.dev)} for dev{corpus}"


def encoder_sentence(encoder: EncoderConfig) -> str:
    """The encoder section in one sentence."""
    name = NAMES.get(encoder.name, Path(encoder.name).name or encoder.name)
    return f"Encoder: {name}, texts up to {encoder.max_length} tokens"


def batching_sentence(batching: BatchingConfig) -> str:
    """The batching section in one sentence."""
    if batching.strategy == "random":
        return "Batches: pairs in random order"
    if batching.strategy == "sequential":
        return "Batches: pairs in the order of the file"
    whole = ", kept whole" if batching.keep_groups else ""
    return f"Batches: groups of {batching.group_size} nearest {batching.by} neighbours{whole}"


def loss_sentence(loss: BSCLossConfig) -> str:
    """The loss section in one sentence."""
    learned = "learned from" if loss.learn_temperature else "fixed at"
    sides = "both directions" if loss.symmetric else "queries choose documents"
    vectors = "cosine" if loss.normalization == "l2" else "raw dot products"
    return f"Loss: batch softmax, temperature {learned} {loss.temperature:g}, {vectors}, {sides}"


def training_sentence(training: TrainingConfig) -> str:
    """The training section in one sentence."""
    length = theme.many(training.steps, "step") if training.steps else theme.many(training.epochs, "epoch")
    rate = f"learning rate {small(training.learning_rate)}"
    return f"Training: {length}, batch {training.batch_size}, {rate}, seed {training.seed}"


def small(value: float) -> str:
    """A rate as one writes it: `3e-5`, `0.001`."""
    return f"{value:g}".replace("e-0", "e-")


def size(number: int | None) -> str:
    """A number of bytes: `312 MB`, `1.4 GB`; `unknown` for None."""
    if number is None:
        return "unknown"
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(1, round(number / 1e6))} MB"


def rows(config: RunConfig, known: Facts) -> int:
    """The pairs that the loss trains on: all, or the positive ones where labelled negatives are left out."""
    return known.train if config.loss.labelled_negatives else known.train_positive


def steps(config: RunConfig, known: Facts) -> int:
    """Optimiser steps of the whole run; a last batch of one pair joins the batch before."""
    if config.training.steps:
        return config.training.steps
    whole, rest = divmod(rows(config, known), config.training.batch_size)
    return config.training.epochs * max(1, whole + (rest > 1))


def plan_sentences(config: RunConfig, known: Facts) -> list[str]:
    """The whole plan in words, in the order it will happen."""
    each = " and after every epoch" if config.evaluation.each_epoch else ""
    encoder = NAMES.get(config.encoder.name, Path(config.encoder.name).name or config.encoder.name)
    negatives = config.training.batch_size - 1
    pairs = theme.many(rows(config, known), "training pair")
    temperature = f"{'learned from' if config.loss.learn_temperature else 'of'} {config.loss.temperature:g}"
    measured = f"search in {theme.many(known.corpus, 'document')}" if known.corpus else "the dev pairs themselves"
    return [
        f"Start from {encoder} and measure it on {theme.many(known.dev, 'dev pair')} ({measured}).",
        f"Put {pairs} about {theme.many(known.train_queries, 'query', 'queries')} "
        f"in batches of {config.training.batch_size}, "
        f"so each has {theme.many(negatives, 'negative')} to be told from: "
        f"{_order(config.batching)}.",
        f"Take {theme.many(steps(config, known), 'step')} at a temperature {temperature}, "
        f"with a learning rate that rises to {small(config.training.learning_rate)} and falls to 0.",
        f"Measure before, after{each}; keep the model that is best on dev.",
    ]


def _order(batching: BatchingConfig) -> str:
    orders = {"random": "drawn at random", "sequential": "in the order of the file"}
    return orders.get(
        batching.strategy, f"groups of {batching.group_size} whose {batching.by} texts lie close together"
    )


def oddities(config: RunConfig, known: Facts) -> list[str]:
    """What is allowed but unusual, and why one would look twice; empty for an ordinary plan."""
    loss, training, batching = config.loss, config.training, config.batching
    low, high = (0.02, 0.5) if loss.normalization == "l2" else (0.5, 20.0)
    found = []
    if not low <= loss.temperature <= high:
        side = "low: only the hardest negative counts" if loss.temperature < low else "high: all negatives count alike"
        found.append(f"Temperature {loss.temperature:g} is {side} ({low:g} to {high:g} is usual here).")
    if training.batch_size > rows(config, known):
        found.append(
            f"A batch of {training.batch_size} is larger than the data "
            f"({theme.many(rows(config, known), 'training pair')}): every epoch is one step."
        )
    if batching.strategy == "examples" and batching.group_size > training.batch_size:
        found.append(
            f"Groups of {batching.group_size} do not fit in a batch of {training.batch_size}; they will be cut."
        )
    if training.learning_rate > 1e-4 and config.encoder.name != "static":
        found.append(
            f"Learning rate {small(training.learning_rate)} is high for a transformer (1e-5 to 5e-5 is usual)."
        )
    if config.encoder.name == "static" and training.learning_rate < 1e-4:
        found.append(f"Learning rate {small(training.learning_rate)} is low for static vectors (1e-3 is usual).")
    if steps(config, known) < 20:
        found.append(f"Only {theme.many(steps(config, known), 'step')} in all: hardly time to learn.")
    if known.dev < 20:
        found.append(f"Only {theme.many(known.dev, 'dev pair')}: the metric will jump by chance.")
    if known.negatives and not loss.labelled_negatives:
        found.append("The data have labelled negatives, and this plan leaves them out.")
    if not known.corpus and not known.labelled:
        found.append("No corpus and no labels: dev is measured by search among its own documents.")
    return found

"""From the files of an experiment to what a run trains and measures on, with all that is made on the way."""

# U distinct texts, D dimensions

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.data.examples import make_examples
from bsc_core.data.experiment import ExperimentData, load_data
from bsc_core.data.nli import nli_rows
from bsc_core.data.pairs import PairDataset
from bsc_core.data.sentences import Sentences
from bsc_core.data.stages import Stage
from bsc_core.data.texts import TextTable
from bsc_core.encoders import embed, keep_vectors
from bsc_core.errors import ConfigError
from bsc_core.preparation.neighbours import sentence_neighbours
from bsc_core.preparation.ranked import add_negatives

Progress = Callable[[int, int], object]  # texts encoded, texts in all
Vectors = NDArray[np.float32]
GENERATORS = ("examples", "negatives", "nli")


def load_experiment(config: DataConfig, *, seed: int, progress: Progress | None = None) -> ExperimentData:
    """Read the data and make examples, negatives or added pairs as the config says; `funnel` tells what became of them.

    seed: decides which queries are held out when no dev rows are given. progress: of encoding for the neighbours.
    Examples are made of train, dev and test, each of its own sentences; negatives and added pairs of train alone.
    Raises ConfigError for generators that exclude each other, DataError where nothing can be made, and whatever
    `load_data` and the reference encoder raise.
    """
    given = [name for name in GENERATORS if getattr(config, name) is not None]
    if len(given) > 1:
        raise ConfigError(
            f"data.{given[0]} and data.{given[1]} are both given; each makes its own rows, so leave one out"
        )
    if config.examples is not None:
        _check_sentences(config)
    data = load_data(config, seed=seed)
    if config.examples is not None:
        return _with_examples(data, config.examples, progress)
    if config.negatives is not None:
        vectors = embed(config.negatives.encoder, data.texts, progress=progress)
        train, funnel = add_negatives(data.train, data.corpus, vectors, config.negatives)
        return replace(data, train=train, funnel=funnel)
    if config.nli is not None:
        train, funnel = nli_rows(data.train, config.nli)
        return replace(data, train=train, funnel=funnel)
    return data


def _check_sentences(config: DataConfig) -> None:
    """Refuse settings that are for pairs where sentences are read. Raises ConfigError."""
    if config.columns is not None:
        raise ConfigError(
            "data.columns names the texts of pairs, and data.examples reads sentences; name their columns in "
            "data.examples.text, data.examples.class_label and data.examples.split"
        )
    if "drop_self_pairs" in config.remedies:
        raise ConfigError(
            "data.remedies has drop_self_pairs, and sentences have no pairs yet; data.examples.distinct keeps a "
            "sentence from being its own neighbour"
        )


def _with_examples(data: ExperimentData, config: ExamplesConfig, progress: Progress | None) -> ExperimentData:
    vectors = embed(config.encoder, data.texts, progress=progress)
    made: dict[str, PairDataset] = {}
    funnels: dict[str, tuple[Stage, ...]] = {}
    for name, rows in data.parts.items():
        sentences = Sentences.from_pairs(rows)
        neighbours = sentence_neighbours(vectors, sentences, config)
        examples, funnels[name] = make_examples(sentences, neighbours, config, threshold=rows.threshold, part=name)
        made[name] = replace(examples, marks=rows.marks)
    whole = replace(data, train=made["train"], dev=made["dev"], test=made.get("test"), funnel=funnels["train"])
    return _without_idle_texts(whole, config.encoder, vectors)


def _without_idle_texts(data: ExperimentData, encoder: str, vectors: Vectors) -> ExperimentData:
    """The same data on a table that holds no text but theirs, whose vectors are known from here on."""
    columns = [column for part in data.parts.values() for column in part.text_columns]
    columns += [] if data.corpus is None else [data.corpus.document]
    used = np.unique(np.concatenate(columns))
    if len(used) == len(data.texts):
        return data
    moved = np.full(len(data.texts), -1, dtype=np.int32)
    moved[used] = np.arange(len(used), dtype=np.int32)
    texts = TextTable(tuple(data.texts.take(used)))
    keep_vectors(encoder, texts, vectors[used])
    return replace(
        data,
        train=_moved(data.train, texts, moved),
        dev=_moved(data.dev, texts, moved),
        test=None if data.test is None else _moved(data.test, texts, moved),
        corpus=None if data.corpus is None else data.corpus.moved_to(texts, moved),
    )


def _moved(part: PairDataset, texts: TextTable, moved: NDArray[np.int32]) -> PairDataset:
    marks = None if part.marks is None else part.marks[(moved[part.marks] >= 0).all(axis=1)]
    return replace(part, marks=marks).moved_to(texts, moved)

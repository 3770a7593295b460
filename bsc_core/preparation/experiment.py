"""Loading of an experiment's data with generated examples, negatives or NLI pairs."""

# U distinct texts, D dimensions

from dataclasses import replace

import numpy as np

from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.data.dataset import DatasetSplits, PairDataset, Stage
from bsc_core.data.generation.from_classes import generate_examples
from bsc_core.data.generation.nli import nli_rows
from bsc_core.data.load import SPLIT_SEED, load_data
from bsc_core.encoders import embed, store_vectors
from bsc_core.errors import ConfigError
from bsc_core.preparation.generate import add_negatives, sentence_neighbors
from bsc_core.preparation.second_opinion import scorer_of
from bsc_core.types import Progress, Vectors

GENERATORS = ("examples", "negatives", "nli")


def load_experiment(config: DataConfig, *, seed: int = SPLIT_SEED, progress: Progress | None = None) -> DatasetSplits:
    """Load the data of an experiment and generate the examples, negatives or NLI pairs that the config requests.

    Examples are generated for train, dev and test, each from its own sentences; negatives and NLI pairs for train.

    Args:
        config: The data section of a config.
        seed: Decides which queries are held out when there are no dev rows.
        progress: Called with (texts encoded, texts) while the reference encoder runs.

    Raises:
        ConfigError: The config has two generators, or settings that the generator cannot use.
        DataError: Nothing can be generated.
        BscError: As `load_data` and the reference encoder.
    """
    _check_generators(config)
    data = _generate(load_data(config.model_copy(update={"separate_sides": False}), seed=seed), config, progress)
    return data.separate_sides() if config.separate_sides else data


def _generate(data: DatasetSplits, config: DataConfig, progress: Progress | None) -> DatasetSplits:
    if config.examples is not None:
        return _with_examples(data, config.examples, progress)
    if config.negatives is not None:
        vectors = embed(config.negatives.encoder, data.texts, progress=progress)
        second = scorer_of(config.negatives, data.texts, progress)
        train, funnel = add_negatives(data.train, data.corpus, vectors, config.negatives, second)
        return replace(data, train=train, funnel=funnel)
    if config.nli is not None:
        train, funnel = nli_rows(data.train, config.nli)
        return replace(data, train=train, funnel=funnel)
    return data


def _check_generators(config: DataConfig) -> None:
    given = [name for name in GENERATORS if getattr(config, name) is not None]
    if len(given) > 1:
        raise ConfigError(
            f"data.{given[0]} and data.{given[1]} are both given; each generates training rows, so leave one out"
        )
    if config.examples is None:
        return
    if config.columns is not None:
        raise ConfigError(
            "data.columns names the texts of pairs, and data.examples reads sentences; name their columns in "
            "data.examples.text, data.examples.class_label and data.examples.split"
        )
    if "drop_self_pairs" in config.filters:
        raise ConfigError(
            "data.filters has drop_self_pairs, and sentences have no pairs yet; remove it (data.examples.distinct "
            "excludes neighbors that equal their anchor)"
        )


def _with_examples(data: DatasetSplits, config: ExamplesConfig, progress: Progress | None) -> DatasetSplits:
    vectors = embed(config.encoder, data.texts, progress=progress)
    generated: dict[str, PairDataset] = {}
    funnels: dict[str, tuple[Stage, ...]] = {}
    for name, rows in data.splits.items():
        neighbors = sentence_neighbors(vectors, rows, config)
        generated[name], funnels[name] = generate_examples(rows, neighbors, config, split=name)
    data = replace(data.with_splits(generated), funnel=funnels["train"])
    return _without_unused_texts(data, config.encoder, vectors)


def _without_unused_texts(data: DatasetSplits, encoder: str, vectors: Vectors) -> DatasetSplits:
    """Return the data on a table of their texts only, whose vectors are cached."""
    columns = [column for split in data.splits.values() for column in split.text_columns]
    columns += [] if data.corpus is None else [data.corpus.document]
    used = np.unique(np.concatenate(columns))
    if len(used) == len(data.texts):
        return data
    texts, new_ids = data.texts.subset(used)
    store_vectors(encoder, texts, vectors[used])
    moved = data.with_splits({name: split.reindex_texts(texts, new_ids) for name, split in data.splits.items()})
    return replace(moved, corpus=None if data.corpus is None else data.corpus.reindex_texts(texts, new_ids))

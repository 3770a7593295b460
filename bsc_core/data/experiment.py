"""The data of one experiment: train, dev, test and corpus on one table of texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import numpy as np

from bsc_core.config import DataConfig
from bsc_core.data.marks import read_marks, with_marks
from bsc_core.data.mix import concatenate, read_mix
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.data.parts import ExperimentData, share_texts
from bsc_core.data.readers import read_corpus, read_pairs, read_table
from bsc_core.data.remedies import REMEDIES
from bsc_core.data.sentences import read_sentences
from bsc_core.data.splits import split_by_component, split_by_query
from bsc_core.data.texts import unite
from bsc_core.errors import ConfigError

__all__ = ["SPLIT_SEED", "ExperimentData", "load_data", "load_evaluation_data"]

SPLIT_SEED = 0  # the dev split does not follow the training seed, so that seeds are measured on the same queries


def load_data(config: DataConfig, *, seed: int) -> ExperimentData:
    """Read the files of an experiment, mend its rows and mark its false negatives.

    seed: decides which queries are held out when no dev rows are given. Raises ConfigError when a named split is not in
    the split column, DataError when a remedy leaves a part without rows, and whatever reading raises.
    """
    files = read_mix(config, _read)
    whole = concatenate(files)
    train = _rows_of_split(whole, config.train_split, "train_split")
    test = _part(whole, config.test, config, "test")
    dev = _part(whole, config.dev, config, "dev")
    if dev is None:
        split = split_by_component if config.split_by == "component" else split_by_query
        train, dev = split(train, share=config.dev_share, seed=seed)
    corpus = read_corpus(config.corpus, config.corpus_columns) if config.corpus else None
    data = share_texts([train, dev] if test is None else [train, dev, test], corpus)
    reports = tuple(dataset.report for dataset in files[1:])
    data = replace(data, unused=_unused_rows(whole, config), mix_reports=reports)
    for remedy in config.remedies:
        data, dropped = REMEDIES[remedy](data)
        data = replace(data, remedied=(*data.remedied, (remedy, dropped)))
    return _marked(data, config.false_negatives) if config.false_negatives else data


def _marked(data: ExperimentData, path: str) -> ExperimentData:
    marks = read_marks(path)
    parts = {name: with_marks(part, marks) for name, part in data.parts.items()}
    return replace(data, train=parts["train"], dev=parts["dev"], test=parts.get("test"))


def load_beside(train: PairDataset, config: DataConfig) -> ExperimentData:
    """The data of an experiment whose training pairs are streamed: `train` is a sample of them, dev has a file."""
    parts = [train, _part(train, config.dev, config, "dev"), _part(train, config.test, config, "test")]
    corpus = read_corpus(config.corpus, config.corpus_columns) if config.corpus else None
    data = share_texts([part for part in parts if part is not None], corpus)
    return _marked(data, config.false_negatives) if config.false_negatives else data


def load_evaluation_data(config: DataConfig) -> tuple[PairDataset, Corpus | None]:
    """Read all pairs of `config.train`, whatever their split, and the corpus if there is one, on one table of texts."""
    dataset = _read(config.train, config)
    if config.corpus is None:
        return dataset, None
    documents = read_corpus(config.corpus, config.corpus_columns)
    texts, (pair_ids, corpus_ids) = unite([dataset.texts, documents.texts])
    return dataset.moved_to(texts, pair_ids), documents.moved_to(texts, corpus_ids)


def _read(path: str, config: DataConfig) -> PairDataset:
    """Read one file with the settings of the config: pairs, or sentences where examples are to be made of them."""
    if config.examples is not None:
        return read_sentences(path, config.examples).as_pairs(config.threshold)
    return read_pairs(
        path, config.columns, threshold=config.threshold, label_min=config.label_min, label_max=config.label_max
    )


def _part(whole: PairDataset, path: str | None, config: DataConfig, part: Literal["dev", "test"]) -> PairDataset | None:
    """The dev or test pairs: a file of their own, else a split of the training file, else None."""
    split = config.dev_split if part == "dev" else config.test_split
    if path is not None:
        return _rows_of_split(_read(path, _without_absent_split(path, config)), split, f"{part}_split")
    if whole.split is not None and split == config.train_split:
        raise ConfigError(
            f"data.{part}_split is {split!r}, which is the training split; name another split, or give a {part} file"
        )
    if whole.split is not None and split in whole.split:
        return _rows_of_split(whole, split, f"{part}_split")
    others = set(whole.split or ()) - {config.train_split, config.dev_split, config.test_split}
    if whole.split is not None and (split != part or (others and part == "dev")):  # a name was chosen, or one should be
        raise ConfigError(_no_such_split(whole, split, f"{part}_split"))
    return None


def _without_absent_split(path: str, config: DataConfig) -> DataConfig:
    """The config for a file of its own, which may lack the split column that the training file has."""
    columns = config.columns
    if columns is None or columns.split is None or columns.split in read_table(path).names:
        return config
    return config.model_copy(update={"columns": columns.model_copy(update={"split": None})})


def _rows_of_split(dataset: PairDataset, split: str, field: str) -> PairDataset:
    """The rows of a split, or all rows where the file has no split column."""
    if dataset.split is None:
        return dataset
    rows = np.flatnonzero(np.asarray(dataset.split, dtype=object) == split)
    if not len(rows):
        raise ConfigError(_no_such_split(dataset, split, field))
    return dataset.take(rows)


def _unused_rows(whole: PairDataset, config: DataConfig) -> tuple[tuple[str, int], ...]:
    """(split name, rows) of the training file that neither train nor a part without a file of its own takes."""
    taken = {config.train_split}
    taken |= set() if config.dev else {config.dev_split}
    taken |= set() if config.test else {config.test_split}
    return tuple((name, rows) for name, rows in Counter(whole.split or ()).items() if name not in taken)


def _no_such_split(dataset: PairDataset, split: str, field: str) -> str:
    names = ", ".join(repr(name) for name in dict.fromkeys(dataset.split or ()))
    column = dataset.report.columns.model_dump().get("split")
    return (
        f"{dataset.report.source}: no row has {split!r} in column {column!r}, which holds {names}; "
        f"set data.{field} to one of these, or map the columns without a split"
    )

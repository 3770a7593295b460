"""The data of one experiment: train, dev, test and corpus on one table of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bsc_core.config import DataConfig
from bsc_core.data.pairs import Corpus, PairDataset, ReadReport
from bsc_core.data.readers import read_corpus, read_pairs, read_table
from bsc_core.data.splits import split_by_query
from bsc_core.data.texts import TextTable, unite
from bsc_core.errors import ConfigError

SPLIT_SEED = 0  # the dev split does not follow the training seed, so that seeds are measured on the same queries


@dataclass(frozen=True, eq=False)
class ExperimentData:
    """What a run reads. All parts share `texts`; unused: (split name, rows) of the training file that no part takes."""

    train: PairDataset
    dev: PairDataset
    test: PairDataset | None
    corpus: Corpus | None
    unused: tuple[tuple[str, int], ...] = ()

    @property
    def texts(self) -> TextTable:
        """The distinct texts of all parts, each once."""
        return self.train.texts

    @property
    def parts(self) -> dict[str, PairDataset]:
        """The pair datasets that are there, by name: train, dev and perhaps test."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def reports(self) -> tuple[ReadReport, ...]:
        """One report for each file that was read."""
        reports = [part.report for part in self.parts.values()] + (
            [self.corpus.report] if self.corpus is not None else []
        )
        return tuple({id(report): report for report in reports}.values())


def load_data(config: DataConfig, *, seed: int) -> ExperimentData:
    """Read the files of an experiment. seed: decides which queries are held out when no dev rows are given.

    Raises ConfigError when a named split is not in the split column, and whatever reading raises.
    """
    whole = _read(config.train, config)
    train = _rows_of_split(whole, config.train_split, "train_split")
    test = _part(whole, config.test, config, "test")
    dev = _part(whole, config.dev, config, "dev")
    if dev is None:
        train, dev = split_by_query(train, share=config.dev_share, seed=seed)
    corpus = read_corpus(config.corpus, config.corpus_columns) if config.corpus else None
    unused = _unused_rows(whole, config)
    return _share_texts([train, dev] if test is None else [train, dev, test], corpus, unused)


def load_evaluation_data(config: DataConfig) -> tuple[PairDataset, Corpus | None]:
    """Read all pairs of `config.train`, whatever their split, and the corpus if there is one, on one table of texts."""
    dataset = _read(config.train, config)
    if config.corpus is None:
        return dataset, None
    documents = read_corpus(config.corpus, config.corpus_columns)
    texts, (pair_ids, corpus_ids) = unite([dataset.texts, documents.texts])
    return dataset.moved_to(texts, pair_ids), documents.moved_to(texts, corpus_ids)


def _read(path: str, config: DataConfig) -> PairDataset:
    """Read one file of pairs with the settings of the config."""
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


def _alike_classes(pairs: Sequence[PairDataset]) -> list[PairDataset]:
    """The parts with classes told in words numbered as in training; words that training lacks come after its own."""
    train, *others = pairs
    if train.class_names is None:
        return list(pairs)
    strange = {name for part in others for name in part.class_names or ()} - set(train.class_names)
    return [part.with_class_names((*train.class_names, *sorted(strange))) for part in pairs]


def _share_texts(
    pairs: Sequence[PairDataset], corpus: Corpus | None, unused: tuple[tuple[str, int], ...]
) -> ExperimentData:
    """Put all parts on one table that holds no text but theirs."""
    own = [part.compact() for part in _alike_classes(pairs)]
    texts, maps = unite([part.texts for part in own] + ([corpus.texts] if corpus is not None else []))
    moved = [part.moved_to(texts, new_ids) for part, new_ids in zip(own, maps, strict=False)]
    train, dev, *test = moved
    return ExperimentData(
        train=train,
        dev=dev,
        test=test[0] if test else None,
        corpus=corpus.moved_to(texts, maps[-1]) if corpus is not None else None,
        unused=unused,
    )

"""Loading of an experiment's data in stages: read, map columns, build pairs, split, filter."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from bsc_core.config import Columns, DataConfig, SentenceColumns
from bsc_core.data.dataset import (
    Corpus,
    DatasetSplits,
    PairDataset,
    align_class_ids,
    concatenate_rows,
    merge_text_tables,
    share_texts,
)
from bsc_core.data.false_negatives import read_false_negatives, with_false_negatives
from bsc_core.data.io.read_pairs import read_corpus, to_pairs, to_sentences
from bsc_core.data.io.tables import Table, read_table
from bsc_core.data.quality.filters import FILTERS
from bsc_core.data.schema.columns import SPLIT
from bsc_core.data.splits import connected_queries, split_by_component, split_by_query
from bsc_core.errors import ColumnError, ConfigError

__all__ = ["DatasetSplits", "load_data", "load_evaluation_data", "load_evaluation_splits"]

SPLIT_SEED = 0  # independent of the training seed, so that all seeds are evaluated on the same queries


def load_data(config: DataConfig, *, seed: int = SPLIT_SEED) -> DatasetSplits:
    """Read the files of an experiment, split and filter the rows, and mark false negatives.

    Args:
        config: The data section of a config.
        seed: Decides which queries are held out when there are no dev rows.

    Raises:
        ConfigError: A named split is not in the split column.
        DataError: A filter leaves a split without rows.
        BscError: As the readers.
    """
    files = _read_training_files(config)
    data = _split(concatenate(files, config.train_split), config, seed)
    data = replace(data, mix_reports=tuple(dataset.report for dataset in files[1:]))
    for name in config.filters:
        data, dropped = FILTERS[name](data)
        data = replace(data, filtered=(*data.filtered, (name, dropped)))
    return _mark_false_negatives(data, config)


def load_evaluation_splits(train: PairDataset, config: DataConfig) -> DatasetSplits:
    """Read dev, test and corpus of an experiment with streamed training pairs; `train` is a sample of these."""
    splits = [train, _evaluation_rows(train, config, "dev"), _evaluation_rows(train, config, "test")]
    data = share_texts([split for split in splits if split is not None], _read_corpus(config))
    return _mark_false_negatives(data, config)


def load_evaluation_data(config: DataConfig) -> tuple[PairDataset, Corpus | None]:
    """Read all pairs of `config.train`, whatever their split, and the corpus if there is one, on one text table."""
    dataset, documents = _to_rows(read_table(config.train), config), _read_corpus(config)
    if documents is None:
        return dataset, None
    texts, (pair_ids, corpus_ids) = merge_text_tables([dataset.texts, documents.texts])
    return dataset.reindex_texts(texts, pair_ids), documents.reindex_texts(texts, corpus_ids)


def _read_training_files(config: DataConfig) -> list[PairDataset]:
    first = _to_rows(read_table(config.train), config)
    datasets = [first]
    for path in config.mix:
        table = read_table(path)
        try:
            datasets.append(_to_rows(table, _config_of_mixed_file(config, first, table.names)))
        except ColumnError as error:
            raise ColumnError(f"{error} (a file of data.mix needs the columns of {config.train})") from None
    return datasets


def _config_of_mixed_file(config: DataConfig, first: PairDataset, names: Sequence[str]) -> DataConfig:
    """Return the config for an additional training file: the columns of the first one, except for the split column."""
    roles = first.report.columns
    if isinstance(roles, SentenceColumns) and config.examples is not None:
        columns: dict[str, object] = {"text": roles.text, "class_label": roles.class_label}
        columns |= {} if config.examples.split == "" else {"split": None}
        return config.model_copy(update={"examples": config.examples.model_copy(update=columns)})
    if not isinstance(roles, Columns):
        return config
    guessed = next((name for name in names if name.lower() in SPLIT), None) if config.columns is None else None
    split = roles.split if roles.split in names else guessed
    return config.model_copy(update={"columns": roles.model_copy(update={"split": split})})


def concatenate(datasets: Sequence[PairDataset], train_split: str = "train") -> PairDataset:
    """Join datasets of the same columns, row after row, with the number of each row's dataset as its source.

    Rows of different files belong to one query when they share its text; equal query ids of two files do not join
    them. Where some files have splits, all rows of the others belong to `train_split`.
    """
    if len(datasets) == 1:
        return datasets[0]
    has_splits = any(dataset.split is not None for dataset in datasets)
    aligned = align_class_ids(datasets)
    texts, maps = merge_text_tables([dataset.texts for dataset in aligned])
    moved, groups = [], 0
    for number, (dataset, new_ids) in enumerate(zip(aligned, maps, strict=True)):
        split = (train_split,) * len(dataset) if has_splits and dataset.split is None else dataset.split
        query_group = (dataset.query_group + groups).astype(np.int32)
        source = np.full(len(dataset), number, dtype=np.int32)
        moved.append(
            replace(dataset.reindex_texts(texts, new_ids), split=split, query_group=query_group, source=source)
        )
        groups += int(dataset.query_group.max(initial=-1)) + 1
    joined = concatenate_rows(moved)
    return replace(joined, query_group=connected_queries(joined))


def _to_rows(table: Table, config: DataConfig) -> PairDataset:
    """Map the columns and build the rows: pairs, or sentences from which examples will be generated."""
    if config.examples is not None:
        return to_sentences(table, config.examples, config.threshold)
    limits = (config.label_min, config.label_max)
    return to_pairs(table, config.columns, threshold=config.threshold, limits=limits)


def _read_corpus(config: DataConfig) -> Corpus | None:
    return read_corpus(config.corpus, config.corpus_columns) if config.corpus else None


def _split(rows: PairDataset, config: DataConfig, seed: int) -> DatasetSplits:
    train = _rows_of_split(rows, config.train_split, "train_split")
    test = _evaluation_rows(rows, config, "test")
    dev = _evaluation_rows(rows, config, "dev")
    if dev is None:
        hold_out = split_by_component if config.split_by == "component" else split_by_query
        train, dev = hold_out(train, share=config.dev_size, seed=seed)
    data = share_texts([train, dev] if test is None else [train, dev, test], _read_corpus(config))
    used = {config.train_split}
    used |= set() if config.dev else {config.dev_split}
    used |= set() if config.test else {config.test_split}
    return replace(data, unused=tuple((name, n) for name, n in Counter(rows.split or ()).items() if name not in used))


def _evaluation_rows(rows: PairDataset, config: DataConfig, name: Literal["dev", "test"]) -> PairDataset | None:
    """Return the dev or test rows: from a separate file, else from a split of the training file, else None."""
    path = config.dev if name == "dev" else config.test
    split = config.dev_split if name == "dev" else config.test_split
    if path is not None:
        table = read_table(path)
        return _rows_of_split(_to_rows(table, _without_missing_split(config, table.names)), split, f"{name}_split")
    if rows.split is None:
        return None
    if split == config.train_split:
        raise ConfigError(
            f"data.{name}_split is {split!r}, which is the training split; name another split, or give a {name} file"
        )
    others = set(rows.split) - {config.train_split, config.dev_split, config.test_split}
    if split in rows.split or split != name or (others and name == "dev"):  # a name was chosen, or should be
        return _rows_of_split(rows, split, f"{name}_split")
    return None


def _without_missing_split(config: DataConfig, names: Sequence[str]) -> DataConfig:
    """Return the config for a dev or test file, which may lack the split column of the training file."""
    columns = config.columns
    if columns is None or columns.split is None or columns.split in names:
        return config
    return config.model_copy(update={"columns": columns.model_copy(update={"split": None})})


def _rows_of_split(dataset: PairDataset, split: str, field: str) -> PairDataset:
    """Return the rows of a split, or all rows where the file has no split column."""
    if dataset.split is None:
        return dataset
    rows = np.flatnonzero(np.asarray(dataset.split, dtype=object) == split)
    if not len(rows):
        names = ", ".join(repr(name) for name in dict.fromkeys(dataset.split))
        column = dataset.report.columns.model_dump().get("split")
        raise ConfigError(
            f"{dataset.report.source}: no row has {split!r} in column {column!r}, which contains {names}; "
            f"set data.{field} to one of these, or map the columns without a split"
        )
    return dataset.take(rows)


def _mark_false_negatives(data: DatasetSplits, config: DataConfig) -> DatasetSplits:
    if not config.false_negatives:
        return data
    pairs = read_false_negatives(config.false_negatives)
    return data.with_splits({name: with_false_negatives(split, pairs) for name, split in data.splits.items()})

"""Loading of an experiment's data in stages: read, map columns, build pairs, split, filter."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from bsc_core.config import Columns, DataConfig, SentenceColumns
from bsc_core.data.dataset import (
    Corpus,
    DatasetSplits,
    PairDataset,
    TextTable,
    align_class_ids,
    concatenate_rows,
    merge_text_tables,
    separate_sides,
    share_texts,
)
from bsc_core.data.decisions import apply_decisions, read_decisions
from bsc_core.data.io.limits import Sizes
from bsc_core.data.io.read_pairs import read_corpus, to_pairs, to_sentences
from bsc_core.data.io.tables import Table, read_table
from bsc_core.data.quality.filters import FILTERS
from bsc_core.data.schema.columns import SPLIT, guess_columns
from bsc_core.data.splits import connected_queries, split_by_component, split_by_query
from bsc_core.data.text_normalization import normalize_text
from bsc_core.errors import ColumnError, ConfigError, DataError
from bsc_core.types import Ids

__all__ = ["DatasetSplits", "load_data", "load_evaluation_data", "load_evaluation_splits"]

MAX_LISTED = 20  # names of splits in an error message
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
    reader = _Reader(config)
    files = _read_training_files(reader)
    data = _split(concatenate(files, config.train_split), reader, seed)
    data = replace(data, mix_reports=tuple(dataset.report for dataset in files[1:]))
    for name in config.filters:
        data, dropped = FILTERS[name](data)
        data = replace(data, filtered=(*data.filtered, (name, dropped)))
    return _finish(data, config)


def load_evaluation_splits(train: PairDataset, config: DataConfig) -> DatasetSplits:
    """Read dev, test and corpus of an experiment with streamed training pairs; `train` is a sample of these."""
    reader = _Reader(config)
    splits = [train, _evaluation_rows(train, reader, "dev"), _evaluation_rows(train, reader, "test")]
    data = share_texts([split for split in splits if split is not None], reader.corpus())
    return _finish(data, config)


def load_evaluation_data(config: DataConfig) -> tuple[PairDataset, Corpus | None]:
    """Read all pairs of `config.train`, whatever their split, and the corpus if there is one, on one text table."""
    reader = _Reader(config)
    dataset, documents = reader.rows(reader.table(config.train)), reader.corpus()
    if documents is not None:
        texts, (pair_ids, corpus_ids) = merge_text_tables([dataset.texts, documents.texts])
        dataset, documents = dataset.reindex_texts(texts, pair_ids), documents.reindex_texts(texts, corpus_ids)
        if config.text_identity == "normalized":
            (dataset,), documents = merge_keys([dataset], documents)
    if config.separate_sides:
        (dataset,), documents = separate_sides([dataset], documents)
    return dataset, documents


class _Reader:
    """Reads the files of a config, whose equal texts are those of `config.text_identity`."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self._sizes = Sizes()
        self._first: dict[str, str] = {}

    def table(self, path: str) -> Table:
        """Read a file; all files of the config together have the limits of one."""
        return read_table(path, sizes=self._sizes)

    def rows(self, table: Table, config: DataConfig | None = None) -> PairDataset:
        """Map the columns and build the rows: pairs, or sentences from which examples will be generated."""
        config = config or self.config
        if config.examples is not None:
            dataset = to_sentences(table, config.examples, config.threshold)
        else:
            limits = (config.label_min, config.label_max)
            dataset = to_pairs(table, config.columns, threshold=config.threshold, limits=limits)
        if self.config.text_identity == "exact":
            return dataset
        merged = dataset.reindex_texts(*self._merge(dataset.texts))
        groups = merged.query if config.examples is not None else connected_queries(merged)
        return replace(merged, query_group=groups)

    def corpus(self) -> Corpus | None:
        """Read the documents to search, if the config has any."""
        if not self.config.corpus:
            return None
        documents = read_corpus(self.config.corpus, self.config.corpus_columns, sizes=self._sizes)
        if self.config.text_identity == "exact":
            return documents
        return documents.reindex_texts(*self._merge(documents.texts))

    def _merge(self, texts: TextTable) -> tuple[TextTable, Ids]:
        """Return a table of the first of equal texts among all files, and the new id of each text, (U,)."""
        return TextTable.from_texts(self._first.setdefault(normalize_text(text), text) for text in texts)


def _read_training_files(reader: _Reader) -> list[PairDataset]:
    config = reader.config
    _check_different([config.train, *config.mix])
    first = reader.rows(reader.table(config.train))
    datasets = [first]
    for path in config.mix:
        table = reader.table(path)
        try:
            dataset = reader.rows(table, _config_of_mixed_file(config, first, table.names))
        except ColumnError as error:
            raise ColumnError(f"{error} (a file of data.mix needs the columns of {config.train})") from None
        _check_classes(dataset, first)
        datasets.append(dataset)
    return datasets


def _check_different(paths: Sequence[str]) -> None:
    """Raise ConfigError if two paths of training files lead to the same file: a small one could be read many times."""
    known: dict[object, str] = {}
    for path in paths:
        key: object = path
        with suppress(OSError, ValueError):  # such as the id of a dataset on the Hub
            facts = Path(path).stat()
            key = facts.st_dev, facts.st_ino
        if key in known:
            raise ConfigError(f"data.mix: {path} is the same file as {known[key]}; name each training file once")
        known[key] = path


def _check_classes(dataset: PairDataset, first: PairDataset) -> None:
    """Raise DataError if the labels of only one of two files follow from its classes, those of NLI."""
    if dataset.classes is not None and first.classes is not None and (dataset.label is None) != (first.label is None):
        labeled, other = (first, dataset) if dataset.label is None else (dataset, first)
        names = ", ".join(other.class_names or ())[:200] or "numbers"
        raise DataError(
            f"{other.report.source}: its classes are {names}, so its pairs have no labels, unlike those of "
            f"{labeled.report.source}, whose classes are those of NLI; use these names, or add a label column to both"
        )


def _config_of_mixed_file(config: DataConfig, first: PairDataset, names: Sequence[str]) -> DataConfig:
    """Return the config for an additional training file: the columns of the first one, except for the split column."""
    roles = first.report.columns
    if isinstance(roles, SentenceColumns) and config.examples is not None:
        columns: dict[str, object] = {"text": roles.text, "class_label": roles.class_label}
        columns |= {} if config.examples.split == "" else {"split": None}
        return config.model_copy(update={"examples": config.examples.model_copy(update=columns)})
    if not isinstance(roles, Columns):
        return config
    if config.columns is None:
        others = guess_columns(names).model_dump(exclude_none=True)
        for role in ("label", "class_label", "negative"):
            if role in others and getattr(roles, role) is None:
                raise ColumnError(f"column {others[role]!r} has no counterpart in the first file; name the columns")
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


def _split(rows: PairDataset, reader: _Reader, seed: int) -> DatasetSplits:
    config = reader.config
    train = _rows_of_split(rows, config.train_split, "train_split")
    test = _evaluation_rows(rows, reader, "test")
    dev = _evaluation_rows(rows, reader, "dev")
    if dev is None:
        hold_out = split_by_component if config.split_by == "component" else split_by_query
        train, dev = hold_out(train, share=config.dev_size, seed=seed)
    data = share_texts([train, dev] if test is None else [train, dev, test], reader.corpus())
    used = {config.train_split}
    used |= set() if config.dev else {config.dev_split}
    used |= set() if config.test else {config.test_split}
    return replace(data, unused=tuple((name, n) for name, n in Counter(rows.split or ()).items() if name not in used))


def _evaluation_rows(rows: PairDataset, reader: _Reader, name: Literal["dev", "test"]) -> PairDataset | None:
    """Return the dev or test rows: from a separate file, else from a split of the training file, else None."""
    config = reader.config
    path = config.dev if name == "dev" else config.test
    split = config.dev_split if name == "dev" else config.test_split
    if path is not None:
        table = reader.table(path)
        dataset = reader.rows(table, _without_missing_split(config, table.names))
        _check_classes(dataset, rows)
        return _rows_of_split(dataset, split, f"{name}_split")
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
        distinct = list(dict.fromkeys(dataset.split))
        names = ", ".join(repr(name) for name in distinct[:MAX_LISTED]) + (" …" if len(distinct) > MAX_LISTED else "")
        column = dataset.report.columns.model_dump().get("split")
        raise ConfigError(
            f"{dataset.report.source}: no row has {split!r} in column {column!r}, which contains {names}; "
            f"set data.{field} to one of these, or map the columns without a split"
        )
    return dataset.take(rows)


def _finish(data: DatasetSplits, config: DataConfig) -> DatasetSplits:
    """Merge the keys of equal documents, separate the sides, and apply decisions, as the config requests."""
    if config.text_identity == "normalized" and data.corpus is not None:
        pairs, corpus = merge_keys(list(data.splits.values()), data.corpus)
        data = replace(data.with_splits(dict(zip(data.splits, pairs, strict=True))), corpus=corpus)
    if config.separate_sides:
        data = data.separate_sides()
    if not config.false_negatives:
        return data
    return apply_decisions(data, read_decisions(config.false_negatives), config.text_identity)


def merge_keys(pairs: Sequence[PairDataset], corpus: Corpus) -> tuple[list[PairDataset], Corpus]:
    """Give the documents of one text the same key, so that each copy of a gold document is gold.

    It is that of the first of them with a key; documents and pairs with an empty key have none.
    """
    if corpus.key is None:
        return list(pairs), corpus
    first: dict[int, str] = {}
    for text, key in zip(corpus.document.tolist(), corpus.key, strict=True):
        if key:
            first.setdefault(text, key)
    keys = tuple(first.get(text, "") for text in corpus.document.tolist())
    new_key = {key: new for key, new in zip(corpus.key, keys, strict=True) if key}
    moved = [
        part
        if part.document_key is None
        else replace(part, document_key=tuple(new_key.get(key, key) for key in part.document_key))
        for part in pairs
    ]
    return moved, replace(corpus, key=keys)

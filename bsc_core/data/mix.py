"""Several files as one set of training pairs, on one table of texts."""

# N rows of all files

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns, DataConfig, SentenceColumns
from bsc_core.data.columns import SPLIT
from bsc_core.data.pairs import PairDataset
from bsc_core.data.splits import connected_queries
from bsc_core.data.tables import read_table
from bsc_core.data.texts import Ids, unite
from bsc_core.errors import ColumnError

Read = Callable[[str, DataConfig], PairDataset]
Number = TypeVar("Number", np.float32, np.int32)


def read_mix(config: DataConfig, read: Read) -> list[PairDataset]:
    """The training file and those of `data.mix`, each read with the columns of the first.

    A split column is respected in every file that has it; a file without it is training rows alone. Raises ColumnError
    when a further file lacks a column, and whatever reading raises.
    """
    first = read(config.train, config)
    if not config.mix:
        return [first]
    roles = first.report.columns
    datasets = [first]
    for path in config.mix:
        try:
            datasets.append(read(path, _with_columns(config, roles, path)))
        except ColumnError as error:
            raise ColumnError(f"{error} (a file of data.mix needs the columns of {config.train})") from None
    return [_with_splits(dataset, datasets, config.train_split) for dataset in datasets]


def concatenate(datasets: Sequence[PairDataset]) -> PairDataset:
    """The rows of several datasets of the same columns, one after the other; the report is the first one's.

    Rows of different files belong to one query when they share its text; equal query ids of two files do not join them.
    """
    first = datasets[0]
    if len(datasets) == 1:
        return first
    alike = alike_classes(datasets)
    texts, maps = unite([dataset.texts for dataset in alike])
    moved = [dataset.moved_to(texts, new_ids) for dataset, new_ids in zip(alike, maps, strict=True)]
    starts = np.cumsum([0, *(int(dataset.query_group.max(initial=-1)) + 1 for dataset in moved[:-1])])
    groups = [dataset.query_group + start for dataset, start in zip(moved, starts, strict=True)]
    whole = replace(
        moved[0],
        query=_joined([dataset.query for dataset in moved]),
        document=_joined([dataset.document for dataset in moved]),
        query_group=_joined(groups).astype(np.int32),
        line=_joined([dataset.line for dataset in moved]),
        label=_joined_or_none([dataset.label for dataset in moved]),
        negative=_joined_or_none([dataset.negative for dataset in moved]),
        classes=_joined_or_none([dataset.classes for dataset in moved]),
        document_key=_strings([dataset.document_key for dataset in moved]),
        split=_strings([dataset.split for dataset in moved]),
    )
    return replace(whole, query_group=connected_queries(whole))


def alike_classes(datasets: Sequence[PairDataset]) -> list[PairDataset]:
    """The datasets with classes told in words numbered as in the first; words that it lacks come after its own."""
    first, *others = datasets
    if first.class_names is None:
        return list(datasets)
    strange = {name for dataset in others for name in dataset.class_names or ()} - set(first.class_names)
    return [dataset.with_class_names((*first.class_names, *sorted(strange))) for dataset in datasets]


def _with_columns(config: DataConfig, roles: object, path: str) -> DataConfig:
    """The config for a further file: the first file's columns, and its own split column."""
    if isinstance(roles, SentenceColumns) and config.examples is not None:
        named: dict[str, object] = {"text": roles.text, "class_label": roles.class_label}
        named |= {} if config.examples.split == "" else {"split": None}
        return config.model_copy(update={"examples": config.examples.model_copy(update=named)})
    if not isinstance(roles, Columns):
        return config
    names = read_table(path).names
    guessed = next((name for name in names if name.lower() in SPLIT), None) if config.columns is None else None
    split = roles.split if roles.split in names else guessed
    return config.model_copy(update={"columns": roles.model_copy(update={"split": split})})


def _with_splits(dataset: PairDataset, datasets: Sequence[PairDataset], train_split: str) -> PairDataset:
    if dataset.split is not None or all(other.split is None for other in datasets):
        return dataset
    return replace(dataset, split=(train_split,) * len(dataset))


def _joined(columns: Sequence[Ids]) -> Ids:
    return np.concatenate(columns)


def _joined_or_none(columns: Sequence[npt.NDArray[Number] | None]) -> npt.NDArray[Number] | None:
    there = [column for column in columns if column is not None]
    return np.concatenate(there) if len(there) == len(columns) else None


def _strings(columns: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    there = [column for column in columns if column is not None]
    return tuple(value for column in there for value in column) if len(there) == len(columns) else None

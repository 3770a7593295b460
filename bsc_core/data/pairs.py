"""Pairs of texts as integer columns that point into one table of distinct texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns
from bsc_core.data.classes import renumbered
from bsc_core.data.reports import ReadReport, Rejection
from bsc_core.data.texts import Ids, TextTable
from bsc_core.errors import DataError

__all__ = ["Corpus", "PairDataset", "ReadReport", "Rejection"]

# N rows (pairs), M documents of a corpus, U distinct texts


@dataclass(frozen=True, eq=False)
class PairDataset:
    """N pairs of a query and a document.

    query, document: (N,) text ids; label: (N,) float32 in [0, 1], or None when every pair is positive;
    query_group: (N,) equal for the rows of one query, by its id where the file has one, else by its text;
    document_key: the file's document ids; line: (N,) where each row stands in its file; split: the file's split names;
    negative: (N,) text ids of a wrong document for each query, or None; classes: (N,) class ids >= 0, or None, and
    class_names: the names of classes that the file tells in words.
    """

    texts: TextTable
    query: Ids
    document: Ids
    label: npt.NDArray[np.float32] | None
    query_group: Ids
    document_key: tuple[str, ...] | None
    line: Ids
    split: tuple[str, ...] | None
    threshold: float
    report: ReadReport
    negative: Ids | None = None
    classes: Ids | None = None
    class_names: tuple[str, ...] | None = None
    marks: Ids | None = None

    def __len__(self) -> int:
        return len(self.query)

    @cached_property
    def positive(self) -> npt.NDArray[np.bool_]:
        """(N,) true where label > threshold, strictly; all true without labels."""
        if self.label is None:
            return np.ones(len(self), dtype=bool)
        return np.asarray(self.label > np.float32(self.threshold), dtype=bool)  # float32, so that 0.6 equals 0.6

    @cached_property
    def has_negatives(self) -> bool:
        """Whether any pair is labelled negative."""
        return not bool(self.positive.all())

    @cached_property
    def distinct_queries(self) -> Ids:
        """Text ids of the distinct queries, ascending."""
        return np.unique(self.query)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that training can see of the rows, and their order."""
        digest = hashlib.sha256(self.texts.digest.encode())
        for column in (self.query, self.document, self.query_group, self.label):
            digest.update(b"none" if column is None else column.tobytes())
        for name, column in (("negative", self.negative), ("classes", self.classes), ("marks", self.marks)):
            if column is not None:
                digest.update(name.encode() + column.tobytes())
        digest.update(repr((self.threshold, self.document_key)).encode())
        return digest.hexdigest()

    def take(self, rows: npt.ArrayLike) -> PairDataset:
        """These rows (row numbers, or a mask (N,)) in the given order, on the same table of texts."""
        chosen = np.arange(len(self))[np.asarray(rows)] if np.size(rows) else np.empty(0, dtype=np.int64)
        return replace(
            self,
            query=self.query[chosen],
            document=self.document[chosen],
            label=None if self.label is None else self.label[chosen],
            query_group=self.query_group[chosen],
            document_key=None if self.document_key is None else tuple(self.document_key[row] for row in chosen),
            line=self.line[chosen],
            split=None if self.split is None else tuple(self.split[row] for row in chosen),
            negative=None if self.negative is None else self.negative[chosen],
            classes=None if self.classes is None else self.classes[chosen],
        )

    def compact(self) -> PairDataset:
        """The same pairs on a table that holds only their own texts, in their old order."""
        used = np.unique(np.concatenate(self.text_columns))
        moved = np.full(len(self.texts), -1, dtype=np.int32)
        moved[used] = np.arange(len(used), dtype=np.int32)
        known = None if self.marks is None else self.marks[np.isin(self.marks, used).all(axis=1)]
        return replace(self, marks=known).moved_to(TextTable(tuple(self.texts.take(used))), moved)

    def moved_to(self, texts: TextTable, new_ids: Ids) -> PairDataset:
        """The same pairs on another table; new_ids: (U,) maps this table's ids to the other's."""
        negative = None if self.negative is None else new_ids[self.negative]
        return replace(
            self,
            texts=texts,
            query=new_ids[self.query],
            document=new_ids[self.document],
            negative=negative,
            marks=None if self.marks is None else new_ids[self.marks],
        )

    @property
    def marked_pairs(self) -> Ids:
        """(F, 2) text ids of query and document: what a person marked as false negatives."""
        return np.empty((0, 2), dtype=np.int32) if self.marks is None else self.marks

    @property
    def text_columns(self) -> list[Ids]:
        """The columns of text ids: query, document and, where there is one, negative."""
        return [self.query, self.document, *([] if self.negative is None else [self.negative])]

    def with_class_names(self, names: tuple[str, ...]) -> PairDataset:
        """The same pairs with their classes numbered as in `names`, which holds every name of this dataset."""
        if self.classes is None or self.class_names is None or self.class_names == names:
            return self
        return replace(self, classes=renumbered(self.classes, self.class_names, names), class_names=names)

    @classmethod
    def from_pairs(
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        labels: Sequence[float] | npt.NDArray[np.floating] | None = None,
        *,
        query_ids: Sequence[str] | None = None,
        negatives: Sequence[str] | None = None,
        classes: Sequence[int] | None = None,
        threshold: float = 0.5,
    ) -> PairDataset:
        """Pairs from lists in memory, row by row; labels already in [0, 1]. Raises DataError for unequal lengths."""
        given = [queries, documents, *(c for c in (labels, query_ids, negatives, classes) if c is not None)]
        if len({len(column) for column in given}) != 1:
            raise DataError(
                f"the lists have {', '.join(str(len(column)) for column in given)} rows; give one entry for each pair"
            )
        texts, ids = TextTable.from_texts([*queries, *documents, *(negatives or ())])
        rows = len(queries)
        return cls(
            texts=texts,
            query=ids[:rows],
            document=ids[rows : 2 * rows],
            label=None if labels is None else np.asarray(labels, dtype=np.float32),
            query_group=query_groups(ids[:rows], query_ids),
            document_key=None,
            line=np.arange(1, rows + 1, dtype=np.int32),
            split=None,
            threshold=threshold,
            report=ReadReport(
                "pairs in memory", rows, rows, (), Columns(query="query", document="document"), False, "row"
            ),
            negative=None if negatives is None else ids[2 * rows :],
            classes=None if classes is None else np.asarray(classes, dtype=np.int32),
        )


@dataclass(frozen=True, eq=False)
class Corpus:
    """M documents to search. document: (M,) text ids; key: the file's document ids, or None."""

    texts: TextTable
    document: Ids
    key: tuple[str, ...] | None
    report: ReadReport

    def __len__(self) -> int:
        return len(self.document)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the documents, their order and their keys."""
        return hashlib.sha256(f"{self.texts.digest} {self.document.tolist()} {self.key}".encode()).hexdigest()

    def moved_to(self, texts: TextTable, new_ids: Ids) -> Corpus:
        """The same documents on another table; new_ids: (U,) maps this table's ids to the other's."""
        return replace(self, texts=texts, document=new_ids[self.document])


def query_groups(query: Ids, query_ids: Sequence[str] | None) -> Ids:
    """(N,) queries numbered by their ids, or by their text where a row has no id; from 0 by first appearance."""
    numbers: dict[str | int, int] = {}
    keys = (
        query.tolist()
        if query_ids is None
        else [key or text for key, text in zip(query_ids, query.tolist(), strict=True)]
    )
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)

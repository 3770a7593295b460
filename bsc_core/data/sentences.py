"""Sentences with a class each, from which training examples are made."""

# N sentences, U distinct texts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bsc_core.config import ExamplesConfig, SentenceColumns
from bsc_core.data.classes import Classes, read_classes
from bsc_core.data.columns import as_names, guess_sentence_columns
from bsc_core.data.mapping import choose_columns, joined_cells
from bsc_core.data.pairs import PairDataset
from bsc_core.data.reports import ReadReport, Rejection
from bsc_core.data.tables import Table, read_table
from bsc_core.data.texts import Ids, TextTable
from bsc_core.errors import DataError


@dataclass(frozen=True, eq=False)
class Sentences:
    """N sentences of any number of classes.

    text: (N,) text ids; classes: (N,) class ids >= 0, and class_names where the file tells them in words; split: the
    file's split names; line: (N,) where each stands in its file.
    """

    texts: TextTable
    text: Ids
    classes: Classes
    class_names: tuple[str, ...] | None
    split: tuple[str, ...] | None
    report: ReadReport
    line: Ids

    def __len__(self) -> int:
        return len(self.text)

    def class_name(self, row: int) -> str:
        """What the file calls the class of a sentence."""
        number = int(self.classes[row])
        return str(number) if self.class_names is None else self.class_names[number]

    def as_pairs(self, threshold: float) -> PairDataset:
        """Each sentence as a pair with itself: the form in which rows are split, mended and mixed."""
        _, group = np.unique(self.text, return_inverse=True)
        return PairDataset(
            texts=self.texts,
            query=self.text,
            document=self.text,
            label=None,
            query_group=group.astype(np.int32),
            document_key=None,
            line=self.line,
            split=self.split,
            threshold=threshold,
            report=self.report,
            classes=self.classes,
            class_names=self.class_names,
        )

    @classmethod
    def from_pairs(cls, rows: PairDataset) -> Sentences:
        """The sentences of rows that `as_pairs` made. Raises DataError for rows without classes."""
        if rows.classes is None:
            raise DataError(f"{rows.report.source}: these rows have no classes; read them as classified sentences")
        return cls(rows.texts, rows.query, rows.classes, rows.class_names, rows.split, rows.report, rows.line)


def read_sentences(path: Path | str, config: ExamplesConfig | None = None) -> Sentences:
    """Read a file of classified sentences; columns that the config does not name are guessed, and the report says so.

    Rows with an empty text or without a class are rejected and listed in the report. Raises PathError, FileFormatError,
    ColumnError, or DataError when no row is left.
    """
    given = config or ExamplesConfig()
    table = read_table(path)
    guess = partial(_roles, given=given)
    roles, _ = choose_columns(table, None, SentenceColumns, guess)
    texts = joined_cells(table, roles.text)
    faults: dict[int, Rejection] = {}
    _reject_texts(texts, table, " + ".join(as_names(roles.text)), faults)
    classes, names = read_classes(table.columns[roles.class_label], table.line, roles.class_label, faults)
    kept = np.asarray([row for row in range(len(table)) if row not in faults], dtype=np.int64)
    report = _report(table, faults, roles, guessed=given.text is None or given.class_label is None)
    if not len(kept):
        raise DataError(
            f"{table.source}: none of its rows can be used ({report.rows_read:,} read); the first: "
            f"{report.rejected[0].sentence(table.unit)}; correct the rows or map other columns"
        )
    distinct, ids = TextTable.from_texts([texts[row] for row in kept.tolist()])
    return Sentences(
        texts=distinct,
        text=ids,
        classes=classes[kept],
        class_names=names,
        split=None if roles.split is None else _picked(table.columns[roles.split], kept),
        report=report,
        line=np.asarray(table.line, dtype=np.int32)[kept],
    )


def _roles(names: Sequence[str], examples: object, given: ExamplesConfig) -> SentenceColumns:
    return guess_sentence_columns(names, given)


def _reject_texts(texts: Sequence[str], table: Table, field: str, faults: dict[int, Rejection]) -> None:
    for row, text in enumerate(texts):
        if not text.strip():
            faults[row] = Rejection(table.line[row], field, "the text is empty")
        elif any("\ud800" <= letter <= "\udfff" for letter in text if letter > "\x7f"):
            faults[row] = Rejection(
                table.line[row], field, "the text holds half a surrogate pair, which is not Unicode"
            )


def _report(table: Table, faults: dict[int, Rejection], roles: SentenceColumns, *, guessed: bool) -> ReadReport:
    rejected = tuple(sorted([*table.rejected, *faults.values()], key=lambda rejection: rejection.line))
    rows = len(table) + len(table.rejected)
    return ReadReport(table.source, rows, rows - len(rejected), rejected, roles, guessed, table.unit)


def _picked(cells: Sequence[str], kept: npt.NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(cells[row].strip() for row in kept.tolist())

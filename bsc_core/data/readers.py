"""Read pairs and corpora: choose the columns, keep every good row, and count every rejected one with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns, CorpusColumns
from bsc_core.data.classes import NLI, entailed, read_classes
from bsc_core.data.columns import as_names, guess_columns, guess_corpus_columns
from bsc_core.data.mapping import choose_columns, joined_cells
from bsc_core.data.pairs import Corpus, PairDataset, query_groups
from bsc_core.data.reports import ReadReport, Rejection
from bsc_core.data.shards import is_shards, open_shards
from bsc_core.data.tables import Table, read_table
from bsc_core.data.texts import TextTable
from bsc_core.errors import ConfigError, DataError

__all__ = ["Table", "read_corpus", "read_pairs", "read_table"]

Faults = dict[int, Rejection]  # by row number of the table; a row's first fault counts

# N rows kept


def read_pairs(
    path: Path | str,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    threshold: float = 0.5,
    label_min: float = 0.0,
    label_max: float = 1.0,
) -> PairDataset:
    """Read a file of pairs; without `columns` they are guessed from the header, and the report says so.

    threshold: a pair is positive when its label, scaled from [label_min, label_max] to [0, 1], is above it.
    Rows with an empty text, an unusable label or no class are rejected and listed in the report. Where a file tells
    NLI's classes in words and no label, an entailed pair has the label 1 and any other 0.
    Raises PathError, FileFormatError, ColumnError, ConfigError, or DataError when no row is left or most labels are
    outside the scale.
    """
    check_scale(threshold, label_min, label_max)
    table = read_table(path)
    told = open_shards(path).columns if is_shards(path) else columns  # shards name their columns themselves
    roles, guessed = choose_columns(table, told, Columns, guess_columns)
    faults: Faults = {}
    sides, labels, outside = check_rows(table, roles, (label_min, label_max), faults)
    refuse_scale(table.source, roles.label, (label_min, label_max), outside, len(outside), len(table))
    classes, class_names = None, None
    if roles.class_label is not None:
        classes, class_names = read_classes(table.columns[roles.class_label], table.line, roles.class_label, faults)
        labels = entailed(classes) if labels is None and class_names == NLI else labels
    kept = _kept_rows(table, faults)
    texts, ids = TextTable.from_texts(chain.from_iterable(_pick(side, kept) for side in sides))
    query, document, *others = np.split(ids, len(sides))
    return PairDataset(
        texts=texts,
        query=query,
        document=document,
        label=None if labels is None else labels[kept],
        query_group=query_groups(query, _role_cells(table, roles.query_id, kept)),
        document_key=_role_cells(table, roles.document_id, kept),
        line=np.asarray(table.line, dtype=np.int32)[kept],
        split=_role_cells(table, roles.split, kept),
        threshold=threshold,
        report=_report(table, faults, roles, guessed),
        negative=others[0] if others else None,
        classes=None if classes is None else classes[kept],
        class_names=class_names,
    )


def read_corpus(path: Path | str, columns: CorpusColumns | Mapping[str, Any] | None = None) -> Corpus:
    """Read the documents to search; without `columns` they are guessed from the header, and the report says so.

    Raises PathError, FileFormatError, ColumnError, or DataError when no row is left.
    """
    table = read_table(path)
    roles, guessed = choose_columns(table, columns, CorpusColumns, guess_corpus_columns)
    documents = joined_cells(table, roles.document)
    faults: Faults = {}
    reject_texts(documents, roles.document, table.line, faults)
    kept = _kept_rows(table, faults)
    texts, ids = TextTable.from_texts(_pick(documents, kept))
    return Corpus(texts, ids, _role_cells(table, roles.document_id, kept), _report(table, faults, roles, guessed))


def check_rows(
    table: Table, roles: Columns, limits: tuple[float, float], faults: Faults
) -> tuple[list[list[str]], npt.NDArray[np.float32] | None, list[float]]:
    """The texts of the mapped sides (query, document and perhaps negative) and the labels (rows,) scaled to [0, 1].

    limits: the file's labels that become 0 and 1. Rows with an empty text or an unusable label are added to faults.
    Returns also the labels outside the limits.
    """
    sides = []
    for columns in (roles.query, roles.document):
        sides.append(joined_cells(table, columns))
        reject_texts(sides[-1], columns, table.line, faults)
    labels = None
    outside: list[float] = []
    if roles.label is not None:
        labels, outside = _scaled_labels(table, roles.label, limits, faults)
    if roles.negative is not None:
        sides.append(joined_cells(table, roles.negative))
        reject_texts(sides[-1], roles.negative, table.line, faults)
    return sides, labels, outside


def check_scale(threshold: float, label_min: float, label_max: float) -> None:
    """Raise ConfigError for a threshold outside 0 to 1 or a scale without room."""
    if not (label_min < label_max and 0 <= threshold <= 1):
        raise ConfigError(
            f"threshold is {threshold:g}, label_min {label_min:g}, label_max {label_max:g}; "
            "the threshold must lie in 0 to 1 and label_max above label_min"
        )


def refuse_scale(
    source: str, column: str | None, limits: tuple[float, float], outside: Sequence[float], count: int, rows: int
) -> None:
    """Raise DataError when most labels lie outside the limits: the scale is wrong then, not the rows.

    outside: labels that are, at least the lowest and the highest; count: how many there are among all rows.
    """
    low, high = limits
    if 2 * count > rows:
        raise DataError(
            f"{source}: {count:,} of {rows:,} labels in column {column!r} "
            f"are outside {low:g} to {high:g} "
            f"(they reach {min(outside):g} to {max(outside):g}); set label_min and label_max to the scale of the file"
        )


def nothing_left(source: str, rows_read: int, first: str) -> DataError:
    """What to raise when every row was rejected. first: the first rejection as a sentence."""
    return DataError(
        f"{source}: none of its rows can be used ({rows_read:,} read); the first: "
        f"{first}; correct the rows or map other columns"
    )


def reject_texts(texts: Sequence[str], columns: str | tuple[str, ...], lines: Sequence[int], faults: Faults) -> None:
    """Add the rows whose text is empty or no Unicode to faults. lines: where each row stands in its file."""
    field = " + ".join(as_names(columns))
    for row, text in enumerate(texts):
        if not text.strip():
            faults.setdefault(row, Rejection(lines[row], field, "the text is empty"))
        elif not text.isascii() and not _is_unicode(text):
            faults.setdefault(
                row, Rejection(lines[row], field, "the text holds half a surrogate pair, which is not Unicode")
            )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _scaled_labels(
    table: Table, column: str, limits: tuple[float, float], faults: Faults
) -> tuple[npt.NDArray[np.float32], list[float]]:
    """(rows,) labels scaled to [0, 1], nan where a fault of the row says why, and the labels outside the limits."""
    low, high = limits
    labels = np.full(len(table), np.nan)
    outside = []
    for row, cell in enumerate(table.columns[column]):
        value, reason = _number(cell)
        if not reason and not low <= value <= high:
            reason = f"the label {cell.strip()} is outside {low:g} to {high:g}"
            outside.append(value)
        if reason:
            faults.setdefault(row, Rejection(table.line[row], column, reason))
        else:
            labels[row] = (value - low) / (high - low)
    return labels.astype(np.float32), outside


def _number(cell: str) -> tuple[float, str]:
    """The number in a cell, and why it cannot be used ("" when it can)."""
    try:
        value = float(cell)
    except ValueError:
        shown = cell if len(cell) <= 40 else cell[:39] + "…"
        return math.nan, f"the label {shown!r} is not a number" if cell.strip() else "the label is empty"
    return value, "the label is NaN" if math.isnan(value) else ""


def _kept_rows(table: Table, faults: Faults) -> npt.NDArray[np.int64]:
    kept = np.asarray([row for row in range(len(table)) if row not in faults], dtype=np.int64)
    if not len(kept):
        rejected = _all_rejected(table, faults)
        raise nothing_left(table.source, len(rejected), rejected[0].sentence(table.unit))
    return kept


def _all_rejected(table: Table, faults: Faults) -> tuple[Rejection, ...]:
    return tuple(sorted([*table.rejected, *faults.values()], key=lambda rejection: rejection.line))


def _report(table: Table, faults: Faults, roles: Columns | CorpusColumns, guessed: bool) -> ReadReport:
    rejected = _all_rejected(table, faults)
    rows_read = len(table) + len(table.rejected)
    return ReadReport(table.source, rows_read, rows_read - len(rejected), rejected, roles, guessed, table.unit)


def _role_cells(table: Table, column: str | None, kept: npt.NDArray[np.int64]) -> tuple[str, ...] | None:
    return None if column is None else tuple(cell.strip() for cell in _pick(table.columns[column], kept))


def _pick(cells: Sequence[str], kept: Iterable[int]) -> list[str]:
    return [cells[row] for row in kept]

"""False negatives that a person marked: pairs of a query and a document in a small file of their own."""

# F marked pairs, U distinct texts

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from bsc_core.data.pairs import PairDataset
from bsc_core.data.tables import read_table
from bsc_core.errors import ColumnError, FileFormatError

HEADER = ("query", "document")
Mark = tuple[str, str]  # the texts of a query and of a document


def read_marks(path: Path | str) -> list[Mark]:
    """The marked pairs of a file with the columns query and document, each once, in their order.

    Raises PathError or FileFormatError when it cannot be read, ColumnError without those columns. A file with a header
    alone has no marks.
    """
    try:
        table = read_table(path)
    except FileFormatError:
        if _is_header_alone(Path(path)):
            return []
        raise
    missing = [name for name in HEADER if name not in table.columns]
    if missing:
        raise ColumnError(
            f"{path}: marked pairs stand in the columns query and document, and {' and '.join(missing)} is missing"
        )
    return list(dict.fromkeys(zip(table.columns["query"], table.columns["document"], strict=True)))


def add_mark(path: Path | str, query: str, document: str) -> None:
    """Mark a pair of texts as a false negative. The file is made where it is missing."""
    known = read_marks(path) if Path(path).is_file() else []
    _write(Path(path), list(dict.fromkeys([*known, (query, document)])))


def remove_mark(path: Path | str, query: str, document: str) -> None:
    """Take a mark back; a pair that is not marked changes nothing."""
    if Path(path).is_file():
        _write(Path(path), [mark for mark in read_marks(path) if mark != (query, document)])


def with_marks(dataset: PairDataset, marks: list[Mark]) -> PairDataset:
    """The same pairs with those marks whose texts they hold; the others concern another split, and do nothing."""
    wanted = {text for mark in marks for text in mark}
    ids = {text: number for number, text in enumerate(dataset.texts) if text in wanted}
    known = [(ids[query], ids[document]) for query, document in marks if query in ids and document in ids]
    return replace(dataset, marks=np.asarray(known, dtype=np.int32).reshape(-1, 2))


def _is_header_alone(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8").strip().split("\t") == list(HEADER)


def _write(path: Path, marks: list[Mark]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t", lineterminator="\n").writerows([HEADER, *marks])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.partial")
    unfinished.write_text(buffer.getvalue(), encoding="utf-8")
    unfinished.replace(path)

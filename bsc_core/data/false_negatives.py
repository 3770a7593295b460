"""False negatives that a person marked: a TSV file of query and document texts."""

# F marked pairs

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from bsc_core.data.dataset import PairDataset
from bsc_core.data.io.tables import read_table
from bsc_core.errors import ColumnError, FileFormatError
from bsc_core.files import atomic_write

HEADER = ("query", "document")
TextPair = tuple[str, str]  # the texts of a query and of a document


def read_false_negatives(path: Path | str) -> list[TextPair]:
    """Read the distinct marked pairs of a file with the columns query and document, which may have no rows.

    Raises:
        PathError: The file cannot be read.
        FileFormatError: The file is unusable.
        ColumnError: A column is missing.
    """
    try:
        table = read_table(path)
    except FileFormatError:
        if _is_header_only(Path(path)):
            return []
        raise
    missing = [name for name in HEADER if name not in table.columns]
    if missing:
        raise ColumnError(
            f"{path}: {' and '.join(missing)} is missing; give marked pairs in the columns query and document"
        )
    return list(dict.fromkeys(zip(table.columns["query"], table.columns["document"], strict=True)))


def mark_false_negative(path: Path | str, query: str, document: str) -> None:
    """Add a pair of texts to the file, which is created when it is missing."""
    pairs = read_false_negatives(path) if Path(path).is_file() else []
    _write(Path(path), list(dict.fromkeys([*pairs, (query, document)])))


def unmark_false_negative(path: Path | str, query: str, document: str) -> None:
    """Remove a pair of texts from the file, if it is there."""
    if Path(path).is_file():
        _write(Path(path), [pair for pair in read_false_negatives(path) if pair != (query, document)])


def with_false_negatives(dataset: PairDataset, pairs: list[TextPair]) -> PairDataset:
    """Return the dataset with those marked pairs whose texts are both in it."""
    marked_texts = {text for pair in pairs for text in pair}
    texts, sides = dataset.texts, dataset.texts.queries
    ids = {text: number for number, text in enumerate(texts.texts[:sides]) if text in marked_texts}
    documents = ids
    if sides is not None:
        documents = {text: number for number, text in enumerate(texts.texts[sides:], sides) if text in marked_texts}
    marked = [(ids[query], documents[document]) for query, document in pairs if query in ids and document in documents]
    return replace(dataset, false_negatives=np.asarray(marked, dtype=np.int32).reshape(-1, 2))


def _is_header_only(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8").strip().split("\t") == list(HEADER)


def _write(path: Path, pairs: list[TextPair]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t", lineterminator="\n").writerows([HEADER, *pairs])
    atomic_write(path, buffer.getvalue())

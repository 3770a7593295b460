"""Queries that somebody brings to ask two models: a file or pasted lines, each with its right documents if known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bsc_core.data.columns import guess_query_columns
from bsc_core.data.formats import decode, read_bytes
from bsc_core.data.readers import nothing_left, reject_texts
from bsc_core.data.reports import Rejection
from bsc_core.data.tables import read_table
from bsc_core.errors import InputError

MOST = 2000
"""Queries that are asked at once."""


@dataclass(frozen=True)
class AskedQueries:
    """Distinct queries in their order. gold: for each the texts of its right documents, none where none is told."""

    source: str
    texts: tuple[str, ...]
    gold: tuple[tuple[str, ...], ...]
    rejected: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def told(self) -> int:
        """How many queries have a right document."""
        return sum(bool(found) for found in self.gold)


def read_queries(path: Path | str) -> AskedQueries:
    """Queries of a .txt file, one a line, or of a table with a column of queries and perhaps one of right documents.

    A query that stands in several rows has the documents of all. Raises FileFormatError, PathError, ColumnError,
    DataError when no row is left, and InputError for more than MOST queries.
    """
    if Path(path).suffix.lower() == ".txt":
        return pasted_queries(decode(read_bytes(path), path, "text"), source=str(path))
    table = read_table(path)
    query, document = guess_query_columns(table.names)
    golds = table.columns[document] if document else [""] * len(table)
    faults: dict[int, Rejection] = {}
    reject_texts(table.columns[query], query, table.line, faults)
    rows = [row for row in range(len(table)) if row not in faults]
    rejected = tuple(sorted([*table.rejected, *faults.values()], key=lambda fault: fault.line))
    return _asked(table.source, [(table.columns[query][row], golds[row]) for row in rows], rejected)


def pasted_queries(text: str, *, source: str = "pasted lines") -> AskedQueries:
    """One query a line; a tab parts it from its right document. Blank lines are passed over."""
    lines = [line for line in text.splitlines() if line.strip()]
    pairs = [(query, gold) for query, _, gold in (line.partition("\t") for line in lines)]
    empty = tuple(
        Rejection(place, "query", "the text is empty") for place, one in enumerate(pairs, 1) if not one[0].strip()
    )
    return _asked(source, [pair for pair in pairs if pair[0].strip()], empty)


def _asked(source: str, pairs: Sequence[tuple[str, str]], rejected: tuple[Rejection, ...]) -> AskedQueries:
    found: dict[str, dict[str, None]] = {}
    for query, gold in pairs:
        documents = found.setdefault(query.strip(), {})
        if gold.strip():
            documents[gold.strip()] = None
    if not found:
        first = rejected[0].sentence() if rejected else "there is no line with text"
        raise nothing_left(source, len(rejected), first)
    if len(found) > MOST:
        raise InputError(f"{source}: {len(found):,} queries, and {MOST:,} are asked at once; bring a part of them")
    return AskedQueries(source, tuple(found), tuple(map(tuple, found.values())), rejected)

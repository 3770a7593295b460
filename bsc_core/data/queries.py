"""User-supplied queries with optional relevant documents, from a file or pasted lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bsc_core.data.io.tables import read_table, read_text
from bsc_core.data.io.validation import RowChecks, no_valid_row
from bsc_core.data.read_report import Rejection
from bsc_core.data.schema.classes import NLI, UNLABELED
from bsc_core.data.schema.columns import guess_query_columns, is_class_column, is_number
from bsc_core.errors import DataError, InputError
from bsc_core.paths import check_path

POSITIVE_ABOVE, ENTAILMENT = 0.5, "entailment"
MAX_QUERIES = 2000
"""Maximum number of queries in one search."""
MAX_CHARACTERS = 200_000
"""Maximum number of characters of all queries of one search."""
MAX_TEXT_BYTES = 2_000_000
"""Maximum size of a text file with queries and their relevant documents."""


@dataclass(frozen=True)
class QuerySet:
    """Distinct queries in their order. gold: the texts of the relevant documents of each, if given."""

    source: str
    texts: tuple[str, ...]
    gold: tuple[tuple[str, ...], ...]
    rejected: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def with_gold(self) -> int:
        """Number of queries with a relevant document."""
        return sum(bool(documents) for documents in self.gold)


def read_queries(path: Path | str) -> QuerySet:
    """Read queries from a .txt file, one per line, or from a table with a query and optionally a document column.

    A query in several rows has the documents of all of them. In a file of labeled pairs, documents with a label of at
    most 0.5, or with another class than entailment, which is 0 in a column class_label, are not relevant. Labels are in
    0 to 1: a file with a larger one has another scale, or numbers its classes.

    Raises:
        PathError: The path cannot be read.
        FileFormatError: The file is unusable.
        ColumnError: The query column cannot be guessed.
        DataError: No row is left, or a label is above 1.
        InputError: There are more than MAX_QUERIES queries, they have more than MAX_CHARACTERS characters, or a .txt
            file has more than MAX_TEXT_BYTES bytes.
    """
    if Path(path).suffix.lower() == ".txt":
        if (size := check_path(path).stat().st_size) > MAX_TEXT_BYTES:
            raise InputError(f"{path}: the file has {size:,} bytes, and a search reads up to {MAX_TEXT_BYTES:,}")
        return parse_queries(read_text(path), source=str(path))
    table = read_table(path)
    query, document, label = guess_query_columns(table.names)
    golds = table.columns[document] if document else [""] * len(table)
    checks = RowChecks(table)
    if label:
        golds = [gold if _is_relevant(checks, row, label) else "" for row, gold in enumerate(golds)]
    queries = checks.texts(query)
    return _distinct(table.source, [(queries[row], golds[row]) for row in checks.rows], checks.rejected)


def _is_relevant(checks: RowChecks, row: int, column: str) -> bool:
    """Return whether a label is above 0.5 or the class of entailment; reject the row if it is neither."""
    table, label = checks.table, checks.table.columns[column][row].strip()
    if is_number(label):
        if is_class_column(column):
            return float(label) == NLI.index(ENTAILMENT)
        if float(label) > 1:
            raise DataError(
                f"{table.source}: the label {label[:40]} in {table.unit} {table.line[row]} is above 1; scale the "
                "labels to 0 to 1, or name the column class_label if its numbers are classes of NLI"
            )
        return float(label) > POSITIVE_ABOVE
    if label not in UNLABELED and label.lower() not in NLI:
        checks.reject(row, column, f"the label {label[:40]!r} is neither a number nor a class of NLI")
    return label.lower() == ENTAILMENT


def parse_queries(text: str, *, source: str = "pasted lines") -> QuerySet:
    """Parse one query per line, optionally with a tab and its relevant document; blank lines are skipped.

    Raises:
        DataError: There is no line with text.
        InputError: There are more than MAX_QUERIES queries, or they have more than MAX_CHARACTERS characters.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    pairs = [(query, gold) for query, _, gold in (line.partition("\t") for line in lines)]
    empty = tuple(
        Rejection(number, "query", "the text is empty") for number, pair in enumerate(pairs, 1) if not pair[0].strip()
    )
    return _distinct(source, [pair for pair in pairs if pair[0].strip()], empty)


def _distinct(source: str, pairs: Sequence[tuple[str, str]], rejected: tuple[Rejection, ...]) -> QuerySet:
    gold_of: dict[str, dict[str, None]] = {}
    for query, gold in pairs:
        documents = gold_of.setdefault(query.strip(), {})
        if gold.strip():
            documents[gold.strip()] = None
    if not gold_of:
        first = rejected[0].sentence() if rejected else "there is no line with text"
        raise no_valid_row(source, len(rejected), first)
    if len(gold_of) > MAX_QUERIES:
        raise InputError(f"{source}: {len(gold_of):,} queries exceed the limit of {MAX_QUERIES:,}; give fewer")
    if (characters := sum(map(len, gold_of))) > MAX_CHARACTERS:
        raise InputError(
            f"{source}: the queries have {characters:,} characters, and a search reads up to {MAX_CHARACTERS:,}; give "
            "fewer or shorter ones"
        )
    return QuerySet(source, tuple(gold_of), tuple(map(tuple, gold_of.values())), rejected)

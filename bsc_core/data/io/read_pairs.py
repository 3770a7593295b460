"""Readers of pairs and corpora, at once or in chunks; every rejected row is counted with its reason."""

# N valid rows of a file, R valid rows of a chunk

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns, CorpusColumns, ExamplesConfig, SentenceColumns
from bsc_core.data.dataset import Corpus, PairDataset, TextTable, query_groups
from bsc_core.data.io.limits import Sizes
from bsc_core.data.io.sources import open_source
from bsc_core.data.io.tables import OnProgress, Table, read_chunks, read_table
from bsc_core.data.io.validation import (
    Limits,
    RowChecks,
    check_label_range,
    check_not_nested,
    check_scale,
    map_columns,
    map_pair_columns,
    no_valid_row,
)
from bsc_core.data.read_report import Rejection
from bsc_core.data.schema.classes import NLI, UNLABELED, are_numbered, entailment_labels, read_classes
from bsc_core.data.schema.columns import as_names, guess_corpus_columns, guess_sentence_columns
from bsc_core.errors import ColumnError, DataError
from bsc_core.types import Indices

MAX_REJECTIONS = 20  # rejected rows that a chunked reader stores
CELL_ROLES = ("query_id", "document_id", "split", "class_label")


def read_pairs(
    path: Path | str,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    threshold: float = 0.5,
    label_min: float = 0.0,
    label_max: float = 1.0,
) -> PairDataset:
    """Read a file of pairs.

    Rows with an empty text, an unusable label or no class are rejected and listed in the report. Where a file has NLI
    class names and no label, an entailed pair has the label 1 and any other 0.

    Args:
        path: A CSV, TSV, JSONL (each also .gz) or Parquet file, a folder of shards, or a dataset of Hugging Face.
        columns: The column of each role; None: guessed from the header, as the report states.
        threshold: Label, scaled to [0, 1], above which a pair is positive.
        label_min: Label in the file that is mapped to 0.
        label_max: Label in the file that is mapped to 1.

    Raises:
        PathError: The path cannot be read.
        FileFormatError: The file is unusable.
        ColumnError: A column is missing or cannot be guessed.
        ConfigError: The threshold or the label range is invalid.
        DataError: No row is left, or most labels are outside the range.
    """
    return to_pairs(read_table(path), columns, threshold=threshold, limits=(label_min, label_max))


def to_pairs(
    table: Table, columns: Columns | Mapping[str, Any] | None, *, threshold: float, limits: Limits
) -> PairDataset:
    """Build pairs from the valid rows of a table; see `read_pairs`."""
    check_scale(threshold, limits)
    roles, guessed = map_pair_columns(table, columns)
    checks = RowChecks(table)
    sides, labels = checks.pairs(roles, limits)
    check_label_range(table.source, roles.label, limits, checks.outside, count=len(checks.outside), rows=len(table))
    classes, class_names = None, None
    if roles.class_label is not None:
        classes, class_names = read_classes(checks.classes(roles.class_label))
        labels = entailment_labels(classes) if labels is None and class_names == NLI else labels
    rows, report = checks.rows, checks.report(roles, guessed=guessed)
    texts, ids = TextTable.from_texts(chain.from_iterable(_take(side, rows) for side in sides))
    query, document, *others = np.split(ids, len(sides))
    return PairDataset(
        texts=texts,
        query=query,
        document=document,
        label=None if labels is None else labels[rows],
        query_group=query_groups(query, stripped_cells(table, roles.query_id, rows)),
        document_key=stripped_cells(table, roles.document_id, rows),
        line=np.asarray(table.line, dtype=np.int32)[rows],
        split=stripped_cells(table, roles.split, rows),
        threshold=threshold,
        report=report,
        negative=others[0] if others else None,
        classes=None if classes is None else classes[rows],
        class_names=class_names,
    )


def to_sentences(table: Table, config: ExamplesConfig, threshold: float = 0.5) -> PairDataset:
    """Build rows of classified sentences, each paired with itself; columns that the config does not name are guessed.

    Raises:
        ColumnError: A column is missing or cannot be guessed.
        DataError: No row has a text and a class.
    """
    roles, _ = map_columns(table, None, SentenceColumns, lambda names, examples: guess_sentence_columns(names, config))
    checks = RowChecks(table)
    sentences = checks.texts(roles.text)
    classes, class_names = read_classes(checks.classes(roles.class_label))
    guessed = config.text is None or config.class_label is None
    rows, report = checks.rows, checks.report(roles, guessed=guessed)
    texts, ids = TextTable.from_texts(_take(sentences, rows))
    return PairDataset(
        texts=texts,
        query=ids,
        document=ids,
        query_group=ids,
        line=np.asarray(table.line, dtype=np.int32)[rows],
        threshold=threshold,
        report=report,
        split=stripped_cells(table, roles.split, rows),
        classes=classes[rows],
        class_names=class_names,
    )


def read_corpus(
    path: Path | str, columns: CorpusColumns | Mapping[str, Any] | None = None, *, sizes: Sizes | None = None
) -> Corpus:
    """Read documents to search; columns are guessed and errors raised as by `read_pairs`.

    Of several texts with the same id, the first is read, and the others are rejected. `sizes` are as in `read_table`.
    """
    table = read_table(path, sizes=sizes)
    roles, guessed = map_columns(table, columns, CorpusColumns, guess_corpus_columns)
    checks = RowChecks(table)
    documents = checks.texts(roles.document)
    if roles.document_id is not None:
        checks.reject_repeated(roles.document_id, documents)
    rows, report = checks.rows, checks.report(roles, guessed=guessed)
    texts, ids = TextTable.from_texts(_take(documents, rows))
    return Corpus(texts, ids, stripped_cells(table, roles.document_id, rows), report)


@dataclass(frozen=True)
class PairChunk:
    """The valid rows of a chunk.

    sides: R texts each of query, document and, where it is mapped, negative. labels: (R,) in [0, 1], or None. cells: R
    cells of each role in CELL_ROLES that is mapped.
    """

    sides: list[list[str]]
    labels: npt.NDArray[np.float32] | None
    cells: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.sides[0])


@dataclass
class ChunkedPairs:
    """Iterator over a file of pairs in chunks, in the memory of one chunk; it validates rows as `read_pairs` does.

    Raises the errors of `read_pairs`: for the file and its columns on creation, for its rows after the last chunk. A
    file whose classes have names in one chunk and a number in a later one is an error, too.

    Attributes:
        path: The file.
        columns: The column of each role, or None to guess them from the first chunk.
        limits: Labels in the file that are mapped to 0 and 1.
        threshold: Scaled label above which a pair is positive.
        on_progress: Called after each chunk.
        rows_read: Rows so far.
        rows_rejected: Rejected rows so far.
        first_rejections: The first MAX_REJECTIONS of them.
        unit: Unit of the positions of rows.
    """

    path: Path | str
    columns: Columns | None = None
    limits: Limits = (0.0, 1.0)
    threshold: float = 0.5
    on_progress: OnProgress = lambda progress: None
    rows_read: int = 0
    rows_rejected: int = 0
    first_rejections: list[Rejection] = field(default_factory=list)
    unit: Literal["line", "row"] = "line"

    def __post_init__(self) -> None:
        check_scale(self.threshold, self.limits)
        self._source = open_source(self.path)
        head = next(table for table in read_chunks(self._source) if table.names)
        self._head = head
        self.roles, self.guessed = map_pair_columns(head, self.columns)
        self.unit = head.unit
        self._numbered: bool | None = None  # whether the classes are numbers; None before the first class
        self._labeled = self._outside = 0
        self._outside_range: list[float] = []

    def __iter__(self) -> Iterator[PairChunk]:
        roles = self.roles.model_dump(exclude_none=True)
        names = list(dict.fromkeys(name for given in roles.values() for name in as_names(given)))
        for table in read_chunks(self._source, names, on_progress=self.on_progress):
            self._check_later_columns(table)
            missing = {name: [""] * len(table) for name in names if name not in table.columns}  # in a later file
            yield self._valid(replace(table, columns=table.columns | missing))
        check_label_range(
            str(self.path), self.roles.label, self.limits, self._outside_range, count=self._outside, rows=self._labeled
        )
        if not self.rows_valid:
            raise no_valid_row(str(self.path), self.rows_read, self.first_rejections[0].sentence(self.unit))

    def _check_later_columns(self, table: Table) -> None:
        """Raise ColumnError if a column that begins after the first chunk would have been guessed for a role."""
        later = sorted(table.not_read.difference(self._head.names)) if self.guessed else []
        if not later:
            return
        names = (*self._head.names, *later)
        whole = replace(self._head, names=names, columns={name: self._head.columns.get(name, []) for name in names})
        guessed = map_pair_columns(whole, None)[0].model_dump(exclude_none=True)
        if new := [name for given in guessed.values() for name in as_names(given) if name in later]:
            raise ColumnError(
                f"{self.path}: column {new[0]!r} begins after the first {len(self._head):,} rows; name the columns, "
                "such as columns = {query = ..., document = ..., label = ...}"
            )

    @property
    def rows_valid(self) -> int:
        """Valid rows so far."""
        return self.rows_read - self.rows_rejected

    def as_report(self) -> dict[str, Any]:
        """Return the outcome so far, as JSON values."""
        return {
            "file": str(self.path),
            "rows_read": self.rows_read,
            "rows_valid": self.rows_valid,
            "rows_kept": self.rows_valid,  # the previous name
            "rejected": self.rows_rejected,
            "first_rejections": [rejection.sentence(self.unit) for rejection in self.first_rejections],
            "columns": self.roles.model_dump(exclude_none=True),
            "columns_guessed": self.guessed,
        }

    def _valid(self, table: Table) -> PairChunk:
        check_not_nested(table, self.roles)
        checks = RowChecks(table)
        sides, labels = checks.pairs(self.roles, self.limits)
        if self.roles.class_label is not None:
            self._check_classes(table, self.roles.class_label)
            checks.classes(self.roles.class_label, numbered=self._numbered)
        self._count(checks)
        rows = checks.rows
        cells = {role: stripped_cells(table, getattr(self.roles, role), rows) for role in CELL_ROLES}
        return PairChunk(
            [_take(side, rows) for side in sides],
            None if labels is None else labels[rows],
            {role: list(column) for role, column in cells.items() if column is not None},
        )

    def _check_classes(self, table: Table, column: str) -> None:
        """Raise DataError if classes are numbered after a chunk with class names, which `read_pairs` would reject."""
        classes = {cell.strip() for cell in table.columns[column]}.difference(UNLABELED)
        numbers = {name for name in classes if are_numbered([name])}
        if numbers and self._numbered is False:
            line = next(
                line for line, cell in zip(table.line, table.columns[column], strict=True) if cell.strip() in numbers
            )
            raise DataError(
                f"{self.path}: column {column!r} has a number in {table.unit} {line:,} after rows with class names; "
                "number all classes, or name all of them with words"
            )
        if self._numbered is None and classes:
            self._numbered = bool(numbers)

    def _count(self, checks: RowChecks) -> None:
        rejected = checks.rejected
        self.rows_read += len(checks.table) + len(checks.table.rejected)
        self.rows_rejected += len(rejected)
        self.first_rejections += rejected[: MAX_REJECTIONS - len(self.first_rejections)]
        self._labeled += len(checks.table)
        self._outside += len(checks.outside)
        if checks.outside:
            labels = [*self._outside_range, *checks.outside]
            self._outside_range = [min(labels), max(labels)]


def stripped_cells(table: Table, column: str | None, rows: Indices) -> tuple[str, ...] | None:
    """Return the stripped cells of a column in these rows, None without a column."""
    return None if column is None else tuple(cell.strip() for cell in _take(table.columns[column], rows))


def _take(cells: Sequence[str], rows: Indices) -> list[str]:
    return [cells[row] for row in rows.tolist()]

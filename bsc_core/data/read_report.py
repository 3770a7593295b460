"""Reports of reading a file: rows read, valid rows, and rejected rows with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bsc_core.config import Columns, CorpusColumns, SentenceColumns

MAX_LISTED = 3


@dataclass(frozen=True)
class Rejection:
    """A rejected row: its line in the file, from 1, the faulty column ("" for all of the row), and the reason."""

    line: int
    field: str
    reason: str

    def sentence(self, unit: str = "line") -> str:
        """Return position and reason, such as `line 7, label: the label is NaN`."""
        position = f"{unit} {self.line}, {self.field}" if self.field else f"{unit} {self.line}"
        return f"{position}: {self.reason}"


@dataclass(frozen=True)
class ReadReport:
    """The outcome of reading one file; rows_read == rows_valid + len(rejected).

    unit: "line" counts the lines of a text file, whose header is line 1; "row" counts rows from 1.
    separator: Name of the separator of the columns, where the ending of the file stands for another one.
    """

    source: str
    rows_read: int
    rows_valid: int
    rejected: tuple[Rejection, ...]
    columns: Columns | CorpusColumns | SentenceColumns
    guessed: bool
    unit: Literal["line", "row"] = "line"
    separator: str = ""

    @classmethod
    def complete(cls, source: str, rows: int) -> ReadReport:
        """Return the report of rows that all are valid, in the columns query and document."""
        return cls(source, rows, rows, (), Columns(query="query", document="document"), False, "row")

    def summary(self) -> str:
        """Return a sentence: rows read, rows rejected, and the first rejections with their reasons."""
        read = f"{self.source}: {self.rows_read:,} rows read"
        read += f" (separated by {self.separator})" if self.separator else ""
        if not self.rejected:
            return f"{read}, none rejected"
        shown = "; ".join(rejection.sentence(self.unit) for rejection in self.rejected[:MAX_LISTED])
        more = f"; and {len(self.rejected) - MAX_LISTED:,} more" if len(self.rejected) > MAX_LISTED else ""
        return f"{read}, {len(self.rejected):,} rejected ({shown}{more})"


def rejected_rows(reports: Sequence[ReadReport], limit: int = 20) -> list[str]:
    """Return a sentence for each rejected row, at most `limit` per file, and one with their number."""
    sentences = []
    for report in reports:
        sentences += [f"{report.source}: {row.sentence(report.unit)}" for row in report.rejected[:limit]]
        if report.rejected:
            sentences.append(f"{report.source}: {len(report.rejected):,} of {report.rows_read:,} rows rejected")
    return sentences

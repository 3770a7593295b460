"""What reading a file did: how many rows were read and kept, which were rejected and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bsc_core.config import Columns, CorpusColumns, SentenceColumns

SHOWN = 3


@dataclass(frozen=True)
class Rejection:
    """A row that was not kept: its line in the file, from 1, the field at fault ("" for the row), and the reason."""

    line: int
    field: str
    reason: str

    def sentence(self, unit: str = "line") -> str:
        """Where and why, such as `line 7, label: the label is NaN`."""
        place = f"{unit} {self.line}, {self.field}" if self.field else f"{unit} {self.line}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True)
class ReadReport:
    """The outcome of reading one file; rows_read == rows_kept + len(rejected).

    unit: "line" counts the lines of a text file, its header is line 1; "row" counts the rows of a Parquet file from 1.
    """

    source: str
    rows_read: int
    rows_kept: int
    rejected: tuple[Rejection, ...]
    columns: Columns | CorpusColumns | SentenceColumns
    guessed: bool
    unit: Literal["line", "row"] = "line"

    def mapping(self) -> str:
        """One sentence: which column plays which role, and whether that was guessed."""
        roles = self.columns.model_dump(exclude_none=True)
        named = {role: given if isinstance(given, str) else " + ".join(given) for role, given in roles.items()}
        told = ", ".join(f"{role} = {column}" for role, column in named.items())
        return f"columns {'guessed from the header' if self.guessed else 'as given'}: {told}"

    def summary(self) -> str:
        """One sentence: rows read, rows kept, and the first rejected rows with their reasons."""
        if not self.rejected:
            return f"{self.source}: {self.rows_read:,} rows read, none rejected"
        shown = "; ".join(rejection.sentence(self.unit) for rejection in self.rejected[:SHOWN])
        more = f"; and {len(self.rejected) - SHOWN:,} more" if len(self.rejected) > SHOWN else ""
        return f"{self.source}: {self.rows_read:,} rows read, {len(self.rejected):,} rejected ({shown}{more})"

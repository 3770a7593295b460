"""Validation of a table: columns mapped to roles, rows checked for empty texts and unusable labels and classes."""

# R rows of a table

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bsc_core.config import Columns, CorpusColumns, SentenceColumns
from bsc_core.data.io.tables import Table
from bsc_core.data.read_report import ReadReport, Rejection
from bsc_core.data.schema.classes import are_numbered, class_fault
from bsc_core.data.schema.columns import Examples, as_names, guess_columns, number_of, require_columns
from bsc_core.errors import ColumnError, ConfigError, DataError
from bsc_core.types import Indices

EXAMPLE_CELLS = 1000
Limits = tuple[float, float]  # labels in the file that are mapped to 0 and 1
Roles = TypeVar("Roles", Columns, CorpusColumns, SentenceColumns)


def map_columns(
    table: Table,
    columns: Roles | Mapping[str, Any] | None,
    model: type[Roles],
    guess: Callable[[Sequence[str], Examples | None], Roles],
) -> tuple[Roles, bool]:
    """Return the column of each role, and whether the columns were guessed because none were given.

    Raises:
        ColumnError: A role is unknown, a column is missing or contains no texts, or no guess is possible.
    """
    try:
        if columns is None:
            roles = guess(table.names, table.examples(EXAMPLE_CELLS))
        else:
            roles = columns if isinstance(columns, model) else model.model_validate(dict(columns))
        require_columns(roles, table.names)
    except ValidationError as error:
        raise ColumnError(f"{table.source}: {_explain(error, model)}") from None
    except ColumnError as error:
        raise ColumnError(f"{table.source}: {error}") from None
    check_not_nested(table, roles)
    return roles, columns is None


def map_pair_columns(table: Table, columns: Columns | Mapping[str, Any] | None) -> tuple[Columns, bool]:
    """Map the columns of a table of pairs; where the source names its roles itself, they replace `columns`."""
    return map_columns(table, columns if table.roles is None else table.roles, Columns, guess_columns)


def check_not_nested(table: Table, roles: Columns | CorpusColumns | SentenceColumns) -> None:
    """Raise ColumnError when a mapped column contains lists, objects or bytes."""
    for role, given in roles.model_dump(exclude_none=True).items():
        for name in as_names(given):
            if name in table.nested:
                raise ColumnError(
                    f"{table.source}: column {name!r} contains lists, objects or bytes; map {role} to a column of texts"
                )


class RowChecks:
    """Columns of a table, read with checks; a row is rejected for its first fault.

    Attributes:
        outside: Labels outside the limits.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.outside: list[float] = []
        self._faults: dict[int, Rejection] = {}

    def reject(self, row: int, field: str, reason: str) -> None:
        """Reject a row, unless it has a fault already."""
        self._faults.setdefault(row, Rejection(self.table.line[row], field, reason))

    def texts(self, columns: str | tuple[str, ...]) -> list[str]:
        """Return R texts, the non-empty cells of several columns joined by a space; reject empty or invalid ones.

        They have no spaces at their ends.
        """
        names = as_names(columns)
        texts = [cell.strip() for cell in self.table.columns[names[0]]]
        if len(names) > 1:
            rows = zip(*(self.table.columns[name] for name in names), strict=True)
            texts = [" ".join(cell for cell in cells if cell.strip()).strip() for cells in rows]
        for row, text in enumerate(texts):
            if not text:
                self.reject(row, " + ".join(names), "the text is empty")
        return texts

    def reject_repeated(self, column: str, texts: Sequence[str]) -> None:
        """Reject each row with the id of an earlier one and another text; an empty cell is no id."""
        first: dict[str, str] = {}
        for row in self.rows.tolist():
            key = self.table.columns[column][row].strip()
            if key and first.setdefault(key, texts[row]) != texts[row]:
                self.reject(row, column, "the id occurs before with another text")

    def labels(self, column: str, limits: Limits) -> npt.NDArray[np.float32]:
        """Return (R,) labels scaled to [0, 1], nan for a rejected one."""
        low, high = limits
        labels = np.full(len(self.table), np.nan)
        for row, cell in enumerate(self.table.columns[column]):
            value, reason = _parse_number(cell)
            if not reason and not low <= value <= high:
                reason = f"the label {cell.strip()} is outside {low:g} to {high:g}"
                self.outside.append(value)
            if reason:
                self.reject(row, column, reason)
            else:
                labels[row] = (value - low) / (high - low)
        return labels.astype(np.float32)

    def pairs(self, roles: Columns, limits: Limits) -> tuple[list[list[str]], npt.NDArray[np.float32] | None]:
        """Return the texts of query, document and, where it is mapped, negative, and the labels (R,) or None."""
        sides = [self.texts(roles.query), self.texts(roles.document)]
        labels = None if roles.label is None else self.labels(roles.label, limits)
        return sides + ([] if roles.negative is None else [self.texts(roles.negative)]), labels

    def classes(self, column: str, *, numbered: bool | None = None) -> list[str]:
        """Return R cells that name classes; reject unusable ones.

        Args:
            column: Name of the column of classes.
            numbered: Whether the column numbers its classes; None to decide by these cells.
        """
        cells = self.table.columns[column]
        numbered = are_numbered(cells) if numbered is None else numbered
        for row, cell in enumerate(cells):
            if reason := class_fault(cell, numbered=numbered):
                self.reject(row, column, reason)
        return cells

    @property
    def rows(self) -> Indices:
        """Numbers of the rows without a fault."""
        return np.delete(np.arange(len(self.table)), list(self._faults))

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """All rejections, by line."""
        return tuple(sorted([*self.table.rejected, *self._faults.values()], key=lambda rejection: rejection.line))

    def report(self, roles: Columns | CorpusColumns | SentenceColumns, *, guessed: bool) -> ReadReport:
        """Return the outcome of reading the table.

        Raises:
            DataError: No row is left.
        """
        table, rejected = self.table, self.rejected
        rows_read, rows_valid = len(table) + len(table.rejected), len(table) - len(self._faults)
        if not rows_valid:
            raise no_valid_row(table.source, rows_read, rejected[0].sentence(table.unit))
        unit, separator = table.unit, table.separator
        return ReadReport(table.source, rows_read, rows_valid, rejected, roles, guessed, unit, separator)


def check_scale(threshold: float, limits: Limits) -> None:
    """Raise ConfigError for a threshold outside 0 to 1 or an empty range of labels."""
    low, high = limits
    if not (low < high and 0 <= threshold <= 1):
        raise ConfigError(
            f"threshold is {threshold:g}, label_min {low:g}, label_max {high:g}; "
            "the threshold must be in 0 to 1 and label_max above label_min"
        )


def check_label_range(
    source: str, column: str | None, limits: Limits, outside: Sequence[float], *, count: int, rows: int
) -> None:
    """Raise DataError when most labels are outside the limits: then the limits are wrong, not the rows.

    Args:
        source: Name of the source.
        column: Name of the label column.
        limits: Lowest and highest label.
        outside: At least the lowest and the highest of the labels outside the limits.
        count: Number of labels outside the limits.
        rows: Number of rows.
    """
    low, high = limits
    if 2 * count > rows:
        raise DataError(
            f"{source}: {count:,} of {rows:,} labels in column {column!r} are outside {low:g} to {high:g} "
            f"(they range from {min(outside):g} to {max(outside):g}); set label_min and label_max to the file's scale"
        )


def no_valid_row(source: str, rows_read: int, first: str) -> DataError:
    """Return the error for a source without a valid row.

    Args:
        source: Name of the source.
        rows_read: Number of rows read, all rejected.
        first: The first rejection as a sentence.
    """
    return DataError(
        f"{source}: none of its rows can be used ({rows_read:,} read); the first: "
        f"{first}; correct the rows or map other columns"
    )


def _explain(error: ValidationError, model: type[Columns] | type[CorpusColumns] | type[SentenceColumns]) -> str:
    fault = error.errors(include_url=False)[0]
    role = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"columns: {role!r} is not a role; the roles are {', '.join(model.model_fields)}"
    if fault["type"] == "missing":
        return f"columns: {role} is missing; name its column"
    return f"columns: {role} is {fault['input']!r}; give the name of a column"


def _parse_number(cell: str) -> tuple[float, str]:
    """Return the number in a cell, and why it is unusable ("" when it is usable)."""
    try:
        value = number_of(cell)
    except ValueError:
        shown = cell if len(cell) <= 40 else cell[:39] + "…"
        return math.nan, f"the label {shown!r} is not a number" if cell.strip() else "the label is empty"
    return value, "the label is NaN" if math.isnan(value) else ""

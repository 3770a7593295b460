"""Bring a table and the roles of its columns together: given ones are checked, missing ones guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from bsc_core.config import Columns, CorpusColumns, SentenceColumns
from bsc_core.data.columns import Examples, as_names, require_columns
from bsc_core.data.tables import Table
from bsc_core.errors import ColumnError

EXAMPLE_CELLS = 1000
Roles = TypeVar("Roles", Columns, CorpusColumns, SentenceColumns)


def choose_columns(
    table: Table,
    columns: Roles | Mapping[str, Any] | None,
    model: type[Roles],
    guess: Callable[[Sequence[str], Examples | None], Roles],
) -> tuple[Roles, bool]:
    """The columns to read, and whether they were guessed because none were given.

    Raises ColumnError, naming the file, for an unknown role, a column that is not there or holds no texts, and a
    guess that cannot be made.
    """
    try:
        if columns is None:
            roles = guess(table.names, table.examples(EXAMPLE_CELLS))
        else:
            roles = columns if isinstance(columns, model) else model.model_validate(dict(columns))
        require_columns(roles, table.names)
    except ValidationError as error:
        raise ColumnError(f"{table.source}: {_explain_columns(error, model)}") from None
    except ColumnError as error:
        raise ColumnError(f"{table.source}: {error}") from None
    refuse_nested(table, roles)
    return roles, columns is None


def refuse_nested(table: Table, roles: Columns | CorpusColumns | SentenceColumns) -> None:
    """Raise ColumnError when a mapped column holds something else than texts."""
    for role, given in roles.model_dump(exclude_none=True).items():
        for name in as_names(given):
            if name in table.nested:
                raise ColumnError(
                    f"{table.source}: column {name!r} holds lists, objects or bytes; map {role} to a column of texts"
                )


def _explain_columns(error: ValidationError, model: type[Columns] | type[CorpusColumns] | type[SentenceColumns]) -> str:
    fault = error.errors(include_url=False)[0]
    role = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"columns: {role!r} is no role; the roles are {', '.join(model.model_fields)}"
    if fault["type"] == "missing":
        return f"columns: {role} is missing; name the column that holds it"
    return f"columns: {role} is {fault['input']!r}; give the name of a column"


def joined_cells(table: Table, columns: str | tuple[str, ...]) -> list[str]:
    """The cells of a column; of several, their non-empty cells joined by a space."""
    names = as_names(columns)
    if len(names) == 1:
        return table.columns[names[0]]
    rows = zip(*(table.columns[name] for name in names), strict=True)
    return [" ".join(cell for cell in cells if cell.strip()) for cells in rows]

"""The columns of a dataset: as guessed from the header, with example values, and their correction by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from bsc_core.config import Columns, DataConfig, SentenceColumns
from bsc_core.data import Table, guess_columns
from bsc_core.data.columns import as_names
from bsc_core.errors import ColumnError
from pages.ui import frame, show, store, uploads
from pages.ui.words import help_text

NONE = "— none —"
EXAMPLES = 3
ROLES = ("query", "document", "label", "query_id", "document_id", "split", "negative", "class_label")


def columns_of(key: str) -> None:
    """The columns of the dataset in view: fixed for the sample data and for sentences, editable for one's own pairs."""
    choice = store.datasets()[key]
    data = choice.data
    if key in store.SAMPLES or data.examples is not None:
        columns = store.source_rows(key).train.report.columns
        described(store.table(data.train), columns, key="data.columns")
        if key in store.SAMPLES:
            st.caption("These are the sample data; the columns of a file that you bring can be changed here.")
        else:
            st.caption("Text, class and split are chosen under Make examples.")
        return
    form(store.uploads_folder() / key, choice.label, data.model_dump(), key=f"data.edit.{key}")


def described(table: Table, columns: Any, *, key: str) -> None:
    """Every column of a file with its role and its first values."""
    examples = table.examples(EXAMPLES)
    roles = {name: role for role, given in columns.model_dump(exclude_none=True).items() for name in as_names(given)}
    lines = [(name, roles.get(name, "not used"), " · ".join(examples[name])) for name in table.names]
    shown = pd.DataFrame(lines, columns=["column", "role", "examples"])
    st.dataframe(shown, hide_index=True, key=key, alt="Columns, their roles and examples")


def form(folder: Path, label: str, values: dict[str, Any], *, key: str) -> None:
    """Guessed columns with examples, each changeable, and the button that keeps them."""
    table = store.table(values["train"])
    guess, guessed = _start(table, values.get("columns"))
    st.markdown("**Columns as guessed from the header; change what is wrong**" if guessed else "**Columns**")
    described(table, guess, key=f"{key}.table")
    chosen: dict[str, Any] = {}
    for place, role in zip(show.columns(len(ROLES), least=150), ROLES, strict=True):
        with place:
            needed = role in ("query", "document")
            chosen[role] = picker(table, Columns, role, getattr(guess, role), key=f"{key}.{role}", needed=needed)
    numbers = _label_numbers(values, key) if chosen["label"] is not None else {}
    name = st.text_input("Name", label, key=f"{key}.name", max_chars=60)
    if st.button("Use these columns", key=f"{key}.use", type="primary"):
        columns = Columns.model_validate(chosen)
        _keep(folder, name or label, {**values, **numbers, "columns": columns.model_dump()})


def picker(
    table: Table, model: type[Columns | SentenceColumns], role: str, given: Any, *, key: str, needed: bool
) -> str | tuple[str, ...] | None:
    """Choose the column of a role; a text joined from several columns stays joined until another is chosen."""
    field = model.model_fields[role]
    options = list(table.names) if needed else [NONE, *table.names]
    start = as_names(given)[0] if given else options[0]
    chosen = st.selectbox(str(field.title), options, options.index(start), key=key, help=field.description)
    if isinstance(given, tuple) and chosen == given[0]:
        return given
    return None if chosen == NONE else chosen


def _start(table: Table, columns: dict[str, Any] | None) -> tuple[Columns, bool]:
    if columns:
        return Columns.model_validate(columns), False
    try:
        return guess_columns(table.names, table.examples(20)), True
    except ColumnError as fault:
        if len(table.names) < 2:
            raise
        st.text(f"{fault}.")
        return Columns(query=table.names[0], document=table.names[1]), True


def _label_numbers(values: dict[str, Any], key: str) -> dict[str, float]:
    fields = DataConfig.model_fields
    names = ("label_min", "label_max", "threshold")
    return {
        name: place.number_input(
            str(fields[name].title),
            value=float(values.get(name, fields[name].default)),
            key=f"{key}.{name}",
            help=help_text("threshold") if name == "threshold" else fields[name].description,
        )
        for place, name in zip(show.columns(3, least=150), names, strict=True)
    }


def _keep(folder: Path, label: str, values: dict[str, Any]) -> None:
    data = uploads.checked(values)
    store.prepared(data)  # refused here, with its reason, rather than on the next page
    use(folder, label, data)


def use(folder: Path, label: str, data: DataConfig) -> None:
    """Keep a dataset and open it; the box that brought it closes and empties."""
    key = uploads.describe(folder, label, data)
    st.session_state["data.taken"] = st.session_state.get("data.taken", 0) + 1
    frame.go("data", dataset=key)

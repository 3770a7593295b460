"""Bringing a dataset: the upload, the columns as guessed from the header, and their correction by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from bsc_core.config import Columns, DataConfig
from bsc_core.data import SPLIT_SEED, Table, guess_columns, guess_corpus_columns, load_data, read_table
from bsc_core.data.columns import as_names
from bsc_core.data.places import check_path
from bsc_core.errors import ColumnError, ConfigError
from pages.ui import frame, show, store, uploads
from pages.ui.words import help_text

NONE = "— none —"
EXAMPLES = 3
ROLES = ("query", "document", "label", "query_id", "document_id", "split", "negative", "class_label")


def upload() -> None:
    """The foldable box that brings a file: from the browser, or from a path on this machine."""
    taken = st.session_state.get("data.taken", 0)  # a box that was used closes and empties
    with st.expander("Bring your own pairs", icon=":material/upload_file:", key=f"data.upload.{taken}"):
        left, right = show.columns(2, least=240)
        kinds = list(uploads.SUFFIXES)
        pairs = left.file_uploader(
            "Pairs: CSV, TSV, JSONL (also .gz) or Parquet", kinds, key=f"data.pairs_file.{taken}"
        )
        corpus = right.file_uploader("Corpus to search (optional)", kinds, key=f"data.corpus_file.{taken}")
        path = left.text_input(
            "or a path on this machine", key=f"data.pairs_path.{taken}", placeholder="/data/pairs.tsv"
        )
        corpus_path = right.text_input("or a path on this machine ", key=f"data.corpus_path.{taken}")
        if not pairs and not path:
            st.caption(
                "One row is one pair: a query and a document, and a label, a class or a wrong document if there is "
                "one. Nothing leaves this machine."
            )
            return
        with show.calm_errors(stop=False):
            file = uploads.save_file(pairs.name, pairs.getvalue()) if pairs else check_path(path)
            folder = file.parent if pairs else uploads.folder_for(file)
            values: dict[str, Any] = {"train": str(file)}
            if corpus or corpus_path:
                found = uploads.save_file(corpus.name, corpus.getvalue()) if corpus else check_path(corpus_path)
                values["corpus"] = str(found)
                table = read_table(found)
                values["corpus_columns"] = guess_corpus_columns(table.names, table.examples(20)).model_dump()
            _form(folder, file.name, values, key="data.new")


def columns_of(key: str) -> None:
    """The columns of the dataset in view: fixed for the sample data, editable for one's own."""
    data = store.data_config(key)
    if key in store.SAMPLES:
        table = read_table(data.train)
        assert data.columns is not None
        st.dataframe(
            _described(table, data.columns), hide_index=True, key="data.columns", alt="Columns and their roles"
        )
        st.caption("These are the sample data; the columns of a file that you bring can be changed here.")
        return
    folder = store.uploads_folder() / key
    label = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))["label"]
    _form(folder, label, data.model_dump(), key=f"data.edit.{key}")


def _described(table: Table, columns: Columns) -> pd.DataFrame:
    examples = table.examples(EXAMPLES)
    roles = {name: role for role, given in columns.model_dump(exclude_none=True).items() for name in as_names(given)}
    lines = [(name, roles.get(name, "not used"), " · ".join(examples[name])) for name in table.names]
    return pd.DataFrame(lines, columns=["column", "role", "examples"])


def _form(folder: Path, label: str, values: dict[str, Any], *, key: str) -> None:
    """Guessed columns with examples, each changeable, and the button that keeps them."""
    table = read_table(values["train"])
    guess, guessed = _start(table, values.get("columns"))
    st.markdown("**Columns as guessed from the header; change what is wrong**" if guessed else "**Columns**")
    st.dataframe(_described(table, guess), hide_index=True, key=f"{key}.table", alt="Columns, roles and examples")
    chosen: dict[str, Any] = {}
    for place, role in zip(show.columns(len(ROLES), least=150), ROLES, strict=True):
        field = Columns.model_fields[role]
        options = list(table.names) if role in ("query", "document") else [NONE, *table.names]
        given = getattr(guess, role)
        start = as_names(given)[0] if given else options[0]
        with place:
            chosen[role] = st.selectbox(
                str(field.title), options, options.index(start), key=f"{key}.{role}", help=field.description
            )
        if isinstance(given, tuple) and chosen[role] == given[0]:
            chosen[role] = given  # a text joined from several columns stays joined until another is chosen
    numbers = _label_numbers(values, key) if chosen["label"] != NONE else {}
    name = st.text_input("Name", label, key=f"{key}.name", max_chars=60)
    if st.button("Use these columns", key=f"{key}.use", type="primary"):
        columns = Columns.model_validate({role: None if given == NONE else given for role, given in chosen.items()})
        _keep(folder, name or label, {**values, **numbers, "columns": columns.model_dump()})


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
    from pydantic import ValidationError

    from bsc_core.config import explain

    try:
        data = DataConfig.model_validate(values)
    except ValidationError as fault:
        raise ConfigError(explain(fault)) from None
    load_data(data, seed=SPLIT_SEED)  # refused here, with its reason, rather than on the next page
    key = uploads.describe(folder, label, data)
    st.session_state["data.taken"] = st.session_state.get("data.taken", 0) + 1
    frame.go("data", dataset=key)

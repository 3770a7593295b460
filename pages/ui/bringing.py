"""The box that brings a dataset: files from the browser, paths of this machine, data sets of the hub, or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core.config import ExamplesConfig
from bsc_core.data import Table, guess_columns, guess_corpus_columns
from bsc_core.data.columns import guess_sentence_columns
from bsc_core.errors import ColumnError
from pages.ui import making, mapping, show, store, uploads

KINDS = {"pairs": "Pairs of texts", "sentences": "Sentences with a class each"}


def draw() -> None:
    """The foldable box; what it brings is shown in it before it is kept."""
    taken = st.session_state.get("data.taken", 0)  # a box that was used closes and empties
    with st.expander("Bring your own pairs or sentences", icon=":material/upload_file:", key=f"data.upload.{taken}"):
        left, right = show.columns(2, least=240)
        kinds = list(uploads.SUFFIXES)
        files = left.file_uploader(
            "Files: CSV, TSV, JSONL (also .gz) or Parquet", kinds, True, key=f"data.files_given.{taken}"
        )
        lines = left.text_area(
            "or paths on this machine and ids of the hub, one a line",
            key=f"data.paths.{taken}",
            height=68,
            placeholder="/data/pairs.tsv\nhf://owner/name",
            help="A file, a folder of shards or of a saved data set, or a data set of the Hugging Face hub. Several "
            "are trained on together: they need the same columns.",
        )
        corpus = right.file_uploader("Corpus to search (optional)", kinds, key=f"data.corpus_file.{taken}")
        corpus_path = right.text_input("or a path on this machine", key=f"data.corpus_path.{taken}")
        paths = [line for line in lines.splitlines() if line.strip()]
        if not files and not paths:
            st.caption(
                "One row is one pair: a query and a document, and a label, a class or a wrong document if there is "
                "one. Or one sentence and its class: examples are then made of them. Nothing leaves this machine."
            )
            return
        with show.calm_errors(stop=False):
            saved = [uploads.save_file(file.name, file.getvalue()) for file in files]
            given = [*map(str, saved), *(uploads.source(path) for path in paths)]
            values: dict[str, Any] = {"train": given[0], "mix": tuple(given[1:])}
            if corpus or corpus_path:
                found = (
                    str(uploads.save_file(corpus.name, corpus.getvalue())) if corpus else uploads.source(corpus_path)
                )
                table = store.table(found)
                values["corpus"] = found
                values["corpus_columns"] = guess_corpus_columns(table.names, table.examples(20)).model_dump()
            own = len(given) == 1 and bool(saved)
            _kept_as(saved[0].parent if own else uploads.folder_for(*given), values)


def _kept_as(folder: Path, values: dict[str, Any]) -> None:
    table = store.table(values["train"])
    label = values["train"].rstrip("/").rpartition("/")[2]
    label += f" and {len(values['mix'])} more" if values["mix"] else ""
    start = "sentences" if _looks_like_sentences(table) else "pairs"
    kind = st.segmented_control(
        "One row is", list(KINDS), default=start, required=True, format_func=KINDS.get, key=f"data.kind.{folder.name}"
    )
    if kind == "sentences":
        making.form("examples", values, label, key=f"data.new.{folder.name}")
    else:
        mapping.form(folder, label, values, key="data.new")


def _looks_like_sentences(table: Table) -> bool:
    """Whether the header names a text and a class, and no pair of texts."""
    try:
        guess_sentence_columns(table.names, ExamplesConfig())
    except ColumnError:
        return False
    try:
        guess_columns(table.names, table.examples(20))
    except ColumnError:
        return True
    return False

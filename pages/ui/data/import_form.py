"""Import form: uploaded files, local paths and datasets of the Hugging Face Hub."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core import formatting
from bsc_core.config import ExamplesConfig
from bsc_core.data import Table, guess_columns, guess_corpus_columns
from bsc_core.data.io.sources import is_hub_id
from bsc_core.data.schema.columns import guess_sentence_columns
from bsc_core.errors import BscError, ColumnError, InputError
from pages.ui.components import data_cache, display, url
from pages.ui.data import column_mapping, generate, uploads

OPEN = "data.import."
MAX_ERRORS = 10  # shown files that cannot be read
KINDS = {"pairs": "Pairs of texts", "sentences": "Sentences with classes"}


def open_key() -> str:
    """Return the key of the open form, which a link can set; the next import has another one."""
    return f"{OPEN}{st.session_state.get(column_mapping.IMPORTS, 0)}"


def draw() -> bool:
    """Draw the form, which shows the columns of what is imported before saving it; return whether it has a source."""
    imports = st.session_state.get(column_mapping.IMPORTS, 0)
    with st.expander("Import a dataset", icon=":material/upload_file:", **url.flag(open_key())):
        left, right = display.columns(2, min_width=240)
        kinds = list(uploads.SUFFIXES)
        files = left.file_uploader(
            "Files: CSV, TSV, JSONL (also .gz) or Parquet", kinds, True, key=f"data.files_given.{imports}"
        )
        lines = left.text_area(
            "or local paths and Hugging Face Hub datasets, one per line",
            key=f"data.paths.{imports}",
            height=68,
            placeholder="/data/pairs.tsv\nhf://owner/name",
            help="A file, a folder of shards or of a saved dataset, or a dataset of the Hugging Face Hub. Several "
            "become one dataset; they need the same columns.",
        )
        corpus = right.file_uploader("Search corpus (optional)", kinds, key=f"data.corpus_file.{imports}")
        corpus_path = right.text_input("or a local path", key=f"data.corpus_path.{imports}")
        paths = [line for line in lines.splitlines() if line.strip()]
        if not files and not paths:
            if corpus or corpus_path:
                st.info("Add the file or path of the pairs on the left; a search corpus alone is no dataset.")
            st.caption(
                "Each row is a pair (query, document, and optionally a label, a class or a negative) or a sentence "
                "with its class. Your data stay on this machine unless you train on Ray."
            )
            return False
        with display.show_errors(stop=False):
            sources = _sources([*files, *paths])
            values: dict[str, Any] = {"train": sources[0], "mix": tuple(sources[1:])}
            if corpus or corpus_path:
                path = (
                    uploads.save_file(corpus.name, corpus.getvalue()) if corpus else uploads.check_source(corpus_path)
                )
                values["corpus"] = str(path)
                table = data_cache.table(values["corpus"])
                values["corpus_columns"] = guess_corpus_columns(table.names, table.examples(20)).model_dump()
            one_upload = len(sources) == 1 and bool(files)
            label = _without_suffixes(Path(sources[0]).name) if files else dataset_name(sources[0])
            label += f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            _form(Path(sources[0]).parent if one_upload else uploads.folder_for(*sources), values, label)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Discard the import", key="data.discard", on_click=column_mapping.close_import)
        st.caption("The selected dataset is hidden during an import.", width="content")
    return True


def _sources(given: Sequence[Any]) -> list[str]:
    """Return the path or Hub id of each uploaded file, path and Hub id.

    Raises:
        InputError: Some cannot be read; the message has one line for each.
    """
    sources, errors = [], []
    for source in given:
        try:
            is_path = isinstance(source, str)
            path = uploads.check_source(source) if is_path else str(uploads.save_file(source.name, source.getvalue()))
            if len(given) > 1 and (error := data_cache.read_error(path)):
                errors.append(error)
            sources.append(path)
        except BscError as error:
            errors.append(str(error))
    if errors:
        others = len(errors) - MAX_ERRORS
        more = [f"and {formatting.plural(others, 'other file')} with errors"] if others > 0 else []
        raise InputError("\n".join([*errors[:MAX_ERRORS], *more]))
    return sources


def dataset_name(source: str) -> str:
    """Return the name of a file without extensions, that of its folder for a name such as pairs.tsv, or of a Hub id."""
    folder, _, name = source.rstrip("/").rpartition("/")
    name = _without_suffixes(name)
    is_generic = name.lower() in column_mapping.GENERIC_NAMES and not is_hub_id(source)
    return (folder.rpartition("/")[2] if is_generic else "") or name


def _without_suffixes(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return _without_suffixes(stem) if dot and stem and suffix.lower() in uploads.SUFFIXES else name


def _form(folder: Path, values: dict[str, Any], label: str) -> None:
    table = data_cache.table(values["train"])
    start = "sentences" if _looks_like_sentences(table) else "pairs"
    kind = st.segmented_control(
        "Rows", list(KINDS), default=start, required=True, format_func=KINDS.get, key=f"data.kind.{folder.name}"
    )
    if kind == "sentences":
        generate.form("examples", values, label, key=f"data.new.{folder.name}")
    else:
        column_mapping.form(folder, label, values, key=column_mapping.NEW)


def _looks_like_sentences(table: Table) -> bool:
    """Whether the header has a text and a class, and no pair of texts."""
    try:
        guess_sentence_columns(table.names, ExamplesConfig())
    except ColumnError:
        return False
    try:
        guess_columns(table.names, table.examples(20))
    except ColumnError:
        return True
    return False

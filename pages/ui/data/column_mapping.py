"""Columns of a dataset: the guess from the header, example values, and their correction."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.config import ColumnNames, Columns, CorpusColumns, DataConfig, SentenceColumns
from bsc_core.data import Table, guess_columns, guess_corpus_columns
from bsc_core.data.schema.columns import as_names, columns_by_texts, guess_text_columns, is_number, label_by_values
from bsc_core.errors import BscError, ColumnError
from pages.ui.components import data_cache, display, page_layout, url
from pages.ui.components.glossary import help_text
from pages.ui.data import uploads

NONE = "— none —"
BY_VALUES = (
    "**Check the column mapping**: the header does not name both texts of a pair, so the columns with the longest "
    "texts are selected"
)
GUESSED = "**Check the column mapping**, which was guessed from the header"
GIVEN = "**Column mapping**"
NEW = "data.new"  # widget key of the form of a new dataset
IMPORTS = "data.imports"  # session key: part of the keys of the import form
FOLDER = f"{NEW}.folder"  # session key: folder of the file whose columns the form of a new dataset shows
MAX_LABELS = 11  # different values of a column that looks like a label
EXAMPLES, EXAMPLE_ROWS = 3, 200  # distinct values shown, and the rows in which they are looked up
GENERIC_NAMES = ("pairs", "train", "data", "dataset")  # of a file; its folder names the dataset
SCALE = ("label_min", "label_max")
NLI_TEXTS = {"premise", "hypothesis"}  # columns whose whole-number labels are classes
MIN_UPPER_HALF = 0.05  # of the labels; with fewer, the largest ones may be errors
ROLES = ("query", "document", "label", "query_id", "document_id", "split", "negative", "class_label")


def draw(key: str) -> None:
    """Draw the columns of a dataset: fixed for sample data and sentences, editable for uploaded pairs."""
    choice = data_cache.datasets()[key]
    data = choice.data
    if key in data_cache.SAMPLES or data.examples is not None:
        columns = data_cache.source_splits(key).train.report.columns
        columns_table(data_cache.table(data.train), columns, key="data.columns")
        if key in data_cache.SAMPLES:
            st.caption("The columns of the sample data are fixed. For your own files you can change them here.")
        else:
            st.caption("Select the text, class and split columns under Generate rows.")
        return
    form(data_cache.run_store().uploads_folder / key, choice.label, data.model_dump(), key=f"data.edit.{key}")


def columns_table(table: Table, columns: Any, *, key: str) -> None:
    """Draw every column of a file with its role and first distinct values."""
    examples = {name: list(dict.fromkeys(values))[:EXAMPLES] for name, values in table.examples(EXAMPLE_ROWS).items()}
    roles = {name: role for role, names in columns.model_dump(exclude_none=True).items() for name in as_names(names)}
    lines = [(name, roles.get(name, "not used").replace("_", " "), " · ".join(examples[name])) for name in table.names]
    frame = pd.DataFrame(lines, columns=["Column", "Role", "Examples"])
    st.dataframe(frame, hide_index=True, key=key, alt="Columns, their roles and examples")


def _corpus_table(values: Mapping[str, Any], *, key: str) -> None:
    """Draw the columns of the corpus file, if there is one."""
    if not values.get("corpus"):
        return
    table, columns = data_cache.table(values["corpus"]), values.get("corpus_columns")
    guess = guess_corpus_columns(table.names, table.examples(EXAMPLE_ROWS))
    st.markdown("**Columns of the corpus**")
    columns_table(table, CorpusColumns.model_validate(columns) if columns else guess, key=key)


def form(folder: Path, label: str, values: dict[str, Any], *, key: str) -> None:
    """Draw the guessed columns with examples, a select box for each role, and the button that saves them."""
    if key == NEW:
        _forget_other_file(folder)
    table = data_cache.table(values["train"])
    guess, title = _start(table, values.get("columns"))
    listed = st.container()
    selected = select_columns(table, guess, ROLES, required=("query", "document"), key=key)
    with listed:
        st.markdown(title if guess.model_copy(update=selected) == guess else GIVEN)
        columns_table(table, guess.model_copy(update=selected), key=f"{key}.table")
        joined = [f"{role} = {' + '.join(names)}" for role, names in selected.items() if isinstance(names, tuple)]
        if joined:
            columns = display.escaped("; ".join(joined))
            st.caption(f"Joined in this order, with a space between them: {columns}. A box below shows the first one.")
        _corpus_table(values, key=f"{key}.corpus")
    numbers = _label_numbers(table, selected["label"], values, key) if selected["label"] is not None else {}
    for column in unused_labels(table, selected):
        st.warning(
            f"Column {display.escaped(column)} looks like a label and is not used, so every pair counts as positive. "
            "If it says which pairs are positive, select it as the label.",
            icon=":material/warning:",
        )
    name = st.text_input("Name", label, key=f"{key}.name", max_chars=60)
    if key == NEW and name.lower() in GENERIC_NAMES:
        st.caption("Type a name that distinguishes this dataset from others, such as its source or topic.")
    with page_layout.action_bar() if key == NEW else st.container():
        is_clicked = st.button("Import data" if key == NEW else "Save columns", key=f"{key}.use", type="primary")
    if is_clicked:
        columns = Columns.model_validate(selected)
        with _errors_with_titles():
            data = uploads.validate({**values, **numbers, "columns": columns.model_dump()})
            data_cache.load_splits(data)  # an error shows here, not on the next page
        open_dataset(folder, name or label, data)


def _forget_other_file(folder: Path) -> None:
    """Remove the choices about another file, so that those for this one are guessed from its header."""
    if st.session_state.get(FOLDER, folder.name) != folder.name:
        for name in [name for name in st.session_state if str(name).startswith(f"{NEW}.")]:
            del st.session_state[name]
        url.remove([name for name in st.query_params if name.startswith(f"{NEW}.")])
    st.session_state[FOLDER] = folder.name


@contextmanager
def _errors_with_titles() -> Iterator[None]:
    """Raise errors with the names of the scale fields on the page, and announce them: they are shown far below."""
    try:
        yield
    except BscError as error:
        message = str(error)
        for name in SCALE:
            message = message.replace(name, str(DataConfig.model_fields[name].title))
        st.toast("The columns were not saved; the error is shown below them.", icon=":material/error:")
        raise type(error)(message) from None


def select_columns(
    table: Table, guess: Columns | SentenceColumns, roles: Sequence[str], *, required: Sequence[str], key: str
) -> dict[str, str | tuple[str, ...] | None]:
    """Draw a select box for each role and return the selected columns.

    Several joined columns stay joined until another column is selected.
    """
    selected = {}
    for cell, role in zip(display.columns(len(roles), min_width=150), roles, strict=True):
        field, guessed = type(guess).model_fields[role], getattr(guess, role)
        options = list(table.names) if role in required else [NONE, *table.names]
        start = options.index(as_names(guessed)[0]) if guessed else 0
        bound = url.bound(f"{key}.{role}", options)
        name = cell.selectbox(str(field.title), options, start, help=field.description, **bound)
        is_joined = isinstance(guessed, tuple) and name == guessed[0]
        selected[role] = guessed if is_joined else None if name == NONE else name
    return selected


def _start(table: Table, columns: dict[str, Any] | None) -> tuple[Columns, str]:
    """Return the columns that are selected at first, and a title that says where they come from."""
    if columns:
        return Columns.model_validate(columns), GIVEN
    query, document = guess_text_columns(table.names)
    examples = table.examples(EXAMPLE_ROWS)
    others = columns_by_texts(table.names, examples)
    missing = [query, document].count(None)
    if missing > len(others):
        raise too_few_columns(table, "a query and a document")
    query, document = query or others.pop(0), document or others.pop(0)
    title = BY_VALUES if missing else GUESSED
    try:
        guess = guess_columns(table.names, examples, query=query, document=document)
    except ColumnError as error:
        st.text(f"{error}.")
        return Columns(query=query, document=document), title
    used = {name for names in guess.model_dump(exclude_none=True).values() for name in as_names(names)}
    label = label_by_values([name for name in others if name not in used], examples) if title == BY_VALUES else None
    if guess.label is None and guess.class_label is None and label is not None:
        title += f", and {display.escaped(label)}, a column of a few numbers, as label"
        return guess.model_copy(update={"label": label}), title
    return guess, title


def too_few_columns(table: Table, needed: str) -> ColumnError:
    """Return the error of a file that has no column for each text of a row."""
    names = ", ".join(f"'{formatting.shorten(name, 40)}'" for name in table.names)
    return ColumnError(
        f"{table.source}: the file has only {formatting.plural(len(table.names), 'column')} ({names}), but a row needs "
        f"{needed}; add the missing column and its name in the header to the file, and import it again"
    )


def unused_labels(table: Table, selected: Mapping[str, ColumnNames | None]) -> list[str]:
    """Return the columns without a role that have a few different numbers, as labels do; none if there is a label."""
    if selected["label"] is not None or selected["class_label"] is not None:
        return []
    used = {name for names in selected.values() if names is not None for name in as_names(names)}
    values = {name: {*cells} - {""} for name, cells in table.examples(EXAMPLE_ROWS).items() if name not in used}
    return [name for name, cells in values.items() if 1 < len(cells) <= MAX_LABELS and all(map(is_number, cells))]


def _label_numbers(table: Table, column: Any, values: dict[str, Any], key: str) -> dict[str, float]:
    """Draw the fields of the scale of the labels and the threshold; see `common_scale` for what they contain first."""
    fields, keys = DataConfig.model_fields, [f"{key}.{name}" for name in SCALE]
    shown = (values["train"], column)
    saved = [float(values.get(name, fields[name].default)) for name in SCALE]
    is_saved = SCALE[0] in values and column == (values.get("columns") or {}).get("label")
    labels = [] if is_saved else _labels((values["train"], *values.get("mix", ())), column)
    scale = common_scale(labels, table.names)
    if st.session_state.get(f"{key}.scale") != shown or keys[0] not in st.session_state:
        st.session_state[f"{key}.scale"] = shown
        st.session_state.update(zip(keys, saved if scale is None else scale, strict=True))
    cells = display.columns(3, min_width=150)
    numbers = {
        name: cell.number_input(str(fields[name].title), key=f"{key}.{name}", help=fields[name].description)
        for cell, name in zip(cells, SCALE, strict=False)
    }
    numbers["threshold"] = cells[2].number_input(
        str(fields["threshold"].title),
        value=float(values.get("threshold", fields["threshold"].default)),
        key=f"{key}.threshold",
        help=help_text("threshold"),
    )
    if scale is not None and tuple(numbers[name] for name in SCALE) == scale:
        low, high = scale
        limit, cells = low + numbers["threshold"] * (high - low), [label for file in labels for label in file]
        st.warning(
            f"The minimum and maximum label are set to {low:g} and {high:g}, the range of the labels in the file. "
            f"{sum(label > limit for label in cells):,} of {len(cells):,} pairs are positive (label above {limit:g}).",
            icon=":material/warning:",
        )
    elif _are_classes(labels, table.names):
        st.warning(
            f"Column {display.escaped(column)} looks like class numbers, not like a scale. Select it as the class, or "
            "write the names entailment, neutral and contradiction into the file, so that only entailed pairs are "
            "positive.",
            icon=":material/warning:",
        )
    return numbers


def _labels(paths: tuple[str, ...], column: str) -> list[list[float]]:
    """Return the numbers in the column of the labels of each file; none if it has no such column."""

    def read() -> list[list[float]]:
        cells = [data_cache.table(path).columns.get(column, ()) for path in paths]
        return [[float(cell) for cell in one if is_number(cell)] for one in cells]

    return data_cache.shared_value("labels", (paths, column, data_cache.file_stamps(*paths)), read)


def common_scale(labels: Sequence[Sequence[float]], names: Sequence[str]) -> tuple[float, float] | None:
    """Return the smallest and the largest label, rounded outwards, if they are clearly the ends of a scale, else None.

    They are not if a file has no label above 1, or any below 0, which marks rows without a label; if the labels are
    numbers of NLI classes; or if few labels are in the upper half, since the largest ones may be errors.

    Args:
        labels: The labels of each file.
        names: The columns of the first file.
    """
    every = [label for file in labels for label in file]
    is_beyond = all(file and min(file) >= 0 and max(file) > 1 for file in labels)
    if not every or not is_beyond or _are_classes(labels, names):
        return None
    low, high = float(math.floor(min(every))), float(math.ceil(max(every)))
    in_upper_half = sum(label > (low + high) / 2 for label in every)
    return (low, high) if low < high and in_upper_half >= MIN_UPPER_HALF * len(every) else None


def _are_classes(labels: Sequence[Sequence[float]], names: Sequence[str]) -> bool:
    """Whether labels of premises and hypotheses are whole numbers beyond 0 and 1."""
    every = {label for file in labels for label in file}
    is_nli = any(name.strip().lower() in NLI_TEXTS for name in names)
    return is_nli and not every <= {0, 1} and all(label.is_integer() for label in every)


def open_dataset(folder: Path, label: str, data: DataConfig) -> None:
    """Register a dataset and open it; the import form closes and empties."""
    key = uploads.register(folder, label, data)
    close_import()
    page_layout.switch_page("data", dataset=key)


def close_import() -> None:
    """Close and empty the import form at the next run of the page."""
    st.session_state[IMPORTS] = st.session_state.get(IMPORTS, 0) + 1
    st.session_state[FOLDER] = ""

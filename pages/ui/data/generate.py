"""Generation of training rows: settings, rows left after each step, and the resulting dataset."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.config import DataConfig, ExamplesConfig, SentenceColumns
from bsc_core.config.reading import format_value, parse_value
from bsc_core.data import DatasetSplits
from bsc_core.data.schema.classes import NLI
from bsc_core.data.schema.columns import guess_sentence_columns
from bsc_core.errors import ColumnError, ConfigError, InputError
from bsc_core.paths import sample_data_folder
from pages.ui.components import config_form, data_cache, display, page_layout, url
from pages.ui.components.glossary import help_text
from pages.ui.data import column_mapping, funnel, mining, uploads

MAX_NEIGHBORS_INLINE = 3_000_000
MAX_CHARACTERS_INLINE = 2_000_000_000  # of the texts of all neighbors, which are searched for duplicates
LINK = "generate."  # prefix of the parameters with settings that differ from those at the start
WRITTEN = "data.generate.written"  # session key: those that were last written
TRY = "data.try"
PARAMETERS = (f"{LINK}*", TRY, "data.make.*", "data.new.*")
DEFAULTS = {
    "examples": {"min_percentile": 25.0, "cap": 8},  # the 25th percentile leaves positives and negatives in any data
    "nli": {"augment": True},
}


OF_METHOD = {  # method of mining negatives: fields shown first, fields under More
    "ranks": (("first_rank",), ()),
    "hardest": (("margin",), ()),
    "window": (
        ("min_score", "max_score", "absolute_margin", "relative_margin"),
        ("range_min", "range_max", "second_opinion", "second_margin", "sampling", "seed"),
    ),
}


@dataclass(frozen=True)
class Generator:
    """A section of the data settings that generates rows: title, fields, fields under More, and the button."""

    title: str
    fields: tuple[str, ...]
    more: tuple[str, ...]
    button: str


FORMS = {
    "examples": Generator(
        "Pairs or triplets from classified sentences",
        ("kind", "neighbors", "min_percentile", "cap", "target", "encoder"),
        ("neighbors_of", "min_similarity", "seed", "distinct"),
        "Generate rows",
    ),
    "negatives": Generator(
        "Hard negatives for positive pairs",
        ("method", "count", "encoder"),
        ("refresh_epochs", "oversample", "as_triplets"),
        "Mine negatives",
    ),
    "nli": Generator("Additional NLI pairs", ("negatives", "seed", "augment"), (), "Add pairs"),
}


def draw(context: page_layout.Context) -> bool:
    """Draw the generator that fits the dataset or explain which data have one; return whether a form is drawn."""
    choice = data_cache.datasets()[context.dataset_key]
    rows = data_cache.source_splits(context.dataset_key, filtered=True)
    kind = fitting(choice.data, rows)
    if kind is not None:
        values = data_cache.data_config(context.dataset_key).model_dump()
        documents = len(rows.corpus or np.unique(rows.train.document))
        key = f"data.make.{context.dataset_key}"
        form(kind, values, choice.label, key=key, encoder=context.encoder, documents=documents)
        return True
    st.caption(
        "This dataset already has labels or negatives, so no rows are generated. Here you build pairs or triplets "
        "from classified sentences, hard negatives for positive pairs, and additional pairs for NLI data."
    )
    tried = st.toggle("Try the sample sentences", persist_state="session", **url.flag(TRY))
    if tried:
        sample = {"train": str(sample_data_folder() / "sentences.tsv")}
        form("examples", sample, "Sample sentences", key="data.make.sample-sentences", encoder=context.encoder)
    return tried


def fitting(data: DataConfig, rows: DatasetSplits) -> str | None:
    """Return the generator that fits the rows as read, or None."""
    train = rows.train
    if data.examples is not None:
        return "examples"
    if train.classes is not None and train.class_names == NLI:
        return "nli"
    return "negatives" if not train.has_negatives and train.negative is None else None


def form(
    kind: str, values: dict[str, Any], label: str, *, key: str, encoder: str = "bundled", documents: int | None = None
) -> None:
    """Draw the settings of a generator, its button and the result.

    Args:
        kind: A key of FORMS.
        values: Settings for DataConfig.
        label: Name of the source dataset.
        key: Prefix of the session keys.
        encoder: Default encoder of the generator.
        documents: Number of documents, for the default rank of negatives.
    """
    generator, section = FORMS[kind], f"data.{kind}"
    st.markdown(f"**{generator.title}**", help=help_text(section))
    columns = _columns(values, key) if kind == "examples" else {}
    of_methods = [field for parts in OF_METHOD.values() for part in parts for field in part]
    fields = {section: (*generator.fields, *generator.more, *(of_methods if kind == "negatives" else ()))}
    linked = _linked(section, fields[section])
    if linked is not None or not st.session_state.get(f"{key}.filled"):
        has_encoder = "encoder" in generator.fields and encoder in config_form.ENCODERS
        default = DEFAULTS.get(kind, {}) | ({"encoder": encoder} if has_encoder else {})
        default |= {"first_rank": usual_rank(documents)} if kind == "negatives" and documents else {}
        config_form.fill(key, fields, {section: values.get(kind) or default})
        st.session_state[f"{key}.filled"] = config_form.read(key, fields)[section]
        config_form.fill_some(key, section, linked or {})
    config_form.draw(key, section, generator.fields, columns=3)
    shown, more = (), generator.more
    if kind == "negatives":
        shown, of_method = OF_METHOD[st.session_state[config_form.key(key, section, "method")]]
        more = (*of_method, *generator.more)
    config_form.draw(key, section, shown)
    if more and st.toggle("More", persist_state="session", **url.flag(f"{key}.more")):
        config_form.draw(key, section, more, columns=3)
    settings = config_form.read(key, fields)[section]
    _write_link(settings, st.session_state[f"{key}.filled"])
    settings |= columns
    rest = dict.fromkeys(FORMS) | ({"columns": None} if kind == "examples" else {})
    with display.show_errors(stop=False), config_form.titles_in_errors(section, fields[section]):
        config = uploads.validate({**values, **rest, kind: settings})
        mining.draw(config, key=key)
        _result(kind, config, label, key=key)


def usual_rank(documents: int) -> int:
    """Return first_rank for a number of documents: 1% of them, at least 5 and at most 100, as in the BSC paper."""
    return min(100, max(5, documents // 100))


def _linked(section: str, names: Iterable[str]) -> dict[str, Any] | None:
    """Return the settings of a link that was opened, or reached by Back or Forward; None if there is none."""
    given = {name: text for name, text in st.query_params.items() if name.startswith(LINK)}
    if given == st.session_state.get(WRITTEN) or (not given and not url.is_history_navigation()):
        return None
    linked = {}
    for parameter, text in given.items():
        name = parameter.removeprefix(LINK)
        try:
            if name not in names:
                raise ConfigError(f"{url.shorten(name)} is not a setting of this form")
            linked[name] = config_form.checked_value(section, name, parse_value(text))
        except ConfigError as error:
            url.report(parameter, f"{error}. It is not used.")
    return linked


def _write_link(settings: dict[str, Any], start: dict[str, Any]) -> None:
    """Write the settings that differ from those at the start into the URL."""
    changed = {f"{LINK}{name}": format_value(value) for name, value in settings.items() if value != start[name]}
    display.write_url(changed, [name for name in st.query_params if name.startswith(LINK)])
    st.session_state[WRITTEN] = changed


def _columns(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Draw the select boxes of the sentence, class and split columns, and return the selection."""
    table = data_cache.table(values["train"])
    columns = ExamplesConfig.model_validate(values.get("examples") or {})
    try:
        guess = guess_sentence_columns(table.names, columns)
    except ColumnError as error:
        if len(table.names) < 2:
            raise column_mapping.too_few_columns(table, "a sentence and its class") from None
        st.text(f"{str(error).partition('; the columns are ')[0]}; select the columns below.")
        guess = SentenceColumns(text=table.names[0], class_label=table.names[1])
    table_cell, required = st.container(), ("text", "class_label")
    selected = column_mapping.select_columns(table, guess, (*required, "split"), required=required, key=key)
    with table_cell:
        column_mapping.columns_table(table, SentenceColumns.model_validate(selected), key=f"{key}.table")
    return selected | {"split": selected["split"] or ""}  # empty: no split column, instead of a guess


def _result(kind: str, config: DataConfig, label: str, *, key: str) -> None:
    """Draw the button and, after a click, the steps, their examples and the button that saves the rows."""
    generated = st.session_state.get(f"{key}.generated")
    emphasis = "secondary" if generated == config else "primary"
    if st.button(FORMS[kind].button, key=f"{key}.make", type=emphasis, icon=":material/auto_awesome:"):
        generated = st.session_state[f"{key}.generated"] = config
    if generated is None:
        return
    if generated != config:
        st.caption("The settings have changed; generate the rows again.")
        return
    _check_neighbors(config)
    data = data_cache.load_splits(config)
    funnel.draw(data, name=key)
    parts = ", ".join(f"{formatting.count(len(part))} {name}" for name, part in data.splits.items())
    st.markdown(f"**Generated rows:** {parts}, over {formatting.count(len(data.texts))} texts.")
    name = st.text_input("Name", f"{label} · {_suffix(kind, config)}", key=f"{key}.name", max_chars=80)
    if st.button("Use this dataset", key=f"{key}.use", type="primary", icon=":material/check:"):
        folder = uploads.folder_for(config.train, config.model_dump_json())
        column_mapping.open_dataset(folder, name or label, config)


def _check_neighbors(config: DataConfig) -> None:
    """Raise InputError if examples would be generated from more neighbors than a page computes."""
    examples = config.examples
    if examples is None:
        return
    table = data_cache.table(config.train)
    classes = table.columns.get(guess_sentence_columns(table.names, examples).class_label, ())
    sides = {"all": 1, "own_and_others": 2}.get(examples.neighbors_of, len(set(classes)))
    number = min(examples.neighbors, len(table)) * len(table) * sides
    characters = sum(map(len, table.columns.get(guess_sentence_columns(table.names, examples).text, ())))
    if examples.distinct and characters * min(examples.neighbors, len(table)) * sides > MAX_CHARACTERS_INLINE:
        raise InputError(
            "the texts of the neighbors are too long for a page to exclude duplicates; lower the number of neighbors, "
            "keep duplicates, or train with `bsc train` from a config file"
        )
    if number > MAX_NEIGHBORS_INLINE:
        raise InputError(
            f"{number:,} neighbors of {len(table):,} sentences are more than the {MAX_NEIGHBORS_INLINE:,} that a page "
            "computes; lower the number of neighbors, or train with `bsc train` from a config file"
        )


def _suffix(kind: str, config: DataConfig) -> str:
    if config.examples is not None:
        return {"triplets": "triplets", "pairs": "pairs", "same_class": "same-class pairs"}[config.examples.kind]
    return {"negatives": "with negatives", "nli": "with added pairs"}[kind]

"""Making training rows on the Data page: the settings, what is left at each step, and the dataset that comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from bsc_core.config import DataConfig, ExamplesConfig, SentenceColumns
from bsc_core.data import ExperimentData
from bsc_core.data.classes import NLI
from bsc_core.data.columns import guess_sentence_columns
from bsc_core.data.places import sample_data_folder
from bsc_core.errors import ColumnError
from bsc_core.figures import theme
from pages.ui import forms, frame, funnel_view, mapping, show, store, uploads
from pages.ui.words import help_text

GENERATORS = ("examples", "negatives", "nli")
START = {
    "examples": {"min_percentile": 25.0, "cap": 8},  # a quarter keeps neighbours of both kinds, however apart
    "nli": {"augment": True},
}


@dataclass(frozen=True)
class Generator:
    """A section of the data settings that makes rows: its title, and what is asked for at once and under More."""

    title: str
    shown: tuple[str, ...]
    more: tuple[str, ...]
    button: str


FORMS = {
    "examples": Generator(
        "Examples from classified sentences",
        ("kind", "neighbours", "min_percentile", "cap", "target", "encoder"),
        ("neighbours_of", "min_similarity", "seed", "distinct"),
        "Make examples",
    ),
    "negatives": Generator(
        "Negatives for pairs that are all positive",
        ("method", "count", "encoder"),
        ("first_rank", "margin", "oversample", "as_triplets"),
        "Find negatives",
    ),
    "nli": Generator("Pairs added to NLI rows", ("negatives", "seed", "augment"), (), "Add pairs"),
}


def draw(context: frame.Context) -> None:
    """What can be made of the dataset in view, else what could be made of other data."""
    choice = store.datasets()[context.dataset_key]
    kind = fitting(choice.data, store.source_rows(context.dataset_key, mended=True))
    if kind is not None:
        values = store.data_config(context.dataset_key).model_dump()
        form(kind, values, choice.label, key=f"data.make.{context.dataset_key}", encoder=context.encoder)
        return
    st.caption(
        "These pairs have labels or wrong documents of their own, so nothing needs to be made. Sentences with classes "
        "become triplets or pairs here; pairs that are all positive get negatives; NLI rows get further pairs."
    )
    if st.toggle("Try it on the sample sentences", key="data.try", persist_state="session"):
        sample = {"train": str(sample_data_folder() / "sentences.tsv")}
        form("examples", sample, "Sample sentences", key="data.make.sample-sentences", encoder=context.encoder)


def fitting(data: DataConfig, rows: ExperimentData) -> str | None:
    """The generator that has something to do for rows as they were read, or None."""
    train = rows.train
    if data.examples is not None:
        return "examples"
    if train.classes is not None and train.class_names == NLI:
        return "nli"
    return "negatives" if not train.has_negatives and train.negative is None else None


def form(kind: str, values: dict[str, Any], label: str, *, key: str, encoder: str = "bundled") -> None:
    """The settings of one generator, the button that makes the rows, and what came of it.

    values: settings of the data, as `DataConfig` takes them; label: the name of the dataset that it starts from.
    """
    made = FORMS[kind]
    st.markdown(f"**{made.title}**", help=help_text(f"data.{kind}"))
    columns = _columns(values, key) if kind == "examples" else {}
    section = f"data.{kind}"
    fields = {section: (*made.shown, *made.more)}
    if not st.session_state.get(f"{key}.filled"):
        default = START.get(kind, {}) | ({"encoder": encoder} if encoder in frame.ENCODERS and kind != "nli" else {})
        forms.fill(key, fields, {section: values.get(kind) or default})
        st.session_state[f"{key}.filled"] = True
    forms.draw(key, section, made.shown, columns=3)
    if made.more and st.toggle("More", key=f"{key}.more", persist_state="session"):
        forms.draw(key, section, made.more, columns=3)
    settings = {**forms.read(key, fields)[section], **columns}
    rest = dict.fromkeys(GENERATORS) | ({"columns": None} if kind == "examples" else {})
    with show.calm_errors(stop=False):
        _outcome(kind, uploads.checked({**values, **rest, kind: settings}), label, key=key)


def _columns(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Which columns hold the sentence, its class and its split: guessed, and each changeable."""
    table = store.table(values["train"])
    given = ExamplesConfig.model_validate(values.get("examples") or {})
    try:
        guess = guess_sentence_columns(table.names, given)
    except ColumnError as fault:
        if len(table.names) < 2:
            raise
        st.text(f"{fault}.")
        guess = SentenceColumns(text=table.names[0], class_label=table.names[1])
    place_of_table = st.container()
    roles = ("text", "class_label", "split")
    chosen = {
        role: _in(place, partial(mapping.picker, table, SentenceColumns, role, getattr(guess, role)), f"{key}.{role}")
        for place, role in zip(show.columns(3, least=150), roles, strict=True)
    }
    with place_of_table:
        mapping.described(table, SentenceColumns.model_validate(chosen), key=f"{key}.table")
    return chosen | {"split": chosen["split"] or ""}  # chosen here, so not to be guessed


def _in(place: Any, pick: Any, key: str) -> Any:
    with place:
        return pick(key=key, needed=not key.endswith(".split"))


def _outcome(kind: str, config: DataConfig, label: str, *, key: str) -> None:
    """The button, and after it the steps, their examples and the way to keep the rows as a dataset."""
    clicked = st.button(FORMS[kind].button, key=f"{key}.make", type="primary", icon=":material/auto_awesome:")
    if clicked:
        st.session_state[f"{key}.made"] = config
    kept = st.session_state.get(f"{key}.made")
    if kept is None:
        return
    if kept != config:
        st.caption("The settings have changed; make the rows again to see what is left.")
        return
    data = store.prepared(config)
    funnel_view.draw(data, name=key)
    parts = ", ".join(f"{theme.count(len(part))} {name}" for name, part in data.parts.items())
    st.markdown(f"**What a run would read:** {parts} rows over {theme.count(len(data.texts))} texts.")
    name = st.text_input("Name", f"{label} · {_made_name(kind, config)}", key=f"{key}.name", max_chars=80)
    if st.button("Use this dataset", key=f"{key}.use", type="primary", icon=":material/check:"):
        folder = uploads.folder_for(config.train, config.model_dump_json())
        mapping.use(folder, name or label, config)


def _made_name(kind: str, config: DataConfig) -> str:
    if config.examples is not None:
        return {"triplets": "triplets", "pairs": "pairs", "same_class": "same-class pairs"}[config.examples.kind]
    return {"negatives": "with negatives", "nli": "with added pairs"}[kind]

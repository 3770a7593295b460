"""The New run form: five sections, each closed to one sentence of its settings, and the configs they mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st
from pydantic import TypeAdapter

from bsc_core.config import (
    BatchingConfig,
    EncoderConfig,
    LossConfig,
    RunConfig,
    SweepConfig,
    TrainingConfig,
    make_config,
)
from bsc_core.config.reading import put
from pages.ui import chains, forms, frame, loss_form, loss_words, plan_words, starting, store, sweeping
from pages.ui.train_fields import FIELDS, GROUPS, LORA, MORE_DATA, ORDER, PAGE, SHOWN, batching_fields

drawn = sweeping.field_widget


def form(context: frame.Context, known: plan_words.Facts) -> None:
    """The five sections, each closed to one sentence of its settings."""
    draw: dict[str, Callable[[], None]] = {
        "data": _draw_data,
        "encoder": _draw_encoder,
        "batching": _draw_batching,
        "loss": partial(_draw_loss, known),
        "training": _draw_training,
    }
    for section, sentence in sentences(context, known).items():
        with st.expander(sentence, key=f"{PAGE}.open.{section}"):
            draw[section]()


def _more(section: str) -> bool:
    return st.toggle("More", key=f"{PAGE}.more.{section}", persist_state="session")


def _draw_data() -> None:
    forms.draw(PAGE, "data", SHOWN["data"], drawn=drawn)
    if _more("data"):
        forms.draw(PAGE, "data", MORE_DATA, drawn=drawn)


def _draw_encoder() -> None:
    sweeping.draw_beside(PAGE, "encoder", "name", chains.picker)
    forms.draw(PAGE, "encoder", SHOWN["encoder"], drawn=drawn)
    if not _more("encoder"):
        return
    info = forms.info_of("encoder", "lora")
    st.toggle(str(info.title), key=f"{PAGE}.{LORA}", help=forms.help_of("encoder", "lora"), persist_state="session")
    if st.session_state[f"{PAGE}.{LORA}"]:
        forms.draw(PAGE, LORA, FIELDS[LORA], drawn=drawn)


def _draw_batching() -> None:
    shown, more = batching_fields(st.session_state[forms.key(PAGE, "batching", "strategy")])
    forms.draw(PAGE, "batching", shown, drawn=drawn)
    if _more("batching"):
        forms.draw(PAGE, "batching", more, drawn=drawn)


def _draw_loss(known: plan_words.Facts) -> None:
    starting.lab_button()
    loss_form.draw(PAGE, known.shape, drawn)


def _draw_training() -> None:
    forms.draw(PAGE, "training", SHOWN["training"], drawn=drawn)
    if not _more("training"):
        return
    for tab, (section, fields) in zip(st.tabs(list(GROUPS)), GROUPS.values(), strict=True):
        with tab:
            forms.draw(PAGE, section, fields, drawn=drawn)


def form_values() -> dict[str, forms.Values]:
    """The sections as the form stands; of a list its first value, so that they are those of the sweep's first run."""
    read = forms.read(PAGE, FIELDS)
    lora = read.pop(LORA)
    read["encoder"]["lora"] = lora if st.session_state[f"{PAGE}.{LORA}"] else None
    values: dict[str, Any] = {**read, "loss": loss_form.read(PAGE)}
    for section, field in sweeping.listed(PAGE):
        found = sweeping.values_of(PAGE, section, field)
        if found and active(section, field):
            first = "none" if found[0] is None else found[0]
            put(values, sweeping.path_of(section, field), first, sweeping.SOURCE)
    return {section: values[section] for section in (*ORDER, "evaluation")}


def active(section: str, field: str) -> bool:
    """Whether a field has a say as the form stands: those of another loss or of another strategy have none."""
    if section.startswith("loss."):
        chosen = st.session_state[forms.key(PAGE, "loss", "name")]
        if section == sweeping.PART:
            preset = st.session_state[forms.key(PAGE, "loss.combined", "preset")]
            return bool(chosen == "combined" and preset != "custom")
        return bool(section == f"loss.{chosen}")
    if section == LORA:
        return bool(st.session_state[f"{PAGE}.{LORA}"])
    if section == "batching" and ("batching", "strategy") not in sweeping.listed(PAGE):
        shown, more = batching_fields(st.session_state[forms.key(PAGE, "batching", "strategy")])
        return field in (*shown, *more)
    return True


def config_from_form(context: frame.Context) -> RunConfig:
    """The config as the form stands, of a sweep that of its first run. Raises ConfigError with the core's sentence."""
    values = form_values()
    data = store.data_config(context.dataset_key).model_dump() | values.pop("data")
    name = st.session_state.get(f"{PAGE}.name", "")
    return make_config({"name": name, "data": data, **values}, source=sweeping.SOURCE)


def sweep_from_form() -> SweepConfig | None:
    """The sweep as the form stands. Raises ConfigError with the core's sentence."""
    return sweeping.chosen(PAGE, active)


def sentences(context: frame.Context, known: plan_words.Facts | None) -> dict[str, str]:
    """One sentence for each section as the form stands; a section the core refuses says so."""
    words: dict[str, Callable[[forms.Values], str]] = {
        "data": lambda _: plan_words.data_sentence(store.datasets()[context.dataset_key].label, known),
        "encoder": lambda part: plan_words.encoder_sentence(EncoderConfig(**part)),
        "batching": lambda part: plan_words.batching_sentence(BatchingConfig(**part)),
        "loss": lambda part: loss_words.loss_sentence(TypeAdapter(LossConfig).validate_python(part)),
        "training": lambda part: plan_words.training_sentence(TrainingConfig(**part)),
    }
    values, said = form_values(), {}
    for section in ORDER:
        try:
            said[section] = f"{words[section](values[section])}{_lists_words(section)}"
        except ValueError:
            said[section] = f"{section.capitalize()}: something here cannot work"
    return said


def _lists_words(section: str) -> str:
    """`· sweep over temperature`, where fields of a section are lists."""
    lists = [(place, field) for place, field in sweeping.listed(PAGE) if place.partition(".")[0] == section]
    fields = [field for place, field in lists if active(place, field)]
    return f" · sweep over {', '.join(field.replace('_', ' ') for field in fields)}" if fields else ""

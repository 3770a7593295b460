"""Sweeps in a form: chosen fields have a list of values each, and every combination of the lists is one run.

The session stores which fields are lists as (section, field); a list is stored under the field's key with `.list`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

import streamlit as st

from bsc_core import formatting
from bsc_core.config import SweepConfig, count_runs, make_sweep, setting_name
from pages.ui.components import config_form

Field = tuple[str, str]
PAGE = "train"  # prefix of the widget keys of the New run page
COMBINED_BSC = "loss.combined.bsc"  # section of the batch softmax part of a combined loss
SOURCE = "These settings"  # in messages about them
IS_ON, LISTED, CHOSEN, SAMPLED = (f"{PAGE}.sweep.{name}" for name in ("on", "listed", "chosen", "sampled"))
ENDED_BY_PRESET = f"{PAGE}.sweep.ended_by_preset"  # session key
SECTION_NAMES = {"data": "Data", "encoder": "Encoder", "encoder.lora": "LoRA", "batching": "Batches"}
SECTION_NAMES |= {"training": "Training", "evaluation": "Evaluation", COMBINED_BSC: "Loss, batch softmax part"}
MIN_CELLS_TO_SAMPLE = 8  # combinations from which on a random sample is offered


def config_key(section: str, field: str) -> str:
    """Return the config key of a form field: section `loss.bsc` of the form is `loss` in the config."""
    if section == COMBINED_BSC:
        return f"loss.bsc.{field}"
    return f"{'loss' if section.startswith('loss.') else section}.{field}"


def form_field(key: str, loss: str) -> Field:
    """Return the form field of a config key, in a config with this loss."""
    section, _, field = key.rpartition(".")
    return {"loss": f"loss.{loss}", "loss.bsc": COMBINED_BSC}.get(section, section), field


def fill(over: dict[str, tuple[Any, ...]], loss: str, sampled: int | None = None) -> None:
    """Turn exactly these config keys into lists, of whose combinations so many are sampled, or all."""
    fields = {form_field(key, loss): list(values) for key, values in over.items()}
    st.session_state.update({LISTED: list(fields), IS_ON: bool(fields), SAMPLED: sampled})
    for (section, field), values in fields.items():
        st.session_state[_list_key(section, field)] = values


def draw(fields: Sequence[Field]) -> None:
    """Draw the toggle of sweeps and, with the toggle on, the choice among these fields and the list of each."""
    about = "Trains one run for every combination of several values of settings; the runs are reported together."
    st.toggle("Sweep", key=IS_ON, persist_state="session", help=about)
    if not is_on():
        if st.session_state.get(ENDED_BY_PRESET):
            st.caption("The sweep is off since you selected a preset, which has one value for each setting.")
        return
    st.session_state.pop(ENDED_BY_PRESET, None)
    st.session_state[CHOSEN] = list_fields()
    with st.container(border=True):
        st.multiselect(
            "Settings with several values",
            list(dict.fromkeys([*fields, *list_fields()])),
            format_func=lambda field: f"{_title(field)}{'' if field in fields else f' (not used, {field[0]})'}",
            key=CHOSEN,
            placeholder="choose settings, such as the temperature",
            filter_mode="contains",
            select_all=False,
            on_change=_update_lists,
        )
        for section, field in list_fields():
            if (section, field) in fields:
                _list_widget(section, field)


def _title(field: Field) -> str:
    """Return `Loss: Temperature`."""
    section, name = field
    return f"{SECTION_NAMES.get(section, 'Loss')}: {config_form.info_of(section, name).title or name}"


def can_be_list(section: str, field: str) -> bool:
    """Whether a field has a single value, of which a sweep can try several."""
    return get_origin(config_form.kind_of(config_form.info_of(section, field).annotation)[0]) is not tuple


def open_key(section: str) -> str:
    """Return the session key of whether a section is open."""
    return f"{PAGE}.open.{section}"


def is_on() -> bool:
    """Whether the toggle is on."""
    return bool(st.session_state.get(IS_ON))


def list_fields() -> list[Field]:
    """Return the fields that are lists, in the order they became lists; none while the toggle is off."""
    return list(st.session_state.get(LISTED, ())) if is_on() else []


def draw_fields(section: str, fields: Sequence[str]) -> None:
    """Draw the widgets of fields; those with several values say so."""
    config_form.draw(PAGE, section, fields, draw_field=lambda _, *field: draw_value(*field, config_form.field_widget))


def draw_value(section: str, field: str, draw_field: config_form.DrawField) -> None:
    """Draw a field with `draw_field`, or that it has several values."""
    if (section, field) in list_fields():
        st.caption(f"**{config_form.info_of(section, field).title or field}**: values above, in the sweep")
    else:
        draw_field(PAGE, section, field)


def _update_lists() -> None:
    """Start the list of a chosen field with its value; a field that is no longer chosen has the value of before."""
    chosen, listed = st.session_state[CHOSEN], list_fields()
    for section, field in chosen:
        if (section, field) not in listed:
            value = st.session_state.get(config_form.key(PAGE, section, field))
            st.session_state[_list_key(section, field)] = [False, True] if isinstance(value, bool) else [value]
    st.session_state[LISTED] = chosen


def _list_widget(section: str, field: str) -> None:
    info = config_form.info_of(section, field)
    kind, _ = config_form.kind_of(info.annotation)
    title, about = f"Values of {_title((section, field))}", config_form.help_of(section, field)
    shared: dict[str, Any] = {"key": _list_key(section, field), "help": about, "persist_state": "session"}
    if get_origin(kind) is Literal or kind is bool:
        options = [False, True] if kind is bool else get_args(kind)
        st.multiselect(title, options, format_func=config_form.format_setting, **shared)
    else:
        config_form.typed_list(title, **shared)


def list_values(section: str, field: str) -> list[Any]:
    """Return the values of a list; typed entries are parsed."""
    kind, optional = config_form.kind_of(config_form.info_of(section, field).annotation)
    values: list[Any] = []
    for entry in st.session_state.get(_list_key(section, field)) or ():
        if isinstance(entry, str) and kind in (int, float):  # numbers separated by commas or spaces
            values += [_parse_number(word, kind, optional) for word in re.split(r"[,;\s]+", entry.strip()) if word]
        else:
            values.append(entry)
    return values


def _parse_number(word: str, kind: Any, optional: bool) -> Any:
    """Return the number, or the text itself when it is not a number."""
    if optional and word.lower() == "none":
        return None
    try:
        return kind(word)
    except ValueError:
        return word


def read(is_active: Callable[[str, str], bool]) -> SweepConfig | None:
    """Build the sweep of the form from its active fields; None if none of them is a list.

    Raises:
        ConfigError: a list is empty or repeats a value.
    """
    over = {
        config_key(section, field): ["none" if value is None else value for value in list_values(section, field)]
        for section, field in list_fields()
        if is_active(section, field)
    }
    if not over:
        return None
    sweep, sampled = make_sweep({"over": over}, source=SOURCE), st.session_state.get(SAMPLED)
    if sampled and sampled < sweep.cells and sweep.cells >= MIN_CELLS_TO_SAMPLE:
        return make_sweep({"over": over, "method": "random", "runs": int(sampled)}, source=SOURCE)
    return sweep


def draw_summary(sweep: SweepConfig | None, seeds: Sequence[int]) -> None:
    """Draw what is combined, and how many of the combinations are sampled."""
    if sweep is None and not seeds:
        if is_on():
            st.caption("One run, until a setting of the sweep has several values.")
        return
    over = sweep.over.items() if sweep else ()
    parts = [f"{formatting.plural(len(values), 'value')} of {setting_name(key)}" for key, values in over]
    parts += [formatting.plural(len(seeds), "seed")] if seeds else []
    sampled = f", {sweep.runs} sampled at random" if sweep and sweep.runs else ""
    st.caption(f"{' × '.join(parts)}{sampled}: **{formatting.plural(count_runs(sweep, seeds), 'run')}**.")
    if sweep is not None and sweep.cells >= MIN_CELLS_TO_SAMPLE:
        st.number_input(
            f"Random sample of the {sweep.cells:,} combinations",
            min_value=1,
            value=None,
            step=1,
            placeholder="all of them",
            key=SAMPLED,
            persist_state="session",
            help="A few random combinations often reach as good a setting as the full grid "
            "(Bergstra and Bengio, 2012).",
        )


def _list_key(section: str, field: str) -> str:
    return f"{config_form.key(PAGE, section, field)}.list"

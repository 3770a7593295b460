"""Sweeps in a form: any field can hold a list of values, and every combination of the lists is one run.

The session stores which fields are lists as (section, field); a list is stored under the field's key with `.list`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

import streamlit as st

from bsc_core import formatting
from bsc_core.config import SweepConfig, count_runs, make_sweep
from pages.ui.components import config_form

Field = tuple[str, str]
PAGE = "train"  # prefix of the widget keys of the New run page
COMBINED_BSC = "loss.combined.bsc"  # section of the batch softmax part of a combined loss
SOURCE = "this plan"
IS_ON, LISTED, SAMPLED = (f"{PAGE}.sweep.{name}" for name in ("on", "listed", "sampled"))
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


def draw_switch() -> None:
    """Draw the toggle that offers lists; switched on, it opens the section of the loss, where lists are most common."""
    about = "Lets any field hold a list of values. Every combination is one run; the runs are reported together."
    st.toggle("Sweep", key=IS_ON, persist_state="session", help=about, on_change=_open_loss)


def _open_loss() -> None:
    if is_on():
        st.session_state[open_key("loss")] = True


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
    """Draw the widgets of fields and, with the toggle on, the buttons between one value and a list."""
    config_form.draw(PAGE, section, fields, draw_field=_draw_field)


def _draw_field(page: str, section: str, field: str) -> None:
    if get_origin(config_form.kind_of(config_form.info_of(section, field).annotation)[0]) is tuple:
        config_form.field_widget(page, section, field)
    else:
        draw_with_list_button(section, field, config_form.field_widget)


def draw_with_list_button(section: str, field: str, draw_value: config_form.DrawField) -> None:
    """Draw the list of a field, or its value with `draw_value`, and the button that switches between them."""
    if not is_on():
        draw_value(PAGE, section, field)
        return
    is_list = (section, field) in list_fields()
    info = config_form.info_of(section, field)
    alignment: Literal["center", "bottom"] = "center" if info.annotation is bool and not is_list else "bottom"
    with st.container(horizontal=True, vertical_alignment=alignment, gap="xsmall"):
        with st.container():
            if is_list:
                _list_widget(section, field)
            else:
                draw_value(PAGE, section, field)
        st.button(
            "One value" if is_list else "Add values",
            key=f"{config_form.key(PAGE, section, field)}.turn",
            type="tertiary",
            help=f"{info.title or field}: {'use one value' if is_list else 'try several values'}",
            on_click=_toggle_list,
            args=(section, field),
        )


def _toggle_list(section: str, field: str) -> None:
    """Turn a field into a list with its value, or a list into its first value."""
    fields, key = list_fields(), config_form.key(PAGE, section, field)
    if (section, field) in fields:
        fields.remove((section, field))
        values = list_values(section, field)
        if values:
            st.session_state[key] = values[0]
    else:
        fields.append((section, field))
        value = st.session_state.get(key)
        st.session_state[_list_key(section, field)] = [False, True] if isinstance(value, bool) else [value]
    st.session_state[LISTED] = fields


def _list_widget(section: str, field: str) -> None:
    info = config_form.info_of(section, field)
    kind, _ = config_form.kind_of(info.annotation)
    title, about = f"{info.title or field}: values", config_form.help_of(section, field)
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
            st.caption("One run. Press **Add values** next to a field to try several values.")
        return
    over = sweep.over.items() if sweep else ()
    parts = [f"{formatting.plural(len(values), 'value')} of {formatting.setting_name(key)}" for key, values in over]
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

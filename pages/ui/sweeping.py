"""Sweeps in a form: any single value can become a list, and every combination of the lists is a run of its own.

Which fields are lists stands in the session as (section, field); a list lives under the field's key with `.list`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

import streamlit as st

from bsc_core.config import SweepConfig, count_runs, make_sweep
from bsc_core.figures import theme
from pages.ui import forms, reasons

Field = tuple[str, str]
Active = Callable[[str, str], bool]
PART = "loss.combined.bsc"
SOURCE = "this plan"
WORTH_DRAWING = 8  # combinations from which on some can be drawn at random


def path_of(section: str, field: str) -> str:
    """The key of a form's field in a config: `loss.bsc` of the form is `loss` there, the part of a sum `loss.bsc`."""
    if section == PART:
        return f"loss.bsc.{field}"
    return f"{'loss' if section.startswith('loss.') else section}.{field}"


def field_of(path: str, loss: str) -> Field:
    """The form's field for a key of a config whose loss has this name."""
    section, _, field = path.rpartition(".")
    return {"loss": f"loss.{loss}", "loss.bsc": PART}.get(section, section), field


def fill(page: str, over: dict[str, tuple[Any, ...]], loss: str) -> None:
    """Turn these keys into lists, and no others."""
    fields = {field_of(path, loss): list(values) for path, values in over.items()}
    st.session_state[_state(page, "listed")] = list(fields)
    st.session_state[_state(page, "on")] = bool(fields)
    st.session_state[_state(page, "drawn")] = None
    for (section, field), values in fields.items():
        st.session_state[_list_key(page, section, field)] = values


def switch(page: str) -> None:
    """Whether fields can be turned into lists."""
    st.toggle(
        "Sweep",
        key=_state(page, "on"),
        persist_state="session",
        help="Turns any field into a list of values. Every combination is a run of its own, reported together.",
    )


def is_on(page: str) -> bool:
    """Whether the switch is on."""
    return bool(st.session_state.get(_state(page, "on")))


def listed(page: str) -> list[Field]:
    """The fields that are lists, in the order in which they became it; none while the switch is off."""
    return list(st.session_state.get(_state(page, "listed"), ())) if is_on(page) else []


def field_widget(page: str, section: str, field: str) -> None:
    """One field's widget; with the switch on also the button that turns it into a list and back."""
    if not is_on(page) or get_origin(forms.kind_of(forms.info_of(section, field).annotation)[0]) is tuple:
        forms.field_widget(page, section, field)
        return
    draw_beside(page, section, field, forms.field_widget)


def draw_beside(page: str, section: str, field: str, single: forms.Drawn) -> None:
    """The list of a field, or what draws its one value, and the button that changes between them."""
    if not is_on(page):
        single(page, section, field)
        return
    is_list = (section, field) in listed(page)
    info = forms.info_of(section, field)
    title, switch_like = info.title or field, info.annotation is bool and not is_list
    alignment: Literal["center", "bottom"] = "center" if switch_like else "bottom"
    with st.container(horizontal=True, vertical_alignment=alignment, gap="xsmall"):
        with st.container():
            (_list_widget if is_list else single)(page, section, field)
        st.button(
            "One" if is_list else "List",
            key=f"{forms.key(page, section, field)}.turn",
            type="tertiary",
            help=f"{title}: {'back to one value' if is_list else 'try several values'}",
            on_click=_turn,
            args=(page, section, field),
        )


def _turn(page: str, section: str, field: str) -> None:
    """Make a field a list that holds its value, or one value again, the first of its list."""
    fields, list_key = listed(page), _list_key(page, section, field)
    if (section, field) in fields:
        fields.remove((section, field))
        values = values_of(page, section, field)
        if values:
            st.session_state[forms.key(page, section, field)] = values[0]
    else:
        fields.append((section, field))
        now = st.session_state.get(forms.key(page, section, field))
        st.session_state[list_key] = [False, True] if isinstance(now, bool) else [now]
    st.session_state[_state(page, "listed")] = fields


def _list_widget(page: str, section: str, field: str) -> None:
    info = forms.info_of(section, field)
    kind, _ = forms.kind_of(info.annotation)
    shared: dict[str, Any] = {
        "key": _list_key(page, section, field),
        "help": forms.help_of(section, field),
        "persist_state": "session",
    }
    title = f"{info.title or field}: values"
    if get_origin(kind) is Literal or kind is bool:
        options = [False, True] if kind is bool else get_args(kind)
        st.multiselect(title, options, format_func=reasons.told, **shared)
        return
    forms.typed_list(title, **shared)


def values_of(page: str, section: str, field: str) -> list[Any]:
    """The values of a list, those that were typed as what they mean."""
    kind, optional = forms.kind_of(forms.info_of(section, field).annotation)
    found: list[Any] = []
    for one in st.session_state.get(_list_key(page, section, field)) or ():
        found += _typed(one, kind, optional) if isinstance(one, str) and get_origin(kind) is not Literal else [one]
    return found


def _typed(text: str, kind: Any, optional: bool) -> list[Any]:
    """What was typed as one entry: numbers may be parted by commas or blanks. What is no number stays as it is."""
    if kind not in (int, float):
        return [text]
    return [_number(word, kind, optional) for word in re.split(r"[,;\s]+", text.strip()) if word]


def _number(word: str, kind: Any, optional: bool) -> Any:
    if optional and word.lower() == "none":
        return None
    try:
        return kind(word)
    except ValueError:
        return word


def chosen(page: str, active: Active) -> SweepConfig | None:
    """The sweep as the form stands; None where no field is a list. Raises ConfigError with the core's sentence.

    active: whether a field of the form has a say now; that of a loss which is not chosen has none.
    """
    over = {
        path_of(section, field): [_plain(value) for value in values_of(page, section, field)]
        for section, field in listed(page)
        if active(section, field)
    }
    if not over:
        return None
    drawn = st.session_state.get(_state(page, "drawn"))
    cells = make_sweep({"over": over}, source=SOURCE).cells
    random = {"method": "random", "runs": int(drawn)} if drawn and drawn < cells and cells >= WORTH_DRAWING else {}
    return make_sweep({"over": over, **random}, source=SOURCE)


def _plain(value: Any) -> Any:
    """A value as `bsc_core.config.reading.put` takes it: the word none unsets a key."""
    return "none" if value is None else value


def summary(page: str, sweep: SweepConfig | None, seeds: Iterable[int]) -> None:
    """What is multiplied with what, and how many of the combinations are drawn."""
    several = list(seeds)
    if sweep is None and not several:
        if is_on(page):
            st.caption("One run so far. Press **List** beside a field to try several values of it.")
        return
    st.caption(product_words(sweep, several))
    if sweep is not None and sweep.cells >= WORTH_DRAWING:
        st.number_input(
            f"Draw at random, of {sweep.cells:,} combinations",
            min_value=1,
            value=None,
            step=1,
            placeholder="all of them",
            key=_state(page, "drawn"),
            persist_state="session",
            help="A few random combinations often find as good a setting as a whole grid (Bergstra and Bengio, 2012).",
        )


def product_words(sweep: SweepConfig | None, seeds: list[int]) -> str:
    """`2 × loss.temperature, 3 × training.batch_size, 5 seeds: 30 runs.`"""
    parts = [f"{len(values)} × {path}" for path, values in sweep.over.items()] if sweep else []
    parts += [theme.many(len(seeds), "seed")] if seeds else []
    drawn = f", {sweep.runs} drawn at random" if sweep and sweep.runs else ""
    return f"{', '.join(parts)}{drawn}: **{theme.many(count_runs(sweep, seeds), 'run')}**."


def _state(page: str, name: str) -> str:
    return f"{page}.sweep.{name}"


def _list_key(page: str, section: str, field: str) -> str:
    return f"{forms.key(page, section, field)}.list"

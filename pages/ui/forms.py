"""Forms made from the config schema: titles and descriptions come from it, and it alone decides what is allowed.

Every widget lives under the key `<page>.<section>.<field>`; `fill` sets them all, `read` gives them back as plain
values for `make_config`. Widgets refuse nothing themselves, so that the core's message is the one that is seen. A loss
is a section of its own, `loss.bsc` or `loss.softmax`, so that each keeps its values while another one is chosen.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bsc_core.config import LOSS_CONFIGS, RunConfig
from pages.ui import reasons, words

Values = dict[str, Any]
Fields = Mapping[str, Sequence[str]]  # section -> names of its fields
Drawn = Callable[[str, str, str], object]  # what draws one field, given page, section and field


def key(page: str, section: str, field: str) -> str:
    """The session key of a field's widget."""
    return f"{page}.{section}.{field}"


def fill(page: str, fields: Fields, values: Values) -> None:
    """Set the widgets of these fields from nested plain values; a field that is absent gets its default."""
    for section, names in fields.items():
        given = values.get(section) or {}
        for name in names:
            default = model_of(section).model_fields[name].get_default()
            value = given.get(name, default)
            st.session_state[key(page, section, name)] = list(value) if isinstance(value, tuple) else value


def read(page: str, fields: Fields) -> dict[str, Values]:
    """The widgets' values, nested as `make_config` takes them."""
    return {
        section: {name: _plain(section, name, st.session_state[key(page, section, name)]) for name in names}
        for section, names in fields.items()
    }


def _plain(section: str, field: str, value: Any) -> Any:
    """A widget's value as the config takes it: typed whole numbers as such, and an emptied text as not set.

    In the inner sections of `data` an empty text has a meaning of its own.
    """
    kind, optional = kind_of(info_of(section, field).annotation)
    if value == "" and optional and not section.startswith("data."):
        return None
    if get_origin(kind) is tuple and get_args(kind)[0] is int:
        return [int(one) if str(one).strip().isdecimal() else one for one in value]
    return value


def info_of(section: str, field: str) -> FieldInfo:
    """A field of a section as the schema has it."""
    return model_of(section).model_fields[field]


def model_of(section: str) -> type[BaseModel]:
    """The pydantic model of a section of RunConfig, of a loss: `loss.combined.bsc`, or an inner one: `encoder.lora`."""
    outer, _, inner = section.rpartition(".")
    if section.startswith("loss."):
        return LOSS_CONFIGS[inner]
    fields = model_of(outer).model_fields if outer else RunConfig.model_fields
    model, _ = kind_of(fields[inner].annotation)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"section {section} is {model}, which a form cannot be made from")
    return model


def draw(page: str, section: str, fields: Sequence[str], *, columns: int = 2, drawn: Drawn | None = None) -> None:
    """Draw the widgets of these fields, side by side: lists over the whole width first, switches last.

    drawn: draws one field, by default its widget.
    """
    drawn = drawn or field_widget
    infos = model_of(section).model_fields
    lists = [field for field in fields if get_origin(infos[field].annotation) is tuple]
    switches = [field for field in fields if infos[field].annotation is bool]
    boxes = [field for field in fields if field not in (*lists, *switches)]
    for field in lists:
        drawn(page, section, field)
    for kind in (boxes, switches):
        for start in range(0, len(kind), columns):
            row = zip(st.columns(columns, vertical_alignment="bottom"), kind[start : start + columns], strict=False)
            for place, field in row:
                with place:
                    drawn(page, section, field)


def field_widget(page: str, section: str, field: str) -> Any:
    """One field's widget, chosen by its type."""
    info, widget_key = info_of(section, field), key(page, section, field)
    kind, optional = kind_of(info.annotation)
    shared: Values = {"key": widget_key, "help": help_of(section, field), "persist_state": "session"}
    title = info.title or field
    if get_origin(kind) is Literal:
        return st.selectbox(title, get_args(kind), **shared)
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        if get_origin(element) is Literal:
            return st.multiselect(title, get_args(element), placeholder="none", **shared)
        return typed_list(title, **shared)
    if kind is bool:
        return st.toggle(title, **shared)
    if kind in (int, float):
        whole = kind is int
        default = info.get_default() or (1 if whole else 0.1)
        return st.number_input(
            title,
            step=1 if whole else _step(default),
            format="%d" if whole else "%g",
            value=None,
            placeholder="not set" if optional else None,
            **shared,
        )
    return st.text_input(title, placeholder="not set" if optional else None, **shared)


def typed_list(title: str, **shared: Any) -> list[Any]:
    """A list whose values are typed in; what is shown is what the session holds under the key."""
    known = st.session_state.get(shared["key"]) or []
    shared = {"placeholder": "type a value, then Enter", **shared}
    return st.multiselect(title, known, format_func=reasons.told, accept_new_options=True, **shared)


def kind_of(annotation: Any) -> tuple[Any, bool]:
    """The type of a field without its None, and whether None is allowed: `int | None` -> (int, True)."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    kinds = [part for part in get_args(annotation) if part is not type(None)]
    return kinds[0], len(kinds) < len(get_args(annotation))


def _step(default: float) -> float:
    """A tenth of the default's power of ten, so that one click is a small change: 2e-5 -> 1e-6, 0.1 -> 0.01."""
    return float(10.0 ** (math.floor(math.log10(abs(default))) - 1))


def help_of(section: str, field: str) -> str | None:
    """What a field is and why its default is what it is; a word of the field has its card."""
    info = info_of(section, field)
    name = f"{section}.{field}" if section.startswith("data.") else field  # those of `data` have other meanings
    about = words.help_text(name) if name in words.WORDS else info.description
    parts = [about, reasons.reason(section, field, info.get_default())]
    return "\n\n".join(part for part in parts if part) or None

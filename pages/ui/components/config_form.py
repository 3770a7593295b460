"""Forms generated from the config schema, which also validates the values.

The key of a widget is `<page>.<section>.<field>`; `fill` sets them all, `read` returns them as plain values for
`make_config`. Widgets do not validate, so that the user sees the core's message. Each loss is a section, `loss.bsc` or
`loss.softmax`, so that it keeps its values while another loss is selected.
"""

import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from bsc_core import formatting
from bsc_core.config import LOSS_CONFIGS, RunConfig
from bsc_core.errors import BscError, ConfigError
from bsc_core.losses.catalog import CATALOG
from pages.ui.components import glossary

ENCODERS = {"bundled": "Bundled (all-MiniLM-L6-v2)", "static": "Static (fast)"}

Values = dict[str, Any]
Fields = Mapping[str, Sequence[str]]  # section -> names of its fields
DrawField = Callable[[str, str, str], object]  # draws one field, given page, section and field
_REASONS = tomllib.loads(Path(__file__).with_name("default_reasons.toml").read_text(encoding="utf-8"))
_REASONS |= {  # of each loss: the reasons for settings of several losses, and its own
    f"loss.{loss}": {field: reason for field, reason in _REASONS["loss"].items() if field in config.model_fields}
    | _REASONS.get(f"loss.{loss}", {})
    for loss, config in LOSS_CONFIGS.items()
}
REASONS: dict[str, str] = {  # setting -> reason for its default, the last line of its help
    f"{section}.{field}": reason
    for section, fields in _REASONS.items()
    if section != "loss"
    for field, reason in fields.items()
}


def key(page: str, section: str, field: str) -> str:
    """Return the session key of a field's widget."""
    return f"{page}.{section}.{field}"


def fill(page: str, fields: Fields, values: Values) -> None:
    """Set the widgets of these fields from nested plain values; a field that is absent gets its default."""
    for section, names in fields.items():
        given = values.get(section) or {}
        for name in names:
            default = model_of(section).model_fields[name].get_default()
            value = given.get(name, default)
            st.session_state[key(page, section, name)] = list(value) if isinstance(value, tuple) else value


def fill_some(page: str, section: str, values: Values) -> None:
    """Set the widgets of these fields only."""
    for name, value in values.items():
        st.session_state[key(page, section, name)] = list(value) if isinstance(value, tuple) else value


def checked_value(section: str, field: str, value: Any) -> Any:
    """Return a value of a link for the widget of a field.

    Raises:
        ConfigError: The value has another type.
    """
    info = info_of(section, field)
    if value == "none" and kind_of(info.annotation)[1]:
        return None
    try:
        result = TypeAdapter(info.annotation).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{field} is {value!r:.40}; {error.errors()[0]['msg'].lower()}") from None
    if isinstance(result, float) and not math.isfinite(result):
        raise ConfigError(f"{field} is {result}; it must be a finite number")
    return result


def read(page: str, fields: Fields) -> dict[str, Values]:
    """Return the values of the widgets, nested as `make_config` takes them."""
    return {
        section: {name: _plain(section, name, st.session_state[key(page, section, name)]) for name in names}
        for section, names in fields.items()
    }


def _plain(section: str, field: str, value: Any) -> Any:
    """Return a widget's value for the config: typed integers as int, and an empty text as None."""
    kind, optional = kind_of(info_of(section, field).annotation)
    if value == "" and optional and not section.startswith("data."):  # where an empty text has a meaning
        return None
    if get_origin(kind) is tuple and get_args(kind)[0] is int:
        return [int(entry) if str(entry).strip().isdecimal() else entry for entry in value]
    return value


def info_of(section: str, field: str) -> FieldInfo:
    """Return a field of a section from the schema."""
    return model_of(section).model_fields[field]


def model_of(section: str) -> type[BaseModel]:
    """Return the pydantic model of a section, such as `training`, `encoder.lora` or `loss.combined.bsc`."""
    outer, _, inner = section.rpartition(".")
    if section.startswith("loss."):
        return LOSS_CONFIGS[inner]
    fields = model_of(outer).model_fields if outer else RunConfig.model_fields
    model, _ = kind_of(fields[inner].annotation)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"section {section} is {model}; a form needs a pydantic model")
    return model


def draw(
    page: str, section: str, fields: Sequence[str], *, columns: int = 2, draw_field: DrawField | None = None
) -> None:
    """Draw the widgets of these fields side by side: lists over the full width first, switches last."""
    draw_field = draw_field or field_widget
    infos = model_of(section).model_fields
    lists = [field for field in fields if get_origin(infos[field].annotation) is tuple]
    switches = [field for field in fields if infos[field].annotation is bool]
    boxes = [field for field in fields if field not in (*lists, *switches)]
    for field in lists:
        draw_field(page, section, field)
    for kind in (boxes, switches):
        for start in range(0, len(kind), columns):
            row = zip(st.columns(columns, vertical_alignment="bottom"), kind[start : start + columns], strict=False)
            for cell, field in row:
                with cell:
                    draw_field(page, section, field)


def field_widget(page: str, section: str, field: str) -> Any:
    """Draw the widget of a field, chosen by its type."""
    info = info_of(section, field)
    kind, optional = kind_of(info.annotation)
    shared: Values = {"key": key(page, section, field), "help": help_of(section, field), "persist_state": "session"}
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
    shared["placeholder"] = "not set" if optional else None
    if kind is int:
        return st.number_input(title, step=1, format="%d", value=None, **shared)
    if kind is float:
        return st.number_input(title, step=_step(info.get_default() or 0.1), format="%g", value=None, **shared)
    return st.text_input(title, **shared)


def typed_list(title: str, **shared: Any) -> list[Any]:
    """Draw a list of typed values."""
    options = st.session_state.get(shared["key"]) or []
    placeholder = "type a value, then Enter"
    return st.multiselect(
        title, options, format_func=format_setting, accept_new_options=True, placeholder=placeholder, **shared
    )


def kind_of(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a field without None, and whether None is allowed: `int | None` -> (int, True)."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    kinds = [part for part in get_args(annotation) if part is not type(None)]
    return kinds[0], len(kinds) < len(get_args(annotation))


@contextmanager
def titles_in_errors(section: str, fields: Iterable[str]) -> Iterator[None]:
    """Name the fields of a form in the message of an error by their titles, not by their config keys."""
    try:
        yield
    except BscError as error:
        titles = {field: str(info_of(section, field).title) for field in fields}
        keys = [field if "_" in field else rf"{field}(?= is | = )" for field in titles]  # `count` may be a plain word
        pattern = rf"\b(?:\w{{1,40}}\.){{0,3}}({'|'.join(keys)})\b"
        raise type(error)(re.sub(pattern, lambda match: f'"{titles[match[1]]}"', str(error))) from None


def _step(default: float) -> float:
    """Return a tenth of the default's power of ten: 2e-5 -> 1e-6, 0.1 -> 0.01."""
    return float(10.0 ** (math.floor(math.log10(abs(default))) - 1))


def help_of(section: str, field: str) -> str | None:
    """Return the help text of a field: its glossary term or description, and the reason for its default."""
    info = info_of(section, field)
    name = f"{section}.{field}" if section.startswith("data.") else field  # those of `data` have other meanings
    about = glossary.help_text(name) if name in glossary.TERMS else info.description
    setting = f"{section.replace('loss.combined.bsc', 'loss.bsc')}.{field}"
    default = format_setting(info.get_default())
    reason = f"*Default without a preset: {default}*, {REASONS[setting]}" if setting in REASONS else None
    return "\n\n".join(part for part in (about, reason) if part) or None


def describe_value(section: str, field: str, value: str) -> str:
    """Return what the description of a field says about one of its values, which it lists as `value: text.`"""
    text = " ".join((info_of(section, field).description or "").split())
    described = re.search(rf"\b{re.escape(value)}: (.*?\.)(?= \w+: |$)", text)
    return described[1][0].upper() + described[1][1:] if described else ""


def value_title(key: str, value: Any) -> Any:
    """Return the title of an encoder or a loss, given the config key; another value unchanged."""
    if key == "loss.name" and value in CATALOG:
        return CATALOG[value].title
    return ENCODERS.get(value, value) if key == "encoder.name" else value


def format_setting(value: Any) -> str:
    """Format a setting: `on`, `not set`, `2e-5`, `0, 1, 2`."""
    if value is None or value == () or value == []:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return formatting.number(value)
    return ", ".join(map(format_setting, value)) if isinstance(value, list | tuple) else str(value)

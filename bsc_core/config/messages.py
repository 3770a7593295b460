"""Messages of validation errors: one sentence with the key as in a config file, its value, and a fix."""

from typing import Any

from pydantic import ValidationError

from bsc_core.config.losses import LOSS_CONFIGS
from bsc_core.config.section import Section, all_sections, sections_in

Location = tuple[int | str, ...]
MAX_VALUE_LENGTH = 80  # characters of a value in a message
FIXES = {  # by the type of an error whose message names a parser
    "float_parsing": "give a number",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
}


def validation_message(error: ValidationError) -> str:
    """Return the message of the first validation error of a config or one of its sections."""
    first = error.errors(include_url=False)[0]
    root = next((section for section in all_sections() if section.__name__ == error.title), None)
    keys, holder = _walk(root, first["loc"])
    field = ".".join(keys)
    if first["type"] == "extra_forbidden":
        return f"{field} {_unknown(keys[-1], holder)}"
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_loss(field, first["input"], (first.get("ctx") or {}).get("expected_tags"))
    if first["type"] == "missing":
        return f"{field} is missing; set it"
    message = FIXES.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        section = field.rpartition(".")[0]
        return f"{section}: {message}" if section else message
    return f"{field} is {_shorten(first['input'])}; {message[0].lower()}{message[1:]}"


def first_problem(error: ValidationError) -> str:
    """Return the location and the message of the first validation error of another model."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    location = ".".join(str(part)[:MAX_VALUE_LENGTH] for part in first["loc"])
    return f"{location}: {first['msg']}" if location else first["msg"]


def _shorten(value: object) -> str:
    """Return a value as Python writes it, shortened to one line of a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or deeply nested tables
        return "too long"
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"


def _walk(root: type[Section] | None, location: Location) -> tuple[list[str], type[Section] | None]:
    """Return the keys of a location without union tags, and the section that the last one belongs to.

    root: None for a bare loss section, whose location starts with its tag.
    """
    parts = list(location)
    model = root if root is not None else LOSS_CONFIGS.get(str(parts.pop(0))) if parts else None
    keys: list[str] = []
    holder = model
    while parts:
        part = parts.pop(0)
        keys.append(str(part))
        if isinstance(part, int):
            continue
        holder = model
        field = model.model_fields.get(part) if model is not None else None
        models = sections_in(field.annotation) if field is not None else []
        if len(models) > 1 and parts and parts[0] in LOSS_CONFIGS:
            model = LOSS_CONFIGS[str(parts.pop(0))]
        else:
            model = models[0] if len(models) == 1 else None
    return keys, holder


def _unknown(key: str, holder: type[Section] | None) -> str:
    known = f" (known: {', '.join(holder.model_fields)})" if holder is not None else ""
    loss = next((name for name, model in LOSS_CONFIGS.items() if model is holder), None)
    if loss is None:
        return f"is not a known key; remove it or correct its spelling{known}"
    others = [name for name, model in LOSS_CONFIGS.items() if key in model.model_fields]
    elsewhere = f"remove it: it belongs to {', '.join(others)}" if others else "remove it or correct its spelling"
    return f"is not a key of the loss {loss}; {elsewhere}{known}"


def _unknown_loss(field: str, value: Any, expected: str | None) -> str:
    names = expected.replace("'", "") if expected else ", ".join(LOSS_CONFIGS)
    if isinstance(value, dict):
        name = f"{field}.name" if field else "name"
        return f"{name} is {_shorten(value.get('name'))}; it must be one of {names}"
    section = 'write a section with a name, such as name = "bsc"'
    return f"{field or 'the loss'} is {_shorten(value)}; {section} (one of {names})"

"""Validation errors as one sentence that names the key as it stands in a file, its value and the way out."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from bsc_core.config import schema
from bsc_core.config.combined import LOSS_CONFIGS

Location = tuple[int | str, ...]


def explain(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """The first fault of a validation error as one sentence. model: what was validated, if no run's section."""
    fault = error.errors(include_url=False)[0]
    keys, holder = _walk(model or _root(error.title), fault["loc"])
    field = ".".join(keys)
    if fault["type"] == "extra_forbidden":
        return f"{field} {_unknown(keys[-1], holder)}"
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _no_such_loss(field, fault["input"], (fault.get("ctx") or {}).get("expected_tags"))
    if fault["type"] == "missing":
        return f"{field} is missing; give it a value"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error":
        section = field.rpartition(".")[0]
        return f"{section}: {message}" if section else message
    return f"{field} is {fault['input']!r}; {message[0].lower()}{message[1:]}"


def _root(title: str) -> type[BaseModel] | None:
    """The model that was validated; None for a bare loss section, whose location starts with its tag."""
    model = getattr(schema, title, None) or {found.__name__: found for found in LOSS_CONFIGS.values()}.get(title)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _walk(root: type[BaseModel] | None, location: Location) -> tuple[list[str], type[BaseModel] | None]:
    """The keys of a location without the tags of unions, and the model that has, or lacks, the last of them."""
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
        models = _models(field.annotation) if field is not None else []
        if len(models) > 1 and parts and parts[0] in LOSS_CONFIGS:
            model = LOSS_CONFIGS[str(parts.pop(0))]
        else:
            model = models[0] if len(models) == 1 else None
    return keys, holder


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _unknown(key: str, holder: type[BaseModel] | None) -> str:
    known = f" (known: {', '.join(holder.model_fields)})" if holder is not None else ""
    loss = next((name for name, model in LOSS_CONFIGS.items() if model is holder), None)
    if loss is None:
        return f"is not a known key; remove it or correct its spelling{known}"
    others = [name for name, model in LOSS_CONFIGS.items() if key in model.model_fields]
    elsewhere = f"remove it: it belongs to {', '.join(others)}" if others else "remove it or correct its spelling"
    return f"is not a key of the loss {loss}; {elsewhere}{known}"


def _no_such_loss(field: str, given: Any, expected: str | None) -> str:
    names = expected.replace("'", "") if expected else ", ".join(LOSS_CONFIGS)
    if isinstance(given, dict):
        name = f"{field}.name" if field else "name"
        return f"{name} is {given.get('name')!r}; there is no such loss; choose one of {names}"
    return f'{field or "the loss"} is {given!r}; write a section with a name, such as name = "bsc" (one of {names})'

"""Configs from files and plain values, with messages that name the field, its value and the way out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bsc_core.config.schema import RunConfig
from bsc_core.errors import ConfigError, FileFormatError, PathError


def make_config(values: dict[str, Any], *, source: str = "config") -> RunConfig:
    """Check plain values and return the config.

    Raises ConfigError with one sentence that names the first field at fault, its value and the way out.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    """The first fault of a validation error as one sentence."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"{field} is not a known key; remove it or correct its spelling{_known_keys(fault['loc'])}"
    if fault["type"] == "missing":
        return f"{field} is missing; give it a value"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error":
        section = field.rpartition(".")[0]
        return f"{section}: {message}" if section else message
    return f"{field} is {fault['input']!r}; {message[0].lower()}{message[1:]}"


def _known_keys(location: tuple[int | str, ...]) -> str:
    model: Any = RunConfig
    for part in location[:-1]:
        annotation = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next((option for option in options if hasattr(option, "model_fields")), None)
    return f" (known: {', '.join(model.model_fields)})" if hasattr(model, "model_fields") else ""


def read_config(path: Path | str, overrides: list[str] | tuple[str, ...] = ()) -> RunConfig:
    """Read a TOML config file; `overrides` are `section.key=value` in TOML syntax.

    Relative data paths and encoder folders are taken from the config file's folder, those of overrides from the working
    folder. Raises PathError, FileFormatError
    or ConfigError.
    """
    path = Path(path)
    if not path.is_file():
        raise PathError(f"{path}: there is no such file; give the path of a TOML config")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path}: not TOML: {error}") from None
    _resolve_paths(values, path.resolve().parent)
    for override in overrides:
        _apply_override(values, override)
    _resolve_paths(values, Path.cwd())
    return make_config(values, source=str(path))


def _resolve_paths(values: dict[str, Any], folder: Path) -> None:
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("train", "dev", "test", "corpus"):
            if isinstance(data.get(key), str) and data[key]:
                data[key] = str((folder / Path(data[key]).expanduser()).resolve())
    encoder = values.get("encoder")
    if isinstance(encoder, dict) and isinstance(encoder.get("name"), str):
        candidate = folder / Path(encoder["name"]).expanduser()
        if encoder["name"] not in ("bundled", "static") and candidate.is_dir():
            encoder["name"] = str(candidate.resolve())


def _apply_override(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(f"--set {override}: write it as section.key=value, such as loss.temperature=0.05")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    target = values
    for part in parts[:-1]:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            raise ConfigError(f"--set {override}: {part} is a value, not a section")
    target[parts[-1]] = None if value == "none" and parts[-1] != "normalization" else value


def to_toml(config: RunConfig) -> str:
    """The config as a TOML file that `read_config` reads back to an equal config."""
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))

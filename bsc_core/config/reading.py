"""Configs from files and plain values, and back into files."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bsc_core.config.faults import explain
from bsc_core.config.schema import RunConfig
from bsc_core.errors import ConfigError, FileFormatError, PathError

HUB = "hf://"
"""What the name of a data set on the Hugging Face hub begins with, where a path may stand."""
NONE_IS_A_WORD = ("normalization", "activation")
"""Keys whose value may be the word none; elsewhere `--set key=none` unsets an optional key."""


def make_config(values: dict[str, Any], *, source: str = "config") -> RunConfig:
    """Check plain values and return the config.

    Raises ConfigError with one sentence that names the first field at fault, its value and the way out.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error)}") from None


def read_config(path: Path | str, overrides: list[str] | tuple[str, ...] = ()) -> RunConfig:
    """Read a TOML config file of one run; `overrides` are `section.key=value` in TOML syntax.

    Raises PathError, FileFormatError or ConfigError, as `read_values` does.
    """
    values = read_values(path, overrides)
    if "sweep" in values:
        raise ConfigError(f"{path}: it has a [sweep] section, so it describes many runs; use `bsc sweep {path}`")
    return make_config(values, source=str(path))


def read_values(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The plain values of a TOML config file with overrides, before they are checked.

    Relative data paths and encoder folders are taken from the config file's folder, those of overrides from the working
    folder. Raises PathError, FileFormatError or ConfigError.
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
    resolve_paths(values, path.resolve().parent)
    for override in overrides:
        _apply_override(values, override)
    resolve_paths(values, Path.cwd())
    return values


def resolve_paths(values: dict[str, Any], folder: Path) -> None:
    """Make the relative paths among plain values absolute, in place."""
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("train", "dev", "test", "corpus", "false_negatives"):
            if isinstance(data.get(key), str) and data[key]:
                data[key] = _resolved(data[key], folder)
        if isinstance(data.get("mix"), list):
            data["mix"] = [_resolved(path, folder) if path and isinstance(path, str) else path for path in data["mix"]]
    encoder = values.get("encoder")
    if isinstance(encoder, dict) and isinstance(encoder.get("name"), str):
        candidate = folder / Path(encoder["name"]).expanduser()
        if encoder["name"] not in ("bundled", "static") and candidate.is_dir():
            encoder["name"] = str(candidate.resolve())


def _resolved(path: str, folder: Path) -> str:
    return path if path.startswith(HUB) else str((folder / Path(path).expanduser()).resolve())


def _apply_override(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not all(key.strip().split(".")):
        raise ConfigError(f"--set {override}: write it as section.key=value, such as loss.temperature=0.05")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    put(values, key.strip(), value, f"--set {override}")


def put(values: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Set `section.key` among plain values in place; the word none unsets an optional key. Raises ConfigError."""
    parts = key.split(".")
    target: Any = values
    for part in parts[:-1]:
        target = _inside(target, part)
        if not isinstance(target, dict | list):
            raise ConfigError(f"{source}: {part} is a value, not a section")
    if not isinstance(target, dict):
        raise ConfigError(f"{source}: {parts[-1]} is an entry of a list; name a key of it, or set the list")
    target[parts[-1]] = None if value == "none" and parts[-1] not in NONE_IS_A_WORD else value


def _inside(target: Any, part: str) -> Any:
    """What stands under one key: a section, made where there is none yet, or an entry of a list by its number."""
    if isinstance(target, list):
        return target[int(part)] if part.isdecimal() and int(part) < len(target) else None
    return target.setdefault(part, {})


def to_toml(config: RunConfig) -> str:
    """The config as a TOML file that `read_config` reads back to an equal config."""
    import tomli_w

    return tomli_w.dumps(_name_first(config.model_dump(mode="json", exclude_none=True)))


def _name_first(values: Any) -> Any:
    """The same sections with `name` before the keys whose meaning depends on it."""
    if isinstance(values, list):
        return [_name_first(value) for value in values]
    if not isinstance(values, dict):
        return values
    first = {"name": values["name"]} if "name" in values else {}
    return first | {key: _name_first(value) for key, value in values.items()}

"""Reading configs from TOML files and plain values, and writing them."""

import json
import tomllib
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bsc_core.config.messages import validation_message
from bsc_core.config.schema import RunConfig
from bsc_core.config.section import Section, both_set, log_deprecations, note_deprecation, sections_in
from bsc_core.errors import ConfigError, FileFormatError, PathError
from bsc_core.files import read_regular
from bsc_core.formatting import one_line

HUB = "hf://"
"""Prefix of a dataset on the Hugging Face hub instead of a path."""
MAX_VALUE = 10_000  # characters; the time and memory for a key of many parts grow with the square of its length
MAX_CHARACTERS = 500_000
MAX_DOTS_SQUARED = 500_000
MAX_DOTS_TIMES_LINES = 1_000_000  # most dots of a line, times all lines
MAX_PARTS = 20
NONE_IS_A_VALUE = ("normalization", "activation")
"""Keys with the value `none`; for other keys `--set key=none` unsets the key."""


def make_config(values: dict[str, Any], *, source: str = "config") -> RunConfig:
    """Validate plain values and return the config.

    Raises:
        ConfigError: A value is invalid; the message names `source`, the key, its value and a fix.
    """
    try:
        with log_deprecations(source):
            return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {validation_message(error)}") from None


def read_config(path: Path | str, overrides: list[str] | tuple[str, ...] = ()) -> RunConfig:
    """Read the TOML config file of one run.

    Args:
        path: The file.
        overrides: Changes of single keys, `section.key=value` in TOML syntax.

    Raises:
        PathError: The file does not exist.
        FileFormatError: The file is not TOML.
        ConfigError: A key or value is invalid, or the file has a `[sweep]` section.
    """
    with log_deprecations(str(path)):
        values = read_values(path, overrides)
        if "sweep" in values:
            raise ConfigError(f"{path}: the section [sweep] describes several runs; use `bsc sweep {path}`")
        return make_config(values, source=str(path))


def read_values(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a TOML config file with overrides, before validation.

    Relative data paths and encoder folders are resolved against the config file's folder, those of overrides against
    the working folder. Raises as `read_config` does.
    """
    path = Path(path)
    if not path.is_file():
        raise PathError(f"{path}: file not found; give the path of a TOML config")
    try:
        text = read_regular(path).decode("utf-8")
        check_toml(text)
        values = typing.cast("dict[str, Any]", current_names(tomllib.loads(text), source=str(path)))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FileFormatError(f"{path}: not valid TOML: {reason}") from None
    resolve_paths(values, path.resolve().parent)
    for override in overrides:
        _apply_override(values, override)
    resolve_paths(values, Path.cwd())
    return values


def check_toml(text: str) -> None:
    """Raise ValueError for a text that is much longer than a config, or may have keys of many parts.

    The library needs memory for a key that grows with the square of its parts, and time for each line below a header
    that grows with the parts of the header.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"a config has at most {MAX_CHARACTERS:,} characters, and this file has {len(text):,}")
    dots = [line.count(".") for line in text.split("\n")]
    if sum(count**2 for count in dots) > MAX_DOTS_SQUARED or max(dots) * len(dots) > MAX_DOTS_TIMES_LINES:
        raise ValueError("lines have more dots than those of a config")


def resolve_paths(values: dict[str, Any], folder: Path) -> None:
    """Make the relative paths in plain values absolute, in place."""
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("train", "dev", "test", "corpus", "false_negatives"):
            if isinstance(data.get(key), str) and data[key]:
                data[key] = _resolved(data[key], folder)
        if isinstance(data.get("mix"), list):
            data["mix"] = [_resolved(path, folder) if path and isinstance(path, str) else path for path in data["mix"]]
    encoder = values.get("encoder")
    if isinstance(encoder, dict) and isinstance(encoder.get("name"), str):
        path = _resolved(encoder["name"], folder)
        with suppress(OSError):  # a name that is too long for a path
            if encoder["name"] not in ("bundled", "static") and Path(path).is_dir():
                encoder["name"] = path


def current_key(key: str) -> str:
    """Return the current name of a dotted key, such as `training.max_steps` for `training.steps`."""
    current, _ = _resolve_key(key)
    if current != key:
        note_deprecation(f"{key} is now {current}")
    return current


def current_names(value: Any, key: str = "", *, source: str = "config") -> Any:
    """Return plain values with the current names of keys and values.

    Args:
        value: The value of `key`: sections as dicts, lists, or a scalar.
        key: Dotted key with current names; empty for a config.
        source: What error messages start with.

    Raises:
        ConfigError: The old and the current name of a key are set to different values.
    """
    if isinstance(value, dict):
        prefix = f"{key}." if key else ""
        result: dict[str, Any] = {}
        for name, item in value.items():
            if name.count(".") >= MAX_PARTS:
                raise ConfigError(f"{source}: the key {name[:40]}… has more than {MAX_PARTS} parts; correct it")
            dotted = current_key(f"{prefix}{name}")
            current = dotted.removeprefix(prefix)
            item = current_names(item, dotted, source=source)
            if current in result and result[current] != item:
                old = next(
                    other for other in value if other != current and _resolve_key(f"{prefix}{other}")[0] == dotted
                )
                raise ConfigError(f"{source}: {both_set(f'{prefix}{old}', dotted)}")
            result[current] = item
        return result
    if isinstance(value, list):
        return [current_names(item, f"{key}.{number}", source=source) for number, item in enumerate(value)]
    name = next((part for part in reversed(key.split(".")) if not part.isdecimal()), "")
    for section in _resolve_key(key)[1]:
        value = section.current_value(name, value)
    return value


def put(values: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Set a dotted key in plain values, in place; the value `none` unsets an optional key.

    Raises:
        ConfigError: A part of the key is not a section.
    """
    parts = current_key(key).split(".")
    target: Any = values
    for part in parts[:-1]:
        target = _enter(target, part)
        if not isinstance(target, dict | list):
            raise ConfigError(f"{source}: {part} is a value, not a section; name a key of a section")
    if not isinstance(target, dict):
        raise ConfigError(f"{source}: {parts[-1]} is an entry of a list; name a key of it, or set the list")
    target[parts[-1]] = None if value == "none" and parts[-1] not in NONE_IS_A_VALUE else value


def parse_value(text: str) -> Any:
    """Return a value in TOML syntax; a bare word is a string, as is a text of several lines or a very long one."""
    if len(text) > MAX_VALUE or "\n" in text:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # not TOML, an integer with thousands of digits, or nested too deeply
        return text


def format_value(value: Any) -> str:
    """Return a value on one line in the syntax that `parse_value` reads; None is `none`."""
    if isinstance(value, str) and parse_value(value) == value:
        return value
    return "none" if value is None else _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_inline(one)}' for key, one in value.items() if one is not None)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value, ensure_ascii=False)


def to_toml(config: RunConfig) -> str:
    """Return the config as TOML that `read_config` reads back to an equal config."""
    import tomli_w

    return tomli_w.dumps(_name_first(config.model_dump(mode="json", exclude_none=True)))


def _resolved(path: str, folder: Path) -> str:
    try:
        return path if path.startswith(HUB) else str((folder / Path(path).expanduser()).resolve())
    except (OSError, RuntimeError, ValueError):  # an unknown ~user, a zero byte: refused when it is opened
        return path


def _apply_override(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    source = f"--set {one_line(override)}"
    if not separator or not all(key.strip().split(".")):
        raise ConfigError(f"{source}: write it as section.key=value, such as loss.temperature=0.05")
    put(values, key.strip(), parse_value(text.strip()), source)


def _resolve_key(key: str) -> tuple[str, list[type[Section]]]:
    """Return the current name of a dotted key and the sections that have it."""
    sections: list[type[Section]] = [RunConfig]
    owners: list[type[Section]] = []
    names = []
    for part in key.split("."):
        aliases = {old: new for section in sections for old, new in section.aliases.items()}
        name = aliases.get(part, part)
        names.append(name)
        if not part.isdecimal():
            owners = [section for section in sections if name in section.model_fields]
            annotations = [section.model_fields[name].annotation for section in owners]
            sections = [section for annotation in annotations for section in sections_in(annotation)]
    return ".".join(names), owners


def _enter(target: Any, part: str) -> Any:
    """Return the section under a key, created if missing, or the entry of a list by its number."""
    if isinstance(target, list):
        return target[int(part)] if part.isdecimal() and int(part) < len(target) else None
    return target.setdefault(part, {})


def _name_first(values: Any) -> Any:
    """Return the sections with `name` before the keys that depend on it."""
    if isinstance(values, list):
        return [_name_first(value) for value in values]
    if not isinstance(values, dict):
        return values
    first = {"name": values["name"]} if "name" in values else {}
    return first | {key: _name_first(value) for key, value in values.items()}

"""Sweeps: several runs from one config, over lists of values for its keys and over seeds."""

from __future__ import annotations

import copy
import itertools
import math
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from bsc_core.config.messages import validation_message
from bsc_core.config.reading import (
    current_key,
    current_names,
    make_config,
    parse_value,
    put,
    read_values,
    resolve_paths,
)
from bsc_core.config.schema import RunConfig
from bsc_core.config.section import Section, log_deprecations
from bsc_core.errors import ConfigError
from bsc_core.formatting import one_line

CONFIRM_ABOVE = 100
"""Number of runs above which a sweep has to be confirmed."""
MAX_RUNS = 10_000
"""Maximum number of runs of a sweep."""


class SweepConfig(Section):
    """Config keys with lists of values; one run per combination of values, or per combination in a random sample."""

    over: dict[str, tuple[Any, ...]] = Field(max_length=50)
    """Lists of values by key, such as "loss.temperature" = [0.05, 0.1]."""
    method: Literal["grid", "random"] = "grid"
    """grid: all combinations. random: `runs` distinct combinations."""
    runs: int | None = Field(None, ge=1)
    """Number of combinations that the method random samples; each is trained once per seed in training.seeds."""
    seed: int = Field(0, ge=0, lt=2**31, title="Sweep seed")
    """Seed of the random sample; not the seed of the runs."""

    @field_validator("over", mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        return _flatten(value) if isinstance(value, Mapping) else value

    @field_validator("over")
    @classmethod
    def _check_values(cls, value: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for key, values in value.items():
            if not all(key.split(".")):
                raise ValueError(f"over has the key {key!r}; write it as section.key, such as loss.temperature")
            if key == "training.seeds":
                raise ValueError("over has the key training.seeds; list the seeds in [training] instead")
            if not values:
                raise ValueError(f"over.{key} is empty; give at least one value")
            if len(set(map(_hashable, values))) < len(values):
                raise ValueError(f"over.{key} is {list(values)}; its values must be distinct")
        return value

    @model_validator(mode="after")
    def _check_runs(self) -> SweepConfig:
        if self.method == "grid" and self.runs is not None:
            raise ValueError(f"runs is {self.runs}; a grid runs all combinations: set method = 'random' or remove runs")
        if self.method == "random" and self.runs is None:
            raise ValueError("runs is missing; set the number of combinations for method = 'random'")
        if self.runs is not None and self.runs > self.cells:
            raise ValueError(f"runs is {self.runs}; there are {self.cells} combinations, so use method = 'grid'")
        return self

    @property
    def cells(self) -> int:
        """Number of combinations of all values."""
        return math.prod(len(values) for values in self.over.values())


def count_runs(sweep: SweepConfig | None, seeds: Sequence[int] = ()) -> int:
    """Return the number of runs of a sweep, each with every seed."""
    settings = 1 if sweep is None else sweep.runs or sweep.cells
    return settings * max(1, len(seeds))


def check_number(runs: int, source: str) -> None:
    """Raise ConfigError if a sweep has more than MAX_RUNS runs."""
    if runs > MAX_RUNS:
        raise ConfigError(f"{source}: a sweep has at most {MAX_RUNS:,} runs; sample some, or use fewer values")


def settings(sweep: SweepConfig | None) -> Iterator[dict[str, Any]]:
    """Yield the values by key of every setting: a grid whose last key varies fastest, or a random sample of it."""
    if sweep is None:
        yield {}
    elif sweep.method == "grid":
        for cell in itertools.product(*sweep.over.values()):
            yield dict(zip(sweep.over, cell, strict=True))
    else:
        for number in _sample(sweep.cells, sweep.runs or 0, random.Random(sweep.seed)):
            yield _cell(sweep.over, number)


def sweep_configs(values: Mapping[str, Any], sweep: SweepConfig | None, *, source: str = "config") -> list[RunConfig]:
    """Return the validated configs of all runs of a sweep, one per seed; the runs of a setting are adjacent.

    Args:
        values: Values that all runs share; `training.seeds` is expanded too.
        sweep: The sweep; None for one setting.
        source: What error messages start with.

    Raises:
        ConfigError: A setting is invalid; the message names it.
    """
    configs: list[RunConfig] = []
    check_number(count_runs(sweep), source)
    with log_deprecations(source):
        for setting in settings(sweep):
            cell = copy.deepcopy(dict(values))
            for key, value in setting.items():
                put(cell, key, value, f"{source}: sweep over {key}")
            configs += expand_seeds(make_config(cell, source=_describe(source, setting)))
            check_number(len(configs), source)
    if sweep is not None and "training.seed" in sweep.over and len(configs) > count_runs(sweep):
        raise ConfigError(f"{source}: training.seeds is set and the sweep is over training.seed; set one of the two")
    return configs


def expand_seeds(config: RunConfig) -> list[RunConfig]:
    """Return one config per entry of `training.seeds`, or the config itself; none of them has `seeds`."""
    training = config.training
    expanded = [training.model_copy(update={"seeds": (), "seed": seed}) for seed in training.seeds]
    return [config.model_copy(update={"training": one}) for one in expanded] or [config]


def read_sweep(
    path: Path | str, overrides: Sequence[str] = (), over: Sequence[str] = (), *, random: int | None = None
) -> tuple[dict[str, Any], SweepConfig | None]:
    """Read a config file and its `[sweep]` section.

    Args:
        path: The file.
        overrides: Changes of single keys, as in `read_config`.
        over: Additional keys with values, such as `loss.temperature=0.05,0.1`.
        random: Number of combinations to sample, instead of the file's setting.

    Returns:
        The values that all runs share, and the sweep; None if neither the file nor `over` has one.

    Raises:
        PathError, FileFormatError, ConfigError: As `read_config`.
    """
    with log_deprecations(str(path)):
        return _read_sweep(path, overrides, over, random)


def _read_sweep(
    path: Path | str, overrides: Sequence[str], over: Sequence[str], random: int | None
) -> tuple[dict[str, Any], SweepConfig | None]:
    values = read_values(path, overrides)
    section = values.pop("sweep", None)
    if section is None and not over:
        if random is not None:
            raise ConfigError(f"--random {random}: there is nothing to sample; name keys and values with --over")
        return values, None
    parsed = list(map(_parse, over))
    for key, times in Counter(key for key, _ in parsed).items():
        if times > 1:
            raise ConfigError(f"--over {key} is given {times} times; list all its values in one")
    section = dict(section) if isinstance(section, dict) else {"over": {} if section is None else section}
    section |= {} if random is None else {"method": "random", "runs": random}
    listed = section.get("over", {})
    if not isinstance(listed, Mapping):
        raise ConfigError(f"{path}: sweep: over is {listed!r}; write [sweep.over] with a list of values for each key")
    try:
        in_file = _flatten(listed)
    except ValueError as error:
        raise ConfigError(f"{path}: sweep: {error}") from None
    folder = Path(path).resolve().parent
    resolved = {key: _resolve(key, listed, folder) for key, listed in in_file.items()}
    section["over"] = resolved | {key: _resolve(key, listed, Path.cwd()) for key, listed in parsed}
    return values, make_sweep(section, source=f"{path}: sweep")


def make_sweep(values: Mapping[str, Any], *, source: str = "sweep") -> SweepConfig:
    """Validate plain values and return the sweep.

    Raises:
        ConfigError: As `make_config`.
    """
    try:
        return SweepConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{source}: {validation_message(error)}") from None


def _hashable(value: Any) -> Any:
    """Return an equal hashable value for each list and mapping."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _flatten(values: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, ...]]:
    """Return `{"loss": {"mu": [1]}}` or `{"loss.mu": [1]}` as `{"loss.mu": (1,)}`, with the current names.

    Raises:
        ValueError: A value is not a list, or a key is given under its old and its current name.
    """
    flat: dict[str, tuple[Any, ...]] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            new = _flatten(value, f"{path}{key}.")
        elif isinstance(value, list | tuple):
            new = dict([_with_current_names(f"{path}{key}", value)])
        else:
            raise ValueError(f"over.{path}{key} is {value!r}; give a list of values")
        if twice := [name for name in new if flat.get(name, new[name]) != new[name]]:
            raise ValueError(f"over has {twice[0]} twice, also under an old name; keep only {twice[0]}")
        flat |= new
    return flat


def _parse(text: str) -> tuple[str, tuple[Any, ...]]:
    key, separator, listed = text.partition("=")
    if not separator or not listed.strip():
        advice = "write it as section.key=value,value, such as loss.temperature=0.05,0.1"
        raise ConfigError(f"--over {one_line(text)}: {advice}")
    try:
        values = tomllib.loads(f"value = [{listed}]")["value"]
    except tomllib.TOMLDecodeError:  # bare words are strings
        values = [parse_value(part.strip()) for part in listed.split(",")]
    return _with_current_names(key.strip(), values)


def _with_current_names(key: str, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    key = current_key(key)
    return key, tuple(current_names(value, key) for value in values)


def _resolve(key: str, values: Sequence[Any], folder: Path) -> tuple[Any, ...]:
    """Make the relative paths among the values of a key absolute."""
    section, _, name = key.partition(".")
    cells = [{section: {name: copy.deepcopy(value)}} for value in values]
    for cell in cells:
        resolve_paths(cell, folder)
    return tuple(cell[section][name] for cell in cells)


def _sample(cells: int, size: int, generator: random.Random) -> list[int]:
    """Sample distinct numbers below `cells`, in the order sampled."""
    sampled: dict[int, None] = {}
    while len(sampled) < size:
        sampled.setdefault(generator.randrange(cells))
    return list(sampled)


def _cell(over: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """Return the combination of a number; the last key varies fastest."""
    cell = {}
    for key, values in reversed(list(over.items())):
        number, position = divmod(number, len(values))
        cell[key] = values[position]
    return {key: cell[key] for key in over}


def _describe(source: str, setting: Mapping[str, Any]) -> str:
    described = ", ".join(f"{key} = {value!r}" for key, value in setting.items())
    return f"{source} with {described}" if described else source

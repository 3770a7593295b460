"""Sweeps: many runs from one config, over lists of values for any of its keys and over seeds."""

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

from bsc_core.config.faults import explain
from bsc_core.config.reading import make_config, put, read_values, resolve_paths
from bsc_core.config.schema import RunConfig
from bsc_core.config.section import Section
from bsc_core.errors import ConfigError

ASK_ABOVE = 100
"""A sweep of more runs than this is made only when that was confirmed."""


class SweepConfig(Section):
    """Which keys of a config take which values, and whether all combinations are run or some drawn at random."""

    over: dict[str, tuple[Any, ...]] = Field(
        title="Over", description='Lists of values by key, such as "loss.temperature" = [0.05, 0.1].'
    )
    method: Literal["grid", "random"] = Field(
        "grid", title="Method", description="grid: every combination. random: as many different ones as `runs` says."
    )
    runs: int | None = Field(None, ge=1, title="Runs", description="Combinations drawn by random.")
    seed: int = Field(0, ge=0, lt=2**31, title="Sweep seed", description="Of the draw; not that of the runs.")

    @field_validator("over", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        return _flattened(value) if isinstance(value, Mapping) else value

    @field_validator("over")
    @classmethod
    def _usable(cls, value: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for key, values in value.items():
            if not all(key.split(".")):
                raise ValueError(f"over has the key {key!r}; write it as section.key, such as loss.temperature")
            if key == "training.seeds":
                raise ValueError("over has the key training.seeds; seeds are no setting: list them in [training]")
            if not values:
                raise ValueError(f"over.{key} is empty; give it at least one value")
            if any(values.count(one) > 1 for one in values):
                raise ValueError(f"over.{key} is {list(values)}; its values must differ")
        return value

    @model_validator(mode="after")
    def _number_drawn(self) -> SweepConfig:
        if self.method == "grid" and self.runs is not None:
            raise ValueError(f"runs is {self.runs}; it belongs to method = 'random', a grid runs every combination")
        if self.method == "random" and self.runs is None:
            raise ValueError("runs is missing; say how many combinations method = 'random' draws")
        if self.runs is not None and self.runs > self.cells:
            raise ValueError(f"runs is {self.runs}; there are {self.cells} combinations, so use method = 'grid'")
        return self

    @property
    def cells(self) -> int:
        """The number of combinations of all values."""
        return math.prod(len(values) for values in self.over.values())


def count_runs(sweep: SweepConfig | None, seeds: Sequence[int] = ()) -> int:
    """The number of runs of a sweep, each with every seed; nothing is made."""
    settings = 1 if sweep is None else sweep.runs or sweep.cells
    return settings * max(1, len(seeds))


def settings(sweep: SweepConfig | None) -> Iterator[dict[str, Any]]:
    """The values by key of every run, seeds apart: a grid with the last key fastest, or in the order drawn."""
    if sweep is None:
        yield {}
    elif sweep.method == "grid":
        for cell in itertools.product(*sweep.over.values()):
            yield dict(zip(sweep.over, cell, strict=True))
    else:
        for number in _drawn(sweep.cells, sweep.runs or 0, random.Random(sweep.seed)):
            yield _cell(sweep.over, number)


def sweep_configs(values: Mapping[str, Any], sweep: SweepConfig | None, *, source: str = "config") -> list[RunConfig]:
    """The configs of all runs of a sweep, checked; each has one seed. Of one setting they follow each other.

    values: the config that all share, as plain values; its `training.seeds` are expanded too. Raises ConfigError that
    names the setting at fault.
    """
    configs: list[RunConfig] = []
    for setting in settings(sweep):
        cell = copy.deepcopy(dict(values))
        for key, value in setting.items():
            put(cell, key, value, f"{source}: sweep over {key}")
        configs += of_each_seed(make_config(cell, source=_named(source, setting)))
    if sweep is not None and "training.seed" in sweep.over and len(configs) > count_runs(sweep):
        raise ConfigError(f"{source}: training.seeds is set and the sweep is over training.seed; keep one of the two")
    return configs


def of_each_seed(config: RunConfig) -> list[RunConfig]:
    """The config once for each of its `training.seeds`, or by itself when it has none; none of them has seeds."""
    training = config.training
    several = [training.model_copy(update={"seeds": (), "seed": seed}) for seed in training.seeds]
    return [config.model_copy(update={"training": one}) for one in several] or [config]


def read_sweep(
    path: Path | str, overrides: Sequence[str] = (), over: Sequence[str] = (), *, random: int | None = None
) -> tuple[dict[str, Any], SweepConfig | None]:
    """Read a config file and its `[sweep]` section; over: more keys, as in `loss.temperature=0.05,0.1`.

    random: how many combinations are drawn, instead of what the file says. Returns the plain values that all runs share
    and the sweep; None where neither the file nor `over` names one. Raises as `read_config` does.
    """
    values = read_values(path, overrides)
    section = values.pop("sweep", None)
    if section is None and not over:
        if random is not None:
            raise ConfigError(f"--random {random}: there is nothing to draw from; name keys and values with --over")
        return values, None
    given = list(map(_parsed, over))
    for key, times in Counter(key for key, _ in given).items():
        if times > 1:
            raise ConfigError(f"--over {key} is given {times} times; list all its values in one")
    section = dict(section) if isinstance(section, dict) else {"over": {} if section is None else section}
    section |= {} if random is None else {"method": "random", "runs": random}
    listed = section.get("over", {})
    if not isinstance(listed, Mapping):
        raise ConfigError(f"{path}: sweep: over is {listed!r}; write [sweep.over] with a list of values for each key")
    try:
        in_file = _flattened(listed)
    except ValueError as error:
        raise ConfigError(f"{path}: sweep: {error}") from None
    folder = Path(path).resolve().parent
    named = {key: _resolved(key, found, folder) for key, found in in_file.items()}
    section["over"] = named | {key: _resolved(key, found, Path.cwd()) for key, found in given}
    return values, make_sweep(section, source=f"{path}: sweep")


def make_sweep(values: Mapping[str, Any], *, source: str = "sweep") -> SweepConfig:
    """Check plain values and return the sweep. Raises ConfigError as `make_config` does."""
    try:
        return SweepConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, SweepConfig)}") from None


def _flattened(values: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, ...]]:
    """`{"loss": {"mu": [1]}}` and `{"loss.mu": [1]}` alike as `{"loss.mu": (1,)}`. Raises ValueError for no list."""
    flat: dict[str, tuple[Any, ...]] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{path}{key}.")
        elif isinstance(value, list | tuple):
            flat[f"{path}{key}"] = tuple(value)
        else:
            raise ValueError(f"over.{path}{key} is {value!r}; give a list of values")
    return flat


def _parsed(text: str) -> tuple[str, tuple[Any, ...]]:
    key, separator, listed = text.partition("=")
    if not separator or not listed.strip():
        raise ConfigError(f"--over {text}: write it as section.key=value,value, such as loss.temperature=0.05,0.1")
    try:
        return key.strip(), tuple(tomllib.loads(f"value = [{listed}]")["value"])
    except tomllib.TOMLDecodeError:  # bare words are strings
        return key.strip(), tuple(_value(word.strip()) for word in listed.split(","))


def _value(word: str) -> Any:
    try:
        return tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:
        return word


def _resolved(key: str, values: Sequence[Any], folder: Path) -> tuple[Any, ...]:
    section, _, name = key.partition(".")
    found = [{section: {name: copy.deepcopy(value)}} for value in values]
    for one in found:
        resolve_paths(one, folder)
    return tuple(one[section][name] for one in found)


def _drawn(cells: int, number: int, generator: random.Random) -> list[int]:
    """Different numbers below `cells` in the order drawn."""
    drawn: dict[int, None] = {}
    while len(drawn) < number:
        drawn.setdefault(generator.randrange(cells))
    return list(drawn)


def _cell(over: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    cell = {}
    for key, values in reversed(list(over.items())):
        number, place = divmod(number, len(values))
        cell[key] = values[place]
    return {key: cell[key] for key in over}


def _named(source: str, setting: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key} = {value!r}" for key, value in setting.items())
    return f"{source} with {told}" if told else source

"""The settings that a comparison is about: the runs that were chosen, those that differ in their seed alone as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from bsc_core.figures.intervals import UNTRAINED
from bsc_core.figures.parallel import words
from bsc_core.runs import Run
from pages.ui import run_data, store

if TYPE_CHECKING:
    from bsc_core.comparison import When
    from bsc_core.evaluation import Comparison, Interval
    from bsc_core.evaluation.changes import Changes
    from bsc_core.evaluation.measured import Measured

BEFORE = "untrained"
UNTOLD = frozenset({"name", "training.seed", "training.seeds"})
MOST_NAMED = 2  # settings in a name
MOST_LETTERS = 28


@dataclass(frozen=True)
class Setting:
    """Runs that are compared as one: the seeds of one setting, or the encoder they started from.

    key: unique and fit for a URL; name: unique among the settings that are compared.
    """

    key: str
    name: str
    runs: tuple[Run, ...]
    when: When = "after"

    @property
    def seeds(self) -> str:
        """`3 seeds`; empty for one run."""
        return theme.many(len(self.runs), "seed") if len(self.runs) > 1 else ""

    def stamp(self, split: str) -> tuple[str, ...]:
        """What changes when one of its runs is measured anew."""
        times = [run.folder / "evaluation" / f"{self.when}.json" for run in self.runs]
        told = [str(path.stat().st_mtime_ns) if path.exists() else "none" for path in times]
        return (split, self.when, *(str(run.folder) for run in self.runs), *told)


def settings_of(runs: Sequence[Run], *, together: bool = True) -> list[Setting]:
    """The settings of these runs in their order. together: runs that differ in their seed alone are one."""
    flat = {run.id: flatten(run.config().model_dump(mode="json")) for run in runs}
    groups: dict[str, list[Run]] = {}
    for run in runs:
        told = repr([(key, value) for key, value in flat[run.id].items() if key not in UNTOLD])
        groups.setdefault(told if together else run.id, []).append(run)
    members = list(groups.values())
    names = _names([flat[group[0].id] for group in members], [short_name(group[0]) for group in members])
    return [
        Setting(group[0].id, f"{name} · {len(group)} seeds" if len(group) > 1 else name, tuple(group))
        for group, name in zip(members, names, strict=True)
    ]


def untrained(settings: Sequence[Setting]) -> Setting:
    """The encoder that the runs of the first setting started from."""
    return Setting(BEFORE, UNTRAINED, settings[0].runs, "before")


def untrained_and_trained(run: Run) -> tuple[Setting, Setting]:
    """One run before and after training."""
    return Setting(BEFORE, UNTRAINED, (run,), "before"), Setting(run.id, short_name(run), (run,))


def _names(configs: Sequence[Mapping[str, Any]], otherwise: Sequence[str]) -> list[str]:
    """What differs, such as `temperature 0.05`, where that is short and tells them apart; else the runs' names."""
    keys = dict.fromkeys(key for config in configs for key in config if key not in UNTOLD)
    different = [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]
    if not 0 < len(different) <= MOST_NAMED:
        return list(otherwise)
    names = [
        ", ".join(f"{_noun(key)} {theme.short(words(config.get(key)), MOST_LETTERS)}" for key in different)
        for config in configs
    ]
    return names if max(Counter(names).values()) == 1 else list(otherwise)


def _noun(key: str) -> str:
    """`temperature` of `loss.temperature`, `loss` of `loss.name`."""
    return key.removesuffix(".name").rpartition(".")[2]


def short_name(run: Run) -> str:
    """A run's name, else its id without the time, and in both the end of the id, which no other run shares."""
    config = run.config()
    return f"{config.name} · {run.id[-4:]}" if config.name else store.short_id(run.id)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted names: {"loss": {"temperature": 0.1}} -> {"loss.temperature": 0.1}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def measured(setting: Setting, split: str) -> tuple[Measured, ...]:
    """What each run of a setting was measured to be; kept for all sessions. Raises as `run_measured` does."""
    return _measured(setting.stamp(split), setting, split)


@st.cache_resource(max_entries=64, show_spinner=False)
def _measured(stamp: tuple[str, ...], _setting: Setting, split: str) -> tuple[Measured, ...]:
    from bsc_core.comparison import run_measured

    found = []
    for run in _setting.runs:
        keeps = ((run.read_json("evaluation/measured") or {}).get(_setting.when) or {}).get(split)
        data = None if keeps else run_data.rows_of(run)
        found.append(run_measured(run, split, when=_setting.when, data=data))
    return tuple(found)


def interval(setting: Setting, split: str, metric: str) -> Interval | None:
    """A metric of a setting with its interval over seeds and queries; None where it is not defined."""
    if len(setting.runs) == 1:
        return _own_intervals(setting.stamp(split), setting, split).get(metric)
    found = measured(setting, split)
    if any(one.metrics.get(metric) is None for one in found):
        return None
    return _interval(setting.stamp(split), metric, found)


@st.cache_resource(max_entries=256, show_spinner="Drawing intervals …")
def _own_intervals(stamp: tuple[str, ...], _setting: Setting, split: str) -> dict[str, Interval]:
    from bsc_core.comparison import metric_intervals

    (run,) = _setting.runs
    kept = ((run.read_json("evaluation/intervals") or {}).get(_setting.when) or {}).get(split)
    return metric_intervals(run, split, when=_setting.when, data=None if kept else run_data.rows_of(run))


@st.cache_resource(max_entries=512, show_spinner="Drawing intervals …")
def _interval(stamp: tuple[str, ...], metric: str, _found: tuple[Measured, ...]) -> Interval:
    from bsc_core.comparison import setting_interval

    return setting_interval(_found, metric)


def compared(first: Setting, second: Setting, split: str, metric: str) -> Comparison | str:
    """What the second has over the first; one sentence where that cannot be told."""
    try:
        sides = measured(first, split), measured(second, split)
        return _compared(first.stamp(split), second.stamp(split), metric, sides)
    except BscError as fault:
        return str(fault)


@st.cache_resource(max_entries=1024, show_spinner="Asking whether the differences are differences …")
def _compared(
    first: tuple[str, ...],
    second: tuple[str, ...],
    metric: str,
    _sides: tuple[tuple[Measured, ...], tuple[Measured, ...]],
) -> Comparison:
    from bsc_core.comparison import compare_measured

    return compare_measured(*_sides, metric)


def changed(first: Setting, second: Setting, split: str, metric: str) -> Changes:
    """The queries or pairs behind a difference. Raises DataError where the two cannot be compared."""
    from bsc_core.comparison import check_same
    from bsc_core.evaluation.changes import changes

    sides = measured(first, split), measured(second, split)
    check_same([*sides[0], *sides[1]])
    return changes(*sides, metric)

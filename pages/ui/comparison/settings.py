"""Settings to compare, the controls that select them, and their cached metrics and tests.

A setting is a run, or several runs that differ only in their seed. The URL stores every selection.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from bsc_core import formatting
from bsc_core.config import flatten
from bsc_core.errors import BscError
from bsc_core.evaluation import Comparison, Interval
from bsc_core.evaluation.comparison import (
    QueryDifferences,
    check_same_data,
    compare_results,
    query_differences,
    setting_interval,
)
from bsc_core.evaluation.evaluator import EvalResult
from bsc_core.figures import theme
from bsc_core.figures.runs.intervals import UNTRAINED
from bsc_core.figures.runs.parallel import format_value
from bsc_core.run_results import When, load_results, metrics_by_dimension, run_intervals
from bsc_core.runs import Run
from bsc_core.runs.documents import EVALUATION_SIZES, INTERVALS
from bsc_core.runs.ids import id_code, short_id
from bsc_core.runs.store import without_resumed
from pages.ui.components import config_form, data_cache, display, glossary, run_data, turns, url, users
from pages.ui.runs import table

UNTRAINED_KEY = "untrained"
SEED = "training.seed"
IGNORED_KEYS = frozenset({"name", SEED, "training.seeds"})
MAX_KEYS_IN_NAME = 2
MAX_COLORED = 200  # runs whose colors a setting avoids
MIN_DIMENSIONS = 8  # of truncated vectors
MAX_VALUE_LENGTH = 28
METRIC, SPLIT, AGAINST, SEEDS = "metric", "split", "against", "seeds"  # query parameters
SEED_MODES = {"together": "as one setting", "apart": "as separate runs"}


@dataclass(frozen=True)
class Setting:
    """Runs that are compared as one: the seeds of one setting, or the encoder they started from."""

    key: str  # unique, and valid in a URL
    name: str  # unique among the compared settings
    runs: tuple[Run, ...]
    when: When = "after"  # whether the metrics are those after or before training

    def is_evaluated(self, split: str) -> bool:
        """Whether every run has metrics of this split; after training, it must have ended.

        A run that resumes another one begins with a copy of its evaluation.
        """
        ended = self.when == "before" or all(run.status().is_finished for run in self.runs)
        return ended and all(split in run.evaluation(self.when) for run in self.runs)

    @property
    def cache_key(self) -> tuple[str, ...]:
        """Key that changes when one of the runs is evaluated again."""
        stamps = [str(run_data.evaluation_stamps(run, self.when)) for run in self.runs]
        return (self.when, *(str(run.folder) for run in self.runs), *stamps)


CACHE_KEY = {Setting: lambda setting: setting.cache_key}


@dataclass(frozen=True)
class ComparisonView:
    """Selection of a comparison."""

    settings: list[Setting]
    base: Setting  # what the others are compared against: one of the settings, or the untrained encoder
    untrained: Setting  # the untrained encoder of the first setting
    split: str
    metric: str | None  # None before any evaluation
    metrics: list[str]  # all metrics of the split
    separate_seeds: bool = False  # whether runs that differ only in their seed are separate settings

    @property
    def url_parameters(self) -> list[tuple[str, str]]:
        """The selection as the URL stores it."""
        seeds = [(SEEDS, SEED_MODES["apart"])] if self.separate_seeds else []
        metric = [(METRIC, formatting.metric_name(self.metric))] if self.metric else []
        return [*seeds, (AGAINST, self.base.name), (SPLIT, self.split), *metric]

    @property
    def others(self) -> list[Setting]:
        """The evaluated settings other than the base."""
        return [one for one in self.settings if one.key != self.base.key and one.is_evaluated(self.split)]

    def colors(self, settings: Sequence[Setting]) -> list[str]:
        """Return the color of each setting: that of its run, gray for the untrained encoder.

        A setting of several runs has a color that no run has, else one that no run of the figure has, else that of its
        first run.
        """
        first = run_data.run_colors([one.runs[0].id for one in self.settings])
        every = run_data.run_colors([run.id for one in self.settings for run in one.runs])
        others = run_data.colors_alone([run.id for run in data_cache.run_store().list()[:MAX_COLORED]])
        unused = [color for color in theme.RUNS if color not in {*first, *every}]
        free = iter(sorted(unused, key=others.count))
        by_key = {
            one.key: color if len(one.runs) == 1 else next(free, color)
            for one, color in zip(self.settings, first, strict=True)
        }
        return [by_key.get(one.key, theme.REFERENCE) for one in settings]

    @property
    def evaluated(self) -> list[Setting]:
        """All evaluated settings, the untrained encoder first."""
        return [one for one in (self.untrained, *self.settings) if one.is_evaluated(self.split)]


def select_view(runs: list[Run]) -> ComparisonView:
    """Draw the controls and return the selection."""
    several_seeds = len(group_by_setting(runs)) < len(runs)
    cells = iter(display.columns(4 if several_seeds else 3, min_width=170))
    merge_seeds = True
    if several_seeds:
        about = (
            "Runs that differ only in their seed can count as one setting, with an interval over seeds and queries. Of "
            "several runs with one setting and seed, the first is used; a resumed run replaces the one it resumes."
        )
        with next(cells):
            merge_seeds = select("Seeds", SEED_MODES, SEEDS, about) != "apart"
    settings = group_by_setting(runs, merge_seeds=merge_seeds)
    counted = {run.id for one in settings for run in one.runs}
    if left_out := [short_name(run) for run in runs if run.id not in counted]:
        reason = "the settings and the seed of another run, or are continued by it"
        st.caption(display.escaped(f"Left out, since they have {reason}: {', '.join(left_out)}."))
    untrained = Setting(UNTRAINED_KEY, UNTRAINED, settings[0].runs, "before")
    first, *others = (one.runs[0].config().encoder.name for one in settings)
    if any(name != first for name in others):
        about = f"{users.without_folders(first)}, from which {settings[0].name} started"
        st.caption(display.escaped(f"The runs started from different encoders. {UNTRAINED}: {about}."))
    with next(cells):  # against the first setting by default, unless it is the only one
        bases = {one.key: one for one in ([*settings, untrained] if len(settings) > 1 else [untrained])}
        base = bases[select("Baseline", {key: one.name for key, one in bases.items()}, AGAINST)]
    with next(cells):
        evaluated = {split for run in runs for split in run.evaluation("before")} or {"dev"}
        split = select("Split", {name: name for name in ("dev", "test") if name in evaluated}, SPLIT)
    metrics = _metrics(settings, split)
    with next(cells):
        metric = _select_metric(runs, metrics)
    return ComparisonView(settings, base, untrained, split, metric, metrics, separate_seeds=not merge_seeds)


def select(label: str, names: Mapping[str, str], key: str, about: str | None = None) -> str:
    """Draw a select box stored in the URL; an unknown value in the URL is replaced by the first option.

    Args:
        label: Label of the select box.
        names: Display name of each option.
        key: Session key, which is also the name of the URL parameter.
        about: Help text.

    Returns:
        The selected option.
    """
    if st.session_state.get(key) not in names:
        st.session_state.pop(key, None)
    else:
        st.session_state[key] = st.session_state[key]  # the browser would keep the previous name of the option
    bound = url.bound(key, names.values())
    selected = st.selectbox(label, list(names), format_func=lambda one: names.get(one, one), help=about, **bound)
    return selected if selected in names else next(iter(names))


def _select_metric(runs: Sequence[Run], metrics: list[str]) -> str | None:
    if not metrics:
        st.selectbox("Metric", ["not evaluated yet"], disabled=True, key="runs.compare.none")
        return None
    default = next((run.status().metric_name for run in runs if run.status().metric_name in metrics), metrics[0])
    options = [default, *(name for name in metrics if name != default)]
    current = st.session_state.get(METRIC)
    about = glossary.metric_help(current if current in options else options[0]) or None
    return select("Metric", {name: formatting.metric_name(name) for name in options}, METRIC, about)


def _metrics(settings: Sequence[Setting], split: str) -> list[str]:
    """Return the metrics of any setting, the main ones first."""
    names: dict[str, None] = {}
    for setting in settings:
        results = setting.runs[0].evaluation("after") or setting.runs[0].evaluation("before")
        names |= dict.fromkeys(name for name, value in (results.get(split) or {}).items() if value is not None)
    return sorted((name for name in names if name not in table.NOT_METRICS), key=table.metric_order)


def group_by_setting(runs: Sequence[Run], *, merge_seeds: bool = True) -> list[Setting]:
    """Group runs into settings, in order; without `merge_seeds` every run is a setting.

    Of several runs with one setting and one seed, a merged setting has the first: a copy is no further seed. A run that
    another one resumes is left out.
    """
    if merge_seeds:
        runs = without_resumed(runs)
    configs = {run.id: flatten(run.config()) for run in runs}
    groups: dict[str, dict[Any, Run]] = {}
    for run in runs:
        values = repr([(key, value) for key, value in configs[run.id].items() if key not in IGNORED_KEYS])
        by_seed = groups.setdefault(values if merge_seeds else run.id, {})
        by_seed.setdefault(configs[run.id][SEED], run)
    members = [sorted(by_seed.values(), key=lambda run: run.id) for by_seed in groups.values()]
    run_names = [short_name(group[0], several=len(group) > 1) for group in members]
    if len(set(run_names)) < len(run_names):
        run_names = [group[0].id for group in members]
    ignored = IGNORED_KEYS if merge_seeds else IGNORED_KEYS - {SEED}
    names = _names([configs[group[0].id] for group in members], run_names, ignored)
    return [
        Setting(group[0].id, f"{name} · {len(group)} seeds" if len(group) > 1 else name, tuple(group))
        for group, name in zip(members, names, strict=True)
    ]


def untrained_and_trained(run: Run) -> tuple[Setting, Setting]:
    """Return one run before and after training."""
    return Setting(UNTRAINED_KEY, UNTRAINED, (run,), "before"), Setting(run.id, short_name(run), (run,))


def _names(configs: Sequence[Mapping[str, Any]], run_names: Sequence[str], ignored: Collection[str]) -> list[str]:
    """Name settings by what differs, such as `temperature 0.05`, if that is short and unique; else by their runs."""
    keys = dict.fromkeys(key for config in configs for key in config if key not in ignored)
    different = [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]
    if not 0 < len(different) <= MAX_KEYS_IN_NAME:
        return list(run_names)
    short = {key: key.removesuffix(".name").rpartition(".")[2] for key in different}  # `loss` for `loss.name`
    names = [", ".join(_described(key, name, config.get(key)) for key, name in short.items()) for config in configs]
    return names if max(Counter(names).values()) == 1 else list(run_names)


def _described(key: str, name: str, value: Any) -> str:
    """Return `temperature 0.05`; of the path of decisions, only whether there is one."""
    if key == "data.false_negatives":
        return "with decisions" if value else "without decisions"
    text = users.without_folders(format_value(config_form.value_title(key, value)))
    return f"{name} {formatting.shorten(text, MAX_VALUE_LENGTH)}"


def short_name(run: Run, *, several: bool = False) -> str:
    """Return a run's name and the code of its id, or its id without the date if it has no name.

    `several`: name all seeds of its setting, without the number of this run in its group.
    """
    config, code = run.config(), id_code(run.id)
    return f"{config.name} · {code.partition('-')[0] if several else code}" if config.name else short_id(run.id)


@turns.cached(max_entries=64, show_spinner=False, hash_funcs=CACHE_KEY)
def eval_results(setting: Setting, split: str) -> tuple[EvalResult, ...]:
    """Return the evaluation of each run of a setting, cached across sessions. Raises as `load_results` does."""
    results = []
    for run in setting.runs:
        stored = ((run.read_json(EVALUATION_SIZES) or {}).get(setting.when) or {}).get(split)
        data = None if stored else run_data.load_splits(run)
        results.append(load_results(run, split, when=setting.when, data=data))
    return tuple(results)


def metric_interval(setting: Setting, split: str, metric: str) -> Interval | None:
    """Return a metric with its interval over seeds and queries; None if the metric is not defined."""
    if len(setting.runs) == 1:
        return _run_intervals(setting, split).get(metric)
    results = eval_results(setting, split)
    if any(one.metrics.get(metric) is None for one in results):
        return None
    return _setting_interval(setting, split, metric, results)


@turns.cached(max_entries=256, show_spinner="Computing intervals …", hash_funcs=CACHE_KEY)
def _run_intervals(setting: Setting, split: str) -> dict[str, Interval]:
    (run,) = setting.runs
    stored = ((run.read_json(INTERVALS) or {}).get(setting.when) or {}).get(split)
    return run_intervals(run, split, when=setting.when, data=None if stored else run_data.load_splits(run))


@turns.cached(max_entries=512, show_spinner="Computing intervals …", hash_funcs=CACHE_KEY)
def _setting_interval(setting: Setting, split: str, metric: str, _results: tuple[EvalResult, ...]) -> Interval:
    return setting_interval(_results, metric)


def by_dimension(setting: Setting, split: str, metric: str) -> list[dict[int, float]]:
    """Return the metric of each run's vectors truncated to half, a quarter, ... of their dimensions."""
    return [
        {one: value for one, metrics in run_metrics.items() if (value := metrics.get(metric)) is not None}
        for run_metrics in _by_dimension(setting, split)
    ]


@turns.cached(max_entries=64, show_spinner="Evaluating truncated vectors …", hash_funcs=CACHE_KEY)
def _by_dimension(setting: Setting, split: str) -> list[dict[int, dict[str, float | None]]]:
    results = []
    for run in setting.runs:
        vectors, requested = run.embeddings(setting.when), run.config().loss.matryoshka_dims
        width = 0 if vectors is None else vectors.shape[1]
        halved = [width >> power for power in range(5) if width >> power >= MIN_DIMENSIONS]
        data = run_data.load_splits(run)
        results.append(metrics_by_dimension(run, [*halved, *requested], split, when=setting.when, data=data))
    return results


def compare_settings(first: Setting, second: Setting, split: str, metric: str) -> Comparison | str:
    """Compare the second setting with the first; return the reason as a sentence if that is not possible.

    Resampling depends on the order of the two, so they are sorted: a difference has the same interval everywhere.
    """
    if second.key < first.key:
        result = compare_settings(second, first, split, metric)
        return result if isinstance(result, str) else result.mirrored()
    try:
        return _compare(first, second, split, metric, (eval_results(first, split), eval_results(second, split)))
    except BscError as error:
        return users.without_paths(str(error))


@turns.cached(max_entries=1024, show_spinner="Testing differences …", hash_funcs=CACHE_KEY)
def _compare(
    first: Setting, second: Setting, split: str, metric: str, _results: tuple[tuple[EvalResult, ...], ...]
) -> Comparison:
    return compare_results(*_results, metric)


def query_changes(first: Setting, second: Setting, split: str, metric: str) -> QueryDifferences:
    """Return the queries or pairs behind a difference.

    Raises:
        DataError: The settings are not comparable.
    """
    sides = eval_results(first, split), eval_results(second, split)
    check_same_data([*sides[0], *sides[1]])
    return query_differences(*sides, metric)

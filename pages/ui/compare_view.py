"""What a comparison looks at: its settings, which of them the others are held against, the split and the metric.

All of it stands in the URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from bsc_core.runs import Run
from pages.ui import compared, run_list, show, words
from pages.ui.compared import Setting

METRIC, SPLIT, AGAINST, SEEDS = "metric", "split", "against", "seeds"
TOGETHER = {"together": "as one setting", "apart": "as runs of their own"}


@dataclass(frozen=True)
class View:
    """settings: as they were chosen; base: what the others are held against, one of them or the untrained encoder;
    before: the untrained encoder of the first. metric: None while nothing is measured. apart: whether runs that differ
    in their seed alone are settings of their own."""

    settings: list[Setting]
    base: Setting
    before: Setting
    split: str
    metric: str | None
    metrics: list[str]
    apart: bool = False

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The choices as they stand in the URL."""
        seeds = [(SEEDS, TOGETHER["apart"])] if self.apart else []
        metric = [(METRIC, self.metric)] if self.metric else []
        return [*seeds, (AGAINST, self.base.name), (SPLIT, self.split), *metric]

    @property
    def others(self) -> list[Setting]:
        """The settings that are held against the base, those that have been measured."""
        return [one for one in self.settings if one.key != self.base.key and is_measured(one, self.split)]

    @property
    def shown(self) -> list[Setting]:
        """Everything that has numbers, the untrained encoder first."""
        return [one for one in (self.before, *self.settings) if is_measured(one, self.split)]


def choose(runs: list[Run]) -> View:
    """Draw the controls and return what is chosen."""
    several = len(compared.settings_of(runs)) < len(runs)
    columns = iter(show.columns(4 if several else 3, least=170))
    together = True
    if several:
        with next(columns):
            told = "Runs that differ in their seed alone count as one setting, with an interval over seeds and queries"
            picked = st.selectbox(
                "Seeds", list(TOGETHER), format_func=TOGETHER.__getitem__, key=SEEDS, bind="query-params", help=told
            )
            together = picked != "apart"
    settings = compared.settings_of(runs, together=together)
    before = compared.untrained(settings)
    with next(columns):
        base = _base(settings, before)
    splits = _splits(runs)
    with next(columns):
        split = _one_of("Measured on", splits, SPLIT)
    metrics = _metrics(settings, split)
    with next(columns):
        metric = _metric(runs, metrics)
    return View(settings, base, before, split, metric, metrics, apart=not together)


def _base(settings: list[Setting], before: Setting) -> Setting:
    """What the others are held against: the first setting, unless it stands alone."""
    offered = {one.key: one for one in ([*settings, before] if len(settings) > 1 else [before])}
    key = _one_of("Compare against", list(offered), AGAINST, {key: one.name for key, one in offered.items()})
    return offered[key]


def _one_of(label: str, options: list[str], key: str, names: dict[str, str] | None = None) -> str:
    """A select box in the URL; what the URL asks for and is not offered gives way to the first."""
    if st.session_state.get(key) not in options:
        st.session_state.pop(key, None)
    told = (names or {}).get
    chosen = st.selectbox(
        label, options, format_func=lambda one: told(one, one) or one, key=key, bind="query-params", help=None
    )
    return chosen if chosen in options else options[0]


def _metric(runs: Sequence[Run], metrics: list[str]) -> str | None:
    if not metrics:
        st.selectbox("By metric", ["not measured yet"], disabled=True, key="runs.compare.none")
        return None
    own = next((run.status().metric_name for run in runs if run.status().metric_name in metrics), metrics[0])
    ordered = [own, *(name for name in metrics if name != own)]
    chosen = st.session_state.get(METRIC, own)
    if chosen not in ordered:
        st.session_state.pop(METRIC, None)
        chosen = own
    help_text = words.metric_help(chosen or "") or None
    picked = st.selectbox("By metric", ordered, key=METRIC, bind="query-params", help=help_text)
    return picked if picked in ordered else own


def _splits(runs: Sequence[Run]) -> list[str]:
    """The splits that a run has measured, dev first."""
    found = {split for run in runs for split in run.read_json("evaluation/before") or {}}
    return [split for split in ("dev", "test") if split in found] or ["dev"]


def _metrics(settings: Sequence[Setting], split: str) -> list[str]:
    """What was measured of any of them, the metrics that runs are compared by first."""
    found: dict[str, None] = {}
    for setting in settings:
        measured = setting.runs[0].read_json("evaluation/after") or setting.runs[0].read_json("evaluation/before") or {}
        values = measured.get(split) or {}
        found |= dict.fromkeys(name for name, value in values.items() if value is not None)
    return sorted((name for name in found if name not in run_list.COUNTS), key=run_list.metric_place)


def is_measured(setting: Setting, split: str) -> bool:
    """Whether every run of a setting has its metrics of this split."""
    return all(split in (run.read_json(f"evaluation/{setting.when}") or {}) for run in setting.runs)

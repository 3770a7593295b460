"""Metrics with their intervals beside each other, and in words whether a difference is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import intervals, theme
from pages.ui import compared, show
from pages.ui.compare_view import View, is_measured
from pages.ui.compared import Setting

if TYPE_CHECKING:
    from bsc_core.evaluation import Comparison, Interval

CHIEF = ("mrr", "map", "has_positive@1", "has_positive@10", "ndcg@10", "recall@10")
CHIEF += ("spearman", "pearson", "auc", "average_precision", "f1", "best_accuracy")
ALPHA = 0.05
NOT_COMPARED = "not compared"
BY_QUERY = "Better / worse / equal"
ABOUT_BY_QUERY = "Queries on which it is better, worse and equal; metrics of all pairs together have none."


def verdict(view: View) -> None:
    """The picture: the chosen metric of every setting with its interval, and what can be said of the differences."""
    if view.metric is None or not view.others:
        st.caption(_awaited(view))
        return
    rows, told = [], verdicts(view, view.metric)
    for setting in view.shown:
        found = interval(setting, view.split, view.metric)
        if found is not None:
            rows.append((setting.name, found.value, found.low, found.high, told.get(setting.key, "the base")))
    table = intervals.intervals_table(rows)
    picture = intervals.intervals_figure(table, title=headline(view, told), metric=f"{view.metric} ({view.split})")
    alt = f"{view.metric} of {len(rows)} settings with 95% intervals"
    show.figure(picture, alt=alt, name=f"compare.intervals.{view.metric}", data=table)
    for setting in view.others:
        st.caption(f"**{setting.name}** against {view.base.name}: {told[setting.key]}")


def _awaited(view: View) -> str:
    """Why nothing is held against the base yet."""
    missing = [one.name for one in view.settings if not is_measured(one, view.split)]
    return f"The metrics stand here, with their intervals, when {' and '.join(missing)} has been measured."


def headline(view: View, told: dict[str, str]) -> str:
    """What the picture shows, as a sentence."""
    metric, base = f"{view.metric} on {view.split}", view.base.name
    apart = [key for key, words in told.items() if words.startswith(NOT_COMPARED)]
    if len(apart) == len(told):
        return f"{metric}: measured on other data than {base}, so no difference can be told"
    if len(told) > 1:
        differ = sum(words.startswith("yes") for words in told.values())
        return f"{metric}: {differ} of {len(told)} settings differ from {base}"
    (other,) = view.others
    if not told[other.key].startswith("yes"):
        return f"{metric}: {other.name} cannot be told from {base}"
    how = "better" if told[other.key].startswith("yes, better") else "worse"
    return f"{metric}: {other.name} is {how} than {base}"


def verdicts(view: View, metric: str) -> dict[str, str]:
    """For each of the others, by its key, whether it differs from the base by a metric, in words.

    Where several are held against the base, their p are corrected for it (Holm).
    """
    from bsc_core.evaluation import holm

    found = {one.key: compared.compared(view.base, one, view.split, metric) for one in view.others}
    tested = {key: one.p for key, one in found.items() if not isinstance(one, str) and one.p is not None}
    raised = dict(zip(tested, holm(list(tested.values())), strict=True)) if len(found) > 1 else tested
    return {key: answer(one, p=raised.get(key), corrected=len(tested) > 1) for key, one in found.items()}


def answer(found: Comparison | str, *, p: float | None = None, corrected: bool = False) -> str:
    """Whether a difference is one: `yes, better by +0.041 [0.012, 0.070] (p = 0.003)`. p: corrected, else its own."""
    if isinstance(found, str):
        return f"{NOT_COMPARED}: {found.removeprefix('comparison: ')}"
    if found.p is None:
        return "one query: nothing can be told" if found.queries < 2 else "no difference at all"
    chance = found.p if p is None else p
    told = f"{'p < 0.001' if chance < 0.001 else f'p = {chance:.3g}'}{', corrected' if corrected else ''}"
    change = difference(found.difference)
    if not found.is_difference or chance >= ALPHA:
        return f"cannot be told from chance: {change} ({told})"
    return f"yes, {'better' if found.difference.value > 0 else 'worse'}: {change} ({told})"


def difference(found: Interval) -> str:
    """`+0.041 [+0.012, +0.070]`."""
    if found.low is None or found.high is None:
        return theme.change(found.value)
    return f"{theme.change(found.value)} [{theme.change(found.low)}, {theme.change(found.high)}]"


def draw(view: View) -> None:
    """The table of metrics."""
    if not view.others:
        return
    st.subheader("Is this a difference?", anchor=False)
    every = st.toggle("All metrics", key="runs.compare.all")
    names = view.metrics if every else [name for name in view.metrics if name in CHIEF or name == view.metric]
    lines = table(view, names)
    st.dataframe(
        lines,
        hide_index=True,
        key="runs.compared",
        alt="Metrics of the settings, and whether they differ",
        column_config={BY_QUERY: st.column_config.TextColumn(help=ABOUT_BY_QUERY)},
    )
    show.table_download(lambda: _frame(lines), name="comparison", key="runs.compared.save")
    seeds = any(len(one.runs) > 1 for one in view.shown)
    drawn = "seeds and queries" if seeds else "queries"
    corrected = ", corrected for its several settings (Holm)" if len(view.others) > 1 else ""
    st.caption(
        f"Brackets: 95% intervals over {drawn} drawn again. Each line is a test of its own{corrected}: of twenty "
        "metrics without any difference one is expected to be called one."
    )


def table(view: View, metrics: list[str]) -> list[dict[str, str]]:
    """One line for each metric: its value of every setting, and of each but the base whether it differs from it."""
    lines = [_line(view, metric) for metric in metrics]
    if any(BY_QUERY in line for line in lines):
        lines = [{**line, BY_QUERY: line.get(BY_QUERY, "not by query")} for line in lines]
    return lines


def _line(view: View, metric: str) -> dict[str, str]:
    line, told = {"Metric": metric}, verdicts(view, metric)
    for setting in view.shown:
        line[setting.name] = value(setting, view, metric)
    for other in view.others:
        found = compared.compared(view.base, other, view.split, metric)
        label = "A difference?" if len(view.others) == 1 else f"{other.name}: a difference?"
        line[label] = NOT_COMPARED if isinstance(found, str) else told[other.key]
        if not isinstance(found, str) and found.wins is not None and len(view.others) == 1:
            line[BY_QUERY] = f"{found.wins:,} / {found.losses:,} / {found.ties:,}"
    return line


def value(setting: Setting, view: View, metric: str) -> str:
    """The metric of a setting with its interval; without one where none can be drawn."""
    found = interval(setting, view.split, metric)
    if found is not None:
        return span(found)
    measured = [(run.read_json(f"evaluation/{setting.when}") or {}).get(view.split) or {} for run in setting.runs]
    values = [one[metric] for one in measured if one.get(metric) is not None]
    return theme.metric(sum(values) / len(values)) if len(values) == len(measured) else "not measured"


def span(found: Interval) -> str:
    """`0.812 [0.790, 0.831]`; without the range where none can be drawn."""
    known = None if found.low is None or found.high is None else (found.low, found.high)
    return theme.metric(found.value, known)


def interval(setting: Setting, split: str, metric: str) -> Interval | None:
    """None where the metric is not defined, or its interval cannot be drawn any more."""
    try:
        return compared.interval(setting, split, metric)
    except BscError:
        return None


def _frame(lines: list[dict[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(lines)

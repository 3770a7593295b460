"""Metrics of settings with their intervals, and whether differences are significant."""

from collections.abc import Mapping

import streamlit as st

from bsc_core import formatting
from bsc_core.errors import BscError
from bsc_core.evaluation import Comparison, Interval, holm
from bsc_core.figures.runs import intervals
from pages.ui.comparison import settings
from pages.ui.comparison.settings import ComparisonView, Setting
from pages.ui.components import display, url

MAIN_METRICS = ("mrr", "map", "has_positive@1", "has_positive@10", "ndcg@10", "recall@10")
MAIN_METRICS += ("spearman", "pearson", "auc", "average_precision", "f1", "best_accuracy")
ALPHA = 0.05
FEW_SEEDS = 5  # with fewer, intervals over seeds are wide
NOT_COMPARED, NO_DIFFERENCE, BASELINE = "not compared", "no difference", "baseline"
SIGNIFICANT = "Significant?"
WINS = "Better / worse / equal"
ABOUT_SIGNIFICANCE = (
    f"A difference is significant if its interval excludes 0 and p is below {ALPHA:g}. These can disagree: the "
    "interval is from a bootstrap; p is from a permutation test if both have one run, and is corrected for several "
    "settings."
)
CORRECTED = "The p-values are corrected for the number of comparisons (Holm)"
ALL = "runs.compare.all"
MAX_METRICS = 100  # of a table; each is tested


def draw_intervals(view: ComparisonView) -> None:
    """Draw the metric of every setting with its interval, and the significance of each difference."""
    if view.metric is None or not view.others:
        missing = [one.name for one in view.settings if not one.is_evaluated(view.split)]
        names = display.escaped(" and ".join(missing))
        st.caption(f"Metrics with intervals appear here after the evaluation of {names}.")
        return
    rows, shown, verdicts = [], [], significances(view, view.metric)
    for setting in view.evaluated:
        interval = interval_or_none(setting, view.split, view.metric)
        if interval is not None:
            verdict = verdicts.get(setting.key, BASELINE)
            rows.append((setting.name, interval.value, interval.low, interval.high, verdict))
            shown.append(setting)
    table = intervals.intervals_table(rows)
    title, metric = headline(view, verdicts), f"{formatting.metric_name(view.metric)} ({view.split})"
    colors = view.colors([one for one in shown if one.key != settings.UNTRAINED_KEY])
    figure = intervals.intervals_figure(table, title=title, metric=metric, colors=colors)
    alt = f"{formatting.metric_name(view.metric)} of {len(rows)} settings with 95% intervals"
    display.figure(figure, alt=alt, name=f"compare.intervals.{view.metric}", data=table)
    for setting in view.others:
        st.caption(difference_sentence(display.escaped(setting.name), view, verdicts[setting.key]))
    if len(view.others) > 1:
        st.caption(f"{CORRECTED}: among many comparisons, some would otherwise appear significant by chance.")
    if others := _other_metrics(view, verdicts):
        st.caption(display.escaped(others))
    if any(_disagrees(comparison, p) for comparison, p in _comparisons(view, view.metric).values()):
        st.caption(ABOUT_SIGNIFICANCE)


def _other_metrics(view: ComparisonView, verdicts: Mapping[str, str]) -> str:
    """Return by which other main metrics settings differ significantly and otherwise than by the selected one."""
    found = []
    for metric in view.metrics:
        if metric not in MAIN_METRICS or metric == view.metric:
            continue
        by_metric = significances(view, metric)
        for setting in view.others:
            status, own = (of[setting.key].partition(": ")[0] for of in (by_metric, verdicts))
            if status.startswith("yes") and status != own:
                name = f" ({setting.name})" if len(view.others) > 1 else ""
                found.append(f"{formatting.metric_name(metric)} {status.removeprefix('yes, ')}{name}")
    return f"Significant by other metrics: {', '.join(found)}." if found else ""


def difference_sentence(name: str, view: ComparisonView, verdict: str) -> str:
    """Return how a setting differs from the base, with one colon before the numbers or the reason."""
    base = display.escaped(view.base.name)
    status, _, rest = verdict.partition(": ")
    sentences = {
        "yes, better": f"**{name}** is significantly better than {base}",
        "yes, worse": f"**{name}** is significantly worse than {base}",
        NO_DIFFERENCE: f"There is no difference between **{name}** and {base}",
        NOT_COMPARED: f"**{name}** is not compared with {base}",
    }
    sentence = sentences.get(status, f"The difference between **{name}** and {base} is {status}")
    return f"{sentence}: {display.escaped(rest)}" if rest else sentence


def headline(view: ComparisonView, verdicts: dict[str, str]) -> str:
    """Summarize the figure in one sentence."""
    metric, base = f"{formatting.metric_name(view.metric or '')} on {view.split}", view.base.name
    if all(verdict.startswith(NOT_COMPARED) for verdict in verdicts.values()):
        return f"{metric}: evaluated on other data than {base}, so differences cannot be tested"
    if len(verdicts) > 1:
        counts = {
            word: sum(one.startswith(f"yes, {word}") for one in verdicts.values()) for word in ("better", "worse")
        }
        found = [(word, count) for word, count in counts.items() if count]
        is_run = view.separate_seeds or all(len(one.runs) == 1 for one in view.settings)
        noun = "run" if is_run else "setting"
        if not found:
            return f"{metric}: no {noun} differs significantly from {base}"
        (word, number), *others = found
        rest = "".join(f" and {count} {'is' if count == 1 else 'are'} {other}" for other, count in others)
        is_or_are = "is" if number == 1 else "are"
        many = f"{number} of {len(verdicts)} {noun}s {is_or_are} significantly {word}"
        return f"{metric}: compared with {base}, {many}{rest}"
    (other,) = view.others
    verdict = verdicts[other.key]
    if not verdict.startswith("yes"):
        return f"{metric}: no significant difference between {other.name} and {base}"
    return f"{metric}: {other.name} is {'better' if verdict.startswith('yes, better') else 'worse'} than {base}"


def significances(view: ComparisonView, metric: str) -> dict[str, str]:
    """Return, by setting key, whether each other setting differs from the base; p is Holm-corrected for several."""
    comparisons = _comparisons(view, metric)
    corrected = sum(p is not None for _, p in comparisons.values()) > 1
    return {key: significance(one, p=p, corrected=corrected) for key, (one, p) in comparisons.items()}


def _comparisons(view: ComparisonView, metric: str) -> dict[str, tuple[Comparison | str, float | None]]:
    """Return, by setting key, the comparison of each other setting with the base, and its Holm-corrected p."""
    comparisons = {one.key: settings.compare_settings(view.base, one, view.split, metric) for one in view.others}
    p_values = {key: one.p for key, one in comparisons.items() if not isinstance(one, str) and one.p is not None}
    p_values = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {key: (one, p_values.get(key)) for key, one in comparisons.items()}


def _disagrees(comparison: Comparison | str, p: float | None) -> bool:
    """Whether only one of the interval and p shows a difference."""
    return not isinstance(comparison, str) and p is not None and (p < ALPHA) == comparison.difference.contains_zero


def significance(comparison: Comparison | str, *, p: float | None = None, corrected: bool = False) -> str:
    """Return a verdict: `yes, better: +0.041 [0.012, 0.070] (p = 0.003)`.

    Args:
        comparison: The comparison, or the reason why there is none.
        p: Corrected p-value; by default that of the comparison.
        corrected: Whether to say that p is corrected.
    """
    if isinstance(comparison, str):
        return f"{NOT_COMPARED}: {comparison.removeprefix('comparison: ')}"
    if comparison.p is None:
        return "not tested: one query" if comparison.queries < 2 else NO_DIFFERENCE
    p_value = comparison.p if p is None else p
    change, test = format_difference(comparison.difference), format_p(p_value) + (", corrected" if corrected else "")
    if not comparison.significant or p_value >= ALPHA:
        return f"inconclusive: {change} ({test})"
    return f"yes, {'better' if comparison.difference.value > 0 else 'worse'}: {change} ({test})"


def format_p(p: float) -> str:
    """Format a p-value: `p = 0.003`, `p < 0.001`."""
    digits = 4 if abs(p - ALPHA) < 0.005 else 2  # 0.0504 is not significant
    return "p < 0.001" if p < 0.001 else f"p = {p:.{digits}g}"


def format_difference(difference: Interval) -> str:
    """Format a difference with its interval: `+0.041 [+0.012, +0.070]`."""
    return formatting.difference(difference.value, difference.low, difference.high)


def format_interval(interval: Interval) -> str:
    """Format a metric with its interval: `0.812 [0.790, 0.831]`; without the range if there is one query."""
    return f"{formatting.metric(interval.value)} {format_range(interval)}".rstrip()


def format_range(interval: Interval) -> str:
    """Format an interval: `[0.790, 0.831]`; empty if there is one query."""
    known = interval.low is not None and interval.high is not None
    return f"[{formatting.metric(interval.low)}, {formatting.metric(interval.high)}]" if known else ""


def draw_table(view: ComparisonView) -> None:
    """Draw the metrics of all settings."""
    if not view.others:
        return
    st.header("Metrics and significance", anchor=False)
    all_metrics = st.toggle("All metrics", **url.flag(ALL))
    names = view.metrics if all_metrics else [one for one in view.metrics if one in MAIN_METRICS or one == view.metric]
    rows = table_rows(view, names[:MAX_METRICS])
    about = "Number of queries with a better, worse and equal value. Metrics over all pairs have no such counts."
    st.dataframe(
        rows,
        hide_index=True,
        key="runs.compared",
        alt="Metrics of the settings, and whether they differ",
        column_config={
            "Metric": st.column_config.TextColumn(pinned=True),
            WINS: st.column_config.TextColumn(help=about),
            "Difference": st.column_config.TextColumn(width=208),  # the first rows, which have none, set the width
            "p": st.column_config.TextColumn(width=66),
            SIGNIFICANT: st.column_config.TextColumn(help=ABOUT_SIGNIFICANCE),
        },
    )
    display.csv_button(rows, name="comparison", key="runs.compared.save")
    resampled = "seeds and queries" if any(len(one.runs) > 1 for one in view.evaluated) else "queries"
    corrected = f" {CORRECTED}, but not for the number of metrics." * (len(view.others) > 1)
    seeds = min((len(one.runs) for one in view.evaluated if len(one.runs) > 1), default=FEW_SEEDS)
    few = f" The interval of {seeds} seeds is wide; {FEW_SEEDS} or more are recommended." * (seeds < FEW_SEEDS)
    single = [one.name for one in view.evaluated if len(one.runs) == 1 and one.key != settings.UNTRAINED_KEY]
    if resampled != "queries" and single:
        few += f" With one seed, so without differences between seeds: {display.escaped(', '.join(single))}."
    st.caption(
        f"Brackets: 95% bootstrap intervals over {resampled}.{few}{corrected} Even without any "
        "true difference, about one of 20 tests appears significant by chance."
    )


def table_rows(view: ComparisonView, metrics: list[str]) -> list[dict[str, str]]:
    """Return a row per metric: the value of every setting, and whether the other one differs from the base.

    With several others, a row per metric and setting.
    """
    if len(view.others) > 1:
        return [row for metric in metrics for row in _setting_rows(view, metric)]
    rows = [_table_row(view, metric) for metric in metrics]
    if any(WINS in row for row in rows):
        rows = [{**row, WINS: row.get(WINS, "—")} for row in rows]
    return rows


def _table_row(view: ComparisonView, metric: str) -> dict[str, str]:
    row, verdicts = {"Metric": formatting.metric_name(metric)}, significances(view, metric)
    for setting in view.evaluated:
        row[setting.name] = _cell(setting, view, metric)
    for other in view.others:
        comparison = settings.compare_settings(view.base, other, view.split, metric)
        row[SIGNIFICANT] = NOT_COMPARED if isinstance(comparison, str) else verdicts[other.key]
        if not isinstance(comparison, str) and comparison.wins is not None:
            row[WINS] = f"{comparison.wins:,} / {comparison.losses:,} / {comparison.ties:,}"
    return row


def _setting_rows(view: ComparisonView, metric: str) -> list[dict[str, str]]:
    """Return a row per setting with its value, its difference from the base and the corrected p."""
    comparisons, rows = _comparisons(view, metric), []
    for setting in view.evaluated:
        comparison, p = comparisons.get(setting.key, ("", None))
        is_tested = not isinstance(comparison, str) and p is not None
        verdict = significance(comparison, p=p).partition(": ")[0] if setting.key in comparisons else ""
        rows.append(
            {
                "Metric": formatting.metric_name(metric),
                "Setting": setting.name,
                "Value": _cell(setting, view, metric),
                "Difference": format_difference(comparison.difference) if is_tested else "",
                "p": format_p(p).removeprefix("p = ").removeprefix("p ") if is_tested else "",
                SIGNIFICANT: BASELINE if setting.key == view.base.key else verdict,
            }
        )
    return rows


def _cell(setting: Setting, view: ComparisonView, metric: str) -> str:
    """Return the metric of a setting, with its interval if there is one."""
    interval = interval_or_none(setting, view.split, metric)
    if interval is not None:
        return format_interval(interval)
    results = [run.evaluation(setting.when).get(view.split) or {} for run in setting.runs]
    values = [one[metric] for one in results if one.get(metric) is not None]
    return formatting.metric(sum(values) / len(values)) if len(values) == len(results) else "not evaluated"


def interval_or_none(setting: Setting, split: str, metric: str) -> Interval | None:
    """Return a metric with its interval; None if it is not defined or can no longer be computed."""
    try:
        return settings.metric_interval(setting, split, metric)
    except BscError:
        return None

"""Comparison of strategies: hardness, group sizes, and both over the epochs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import PlanStats, plan_warnings
from bsc_core.data import PairDataset
from bsc_core.data.decisions import applied_sentence
from bsc_core.figures import theme
from bsc_core.figures.batches import plans as plan_figures
from pages.ui.batches import plans
from pages.ui.batches.plans import PlanRequest
from pages.ui.batches.source import BatchSource
from pages.ui.components import display, run_data, url

PARAMETERS = FIGURE, STATISTIC = "batches.picture", "batches.measure"
StatsByName = dict[str, PlanStats]
EPOCHS = 5
MAX_SIDE_BY_SIDE = 3  # strategies whose table fits next to the figure
MAX_EPOCH_ROWS = 60_000
"""Rows, summed over all epochs and strategies, up to which plans are built without a click on Build plans."""
CLOSER = "queries with a negative closer than the positive"
NEAREST = "median cosine of the hardest negative"
COLLISIONS = "collisions"
LIKELY = "likely false negatives in batches"
ABOUT_LIKELY = "closer to the query than its positive, or known from the data"
ABOUT_COLLISIONS = "pairs of rows in a batch with a false negative that is known from the data"
INTACT = "groups that are complete in one batch"
FACTS = {  # fact -> its label, where this is not its key
    "as_exact": "share of sampled groups as good as with exact search",
    "groups_sample": "sampled groups",
    "links_inside_share": "links inside a group",
}
EPOCH_STATISTICS: dict[str, tuple[Callable[[PlanStats], float | None], bool]] = {  # value, whether it is a share
    CLOSER: (lambda stats: stats.hardness.closer_share, True),
    NEAREST: (lambda stats: _median(stats.hardness.hardest), False),
    LIKELY: (lambda stats: float(stats.hardness.batch_likely_false_negatives.sum()), False),
    COLLISIONS: (lambda stats: float(stats.hardness.collisions), False),
    INTACT: (lambda stats: stats.hardness.intact, True),
}


def draw(source: BatchSource, pairs: PairDataset, requests: dict[str, PlanRequest], stats: StatsByName) -> None:
    """Draw the figure on the left and the same statistics as a table on the right."""
    color = _run_color(source)
    left, right = display.columns(2) if len(stats) <= MAX_SIDE_BY_SIDE else (st.container(), st.container())
    with left:
        names = ("Distribution", "Group sizes", "Over epochs")
        figure = st.segmented_control(
            "Figure", names, default=names[0], required=True, label_visibility="collapsed", **url.bound(FIGURE, names)
        )
        if figure == "Group sizes":
            _draw_group_sizes(stats, color)
        elif figure == "Over epochs":
            _draw_epochs(source, pairs, requests)
        else:
            _draw_hardness(stats, pairs, color)
    with right:
        st.table(comparison_table(stats), border="horizontal", hide_index=True, alt=summary_sentence(stats))
        for name, request in requests.items():
            for warning in plan_warnings(request.config, pairs):
                st.caption(f"{name}: {warning}.")
        if applied := applied_sentence(source.train):
            of_run = "" if source.run is None else " The run itself used the decisions that were saved when it started."
            st.caption(f"{applied}.{of_run}")


def comparison_table(stats: StatsByName) -> pd.DataFrame:
    """Return a row per statistic and a column per strategy, as formatted text."""
    has_groups = any(one.hardness.intact is not None for one in stats.values())
    lines: dict[str, Callable[[PlanStats], str]] = {
        CLOSER: lambda one: formatting.percent(one.hardness.closer_share),
        NEAREST: lambda one: formatting.metric(_median(one.hardness.hardest)),
        f"{LIKELY}: {ABOUT_LIKELY}": lambda one: formatting.count(int(one.hardness.batch_likely_false_negatives.sum())),
        f"{COLLISIONS}: {ABOUT_COLLISIONS}": _collisions,
        "groups of 2 or more rows": _groups,
        **({INTACT: lambda one: formatting.percent(one.hardness.intact, why="no groups")} if has_groups else {}),
        "batches": lambda one: formatting.count(len(one.positions)),
    }
    values = {name: [line(one) for line in lines.values()] for name, one in stats.items()}
    facts = list(dict.fromkeys(fact for one in stats.values() for fact in one.plan.facts))
    facts_by_name = {name: [_fact(fact, one.plan.facts.get(fact)) for fact in facts] for name, one in stats.items()}
    return pd.concat(
        [
            pd.DataFrame({"Statistic": list(lines), **values}),
            pd.DataFrame({"Statistic": [FACTS.get(fact, fact.replace("_", " ")) for fact in facts], **facts_by_name}),
        ],
        ignore_index=True,
    )


def _collisions(stats: PlanStats) -> str:
    number, pairs = stats.hardness.collisions, stats.crossed_pairs()
    share = f" ({formatting.percent(number / pairs)})" if number and pairs else ""
    return formatting.count(number) + share


def _groups(stats: PlanStats) -> str:
    sizes = {size: count for size, count in stats.group_sizes().items() if size >= 2}
    if not sizes:
        return "none"
    rows, groups = sum(size * count for size, count in sizes.items()), sum(sizes.values())
    return f"{formatting.count(groups)} (mean size {rows / groups:.1f})"


def _fact(name: str, value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if "recall" in name or "share" in name:
        return formatting.percent(value)
    return formatting.count(int(value)) if float(value).is_integer() else f"{value:,.4g}"


def _median(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def summary_sentence(stats: StatsByName) -> str:
    """Summarize the comparison in one sentence."""
    shares = {name: one.hardness.closer_share for name, one in stats.items()}
    parts = [f"{formatting.percent(share)} ({name})" for name, share in shares.items() if share is not None]
    if not parts:
        return "No query with a positive pair has a negative in its batch, so hardness is not defined."
    return f"Queries whose hardest negative is closer than the positive: {', '.join(parts)}."


def _run_color(source: BatchSource) -> str:
    return theme.RUNS[0] if source.run is None else run_data.run_colors([source.run.id])[0]


def _draw_hardness(stats: StatsByName, pairs: PairDataset, run_color: str) -> None:
    """Draw the distribution of the hardest negatives of each strategy, and that of the positives."""
    positive = {name: pairs.positive[one.plan.order] for name, one in stats.items()}
    hardest = {name: one.hardness.hardest[positive[name]] for name, one in stats.items()}
    first = next(iter(stats))
    table = plan_figures.hardness_table(hardest, stats[first].hardness.pair_similarity[positive[first]])
    figure = plan_figures.hardness_figure(table, run_color=run_color)
    display.figure(figure, name="hardness", alt=summary_sentence(stats), data=table)


def _draw_group_sizes(stats: StatsByName, run_color: str) -> None:
    table = plan_figures.group_size_table({name: one.group_sizes() for name, one in stats.items()})
    alt = f"Number and mean size of groups: {', '.join(f'{name}: {_groups(one)}' for name, one in stats.items())}"
    display.figure(plan_figures.group_size_figure(table, run_color=run_color), name="group-sizes", alt=alt, data=table)


def _draw_epochs(source: BatchSource, pairs: PairDataset, requests: dict[str, PlanRequest]) -> None:
    """Draw a line per strategy over the epochs; for a run's saved plans one line per model of the run.

    Above MAX_EPOCH_ROWS rows the plans are built on request.
    """
    bound = url.bound(STATISTIC, EPOCH_STATISTICS)
    statistic = st.selectbox("Statistic", list(EPOCH_STATISTICS), label_visibility="collapsed", **bound)
    number, requested = len(source.saved_plans()) or EPOCHS, "batches.epochs_requested"
    rows = number * len(pairs) * len(requests)
    if rows > MAX_EPOCH_ROWS and not st.session_state.get(requested):
        epochs = f"{formatting.plural(number, 'epoch')} of {formatting.plural(len(requests), 'strategy', 'strategies')}"
        st.caption(f"The plans of {epochs} are not built yet.")
        st.button("Build plans", key="batches.build_epochs", on_click=st.session_state.update, kwargs={requested: True})
        return
    by_name = _epoch_stats(source, pairs, requests, number)
    if not by_name:
        return
    value, percent = EPOCH_STATISTICS[statistic]
    lines = [
        {"series": name, "epoch": epoch, "value": value(stats)}
        for name, by_epoch in by_name.items()
        for epoch, stats in by_epoch.items()
    ]
    table = pd.DataFrame(lines).astype({"value": float})
    ends = ", ".join(f"{name} {part['value'].iloc[-1]:.3g}" for name, part in table.groupby("series", sort=False))
    color = _run_color(source)
    figure = plan_figures.epoch_figure(table, value=statistic, percent=percent, run_color=color)
    display.figure(figure, name="epochs", alt=f"{statistic} by epoch; in the last epoch: {ends}", data=table)
    if source.run is None:
        st.caption("All epochs use the same embeddings. Select a run to see how its plans changed during training.")
    else:
        st.caption("The run's saved plans, evaluated with its embeddings before and after training.")


def _epoch_stats(
    source: BatchSource, pairs: PairDataset, requests: dict[str, PlanRequest], number: int
) -> dict[str, dict[int, PlanStats]]:
    """Return series -> epoch from 1 -> statistics; empty while a background task builds the plans."""
    series: dict[str, tuple[BatchSource, list[PlanRequest]]] = {}
    for name, plan in requests.items():
        if name == plans.RUN_PLANS:
            saved = [replace(plan, saved=path, epoch=epoch) for epoch, path in enumerate(source.saved_plans())]
            series |= {f"{name}, {model}": (source.with_model(model), saved) for model in source.models}
        else:
            series[name] = (source, [replace(plan, epoch=epoch) for epoch in range(number)])
    by_name = {}
    for name, (model_source, epochs) in series.items():
        stats = plans.plan_stats(model_source, pairs, {f"{name} {one.epoch + 1}": one for one in epochs})
        if not stats:
            return {}
        by_name[name] = {one.epoch + 1: stats[key] for one in epochs if (key := f"{name} {one.epoch + 1}") in stats}
    return {name: by_epoch for name, by_epoch in by_name.items() if by_epoch}

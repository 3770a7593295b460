"""The metrics of two models on cards: each with its interval, and whether their difference is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from pages.ui import run_data, show, words

if TYPE_CHECKING:
    from bsc_core.evaluation import Comparison, Interval, QueryValues
    from bsc_core.evaluation.measured import Measured

RANKED = {"has_positive@1": "Gold is first", "has_positive@5": "Gold in the first 5", "mrr": "MRR", "map": "MAP"}
SCORED = {"spearman": "Spearman", "auc": "AUC", "average_precision": "Average precision", "f1": "F1"}
Pair = tuple[run_data.Model, run_data.Model]


@dataclass(frozen=True)
class Card:
    """One metric of both models. comparison: the right one against the left, None where they cannot be compared."""

    metric: str
    left: Interval
    right: Interval
    comparison: Comparison | None


def main(models: Pair, split: str) -> dict[str, str]:
    """The metrics that two runs were measured by: those of rankings where the data have them, else those of pairs.

    Returns the names of those that were drawn.
    """
    for names in (RANKED, SCORED):
        cards = of_models(models, split, names)
        if cards:
            draw(cards, names)
            return names
    st.caption("These pairs define no metric: rankings need right documents, correlations need labels that differ.")
    return {}


def draw(cards: Sequence[Card], names: dict[str, str]) -> None:
    """The cards side by side. names: metric -> what stands on its card."""
    for place, card in zip(show.columns(len(cards), least=210), cards, strict=True):
        with place, st.container(border=True, height="stretch", gap="xsmall"):
            _card(card, names[card.metric])


def _card(card: Card, label: str) -> None:
    told = card.comparison is not None and card.comparison.is_difference
    change = f"{card.right.value - card.left.value:+.3f}"  # its sign is read by the card
    same = change in ("+0.000", "-0.000")
    st.metric(
        label,
        theme.metric(card.right.value),
        delta="unchanged" if same else change,
        delta_color="normal" if told else "off",
        delta_arrow="off" if same else "auto",
        help=words.metric_help(card.metric) or None,
    )
    st.caption(f"**{verdict(card.comparison)}**  \nright {span(card.right)}  \nleft {span(card.left)}")


def span(value: Interval) -> str:
    """`0.812 [0.790, 0.831]`, or the value alone where one query leaves no interval."""
    known = None if value.low is None or value.high is None else (value.low, value.high)
    return theme.metric(value.value, known)


def verdict(comparison: Comparison | None) -> str:
    """Whether the right model differs from the left, in words."""
    if comparison is None:
        return "Not compared: measured on other rows"
    if comparison.p is None:
        return "One query: nothing can be told" if comparison.queries == 1 else "No query differs"
    chance = "p\u00a0<\u00a00.001" if comparison.p < 0.001 else f"p\u00a0=\u00a0{comparison.p:.2g}"
    if comparison.is_difference:
        return f"{'Better' if comparison.difference.value > 0 else 'Worse'} on the right ({chance})"
    return f"Cannot be told from chance ({chance})"


def of_models(models: Pair, split: str, names: dict[str, str]) -> list[Card]:
    """Cards of the metrics among `names` that both models have on a split; kept for all sessions."""
    stamps = tuple(_stamp(model, split) for model in models)
    return _of_models(tuple(model.key for model in models), stamps, split, tuple(names), models)


def _stamp(model: run_data.Model, split: str) -> str:
    """What changes when a model is measured anew."""
    return str((model.run.read_json(f"evaluation/{model.part}") or {}).get(split))


@st.cache_resource(max_entries=32, show_spinner="Asking whether the differences are differences …")
def _of_models(
    keys: tuple[str, ...], stamps: tuple[str, ...], split: str, metrics: tuple[str, ...], _models: Pair
) -> list[Card]:
    from bsc_core.comparison import compare_measured

    (left, left_spans), (right, right_spans) = (_measured(model, split) for model in _models)
    cards = []
    for metric in (name for name in metrics if name in left_spans and name in right_spans):
        try:
            found = compare_measured([left], [right], metric)
        except BscError:  # runs of the same texts whose rows differ: the numbers stand, their difference does not
            found = None
        cards.append(Card(metric, left_spans[metric], right_spans[metric], found))
    return cards


def _measured(model: run_data.Model, split: str) -> tuple[Measured, dict[str, Interval]]:
    """What a model was measured to be, and its metrics; rankings of queries none of which has a positive are none."""
    from bsc_core.comparison import metric_intervals, run_measured

    data = run_data.rows_of(model.run)
    found = run_measured(model.run, split, when=model.part, data=data)
    spans = metric_intervals(model.run, split, when=model.part, data=data)
    if found.queries is not None and not found.queries.positives.any():
        spans = {name: span for name, span in spans.items() if name not in found.queries.values}
    return found, spans


def of_queries(left: QueryValues, right: QueryValues, names: dict[str, str]) -> list[Card]:
    """Cards of two models' values of the same queries."""
    from bsc_core.evaluation import compare_queries, query_intervals

    spans = query_intervals(left, seed=0), query_intervals(right, seed=0)
    return [
        Card(name, spans[0][name], spans[1][name], compare_queries(left, right, name, seed=0))
        for name in names
        if name in left.values
    ]

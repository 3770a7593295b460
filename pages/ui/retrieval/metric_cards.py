"""Metrics of two models as cards, with intervals and the significance of their difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from bsc_core import formatting
from bsc_core.errors import BscError
from bsc_core.evaluation import Comparison, Interval, QueryValues, compare_queries, query_intervals
from bsc_core.evaluation.comparison import compare_results
from bsc_core.evaluation.evaluator import EvalResult, searches_corpus
from pages.ui.comparison.metrics_table import format_interval, format_p, format_range
from pages.ui.components import display, glossary, run_data, turns
from pages.ui.retrieval.search import ModelPair, Search

RANKED = {"has_positive@1": "HasPositive@1", "has_positive@5": "HasPositive@5", "mrr": "MRR", "map": "MAP"}
SCORED = {"spearman": "Spearman", "auc": "AUC", "average_precision": "Average precision", "f1": "F1"}


@dataclass(frozen=True)
class MetricCard:
    """One metric of both models. comparison: the right model against the left, None if not comparable."""

    metric: str
    left: Interval
    right: Interval
    comparison: Comparison | None


def draw(search: Search) -> dict[str, str]:
    """Draw the ranking metrics of two models or, if there are none, the pair metrics; return the names drawn.

    Labeled data without a corpus are evaluated on the candidates of each query, which the names say.
    """
    models = search.models
    of_candidates = not searches_corpus(search.dataset, search.data.corpus)
    ranked = {metric: f"{label}, candidates" for metric, label in RANKED.items()} if of_candidates else RANKED
    for names in (ranked, SCORED):
        cards = without_equal_map(model_cards(models, search.split, names))
        if cards:
            draw_cards(cards, names, single=search.single)
            if of_candidates and names is ranked:
                documents = formatting.plural(len(search.task.corpus), "document")
                st.caption(
                    "These metrics rank the candidates of each query, which are its documents in the data. The search "
                    f"and the errors below rank all {documents}."
                )
            return names
    reason = "No metric is defined: rankings need relevant documents, correlations labels that are not all equal."
    st.caption(reason if all(map(_is_evaluated, models)) else "The metrics of a run appear here when it is done.")
    return {}


def without_equal_map(cards: list[MetricCard]) -> list[MetricCard]:
    """Leave out MAP where it equals MRR for both models, as it does for queries with one relevant document."""
    values = {card.metric: (round(card.left.value, 3), round(card.right.value, 3)) for card in cards}
    return [card for card in cards if card.metric != "map" or values["map"] != values.get("mrr")]


def draw_cards(cards: Sequence[MetricCard], names: dict[str, str], *, single: bool = False) -> None:
    """Draw cards side by side.

    Args:
        cards: The cards.
        names: Metric to its label.
        single: Whether both sides are the same model, so that nothing is compared.
    """
    for cell, card in zip(display.columns(len(cards), min_width=210), cards, strict=True):
        with cell, st.container(border=True, height="stretch", gap="xsmall"):
            (_draw_single if single else _draw_card)(card, names[card.metric])


def _draw_single(card: MetricCard, label: str) -> None:
    help_text = glossary.metric_help(card.metric) or None
    st.metric(label, formatting.metric(card.right.value), help=help_text)
    span = format_range(card.right)
    st.caption(", ".join(part for part in (span and f"95% interval {span}", _number_of_queries(card)) if part))


def _draw_card(card: MetricCard, label: str) -> None:
    significant = card.comparison is not None and card.comparison.significant
    change = f"{card.right.value - card.left.value:+.3f}"  # Streamlit reads its sign
    same = change in ("+0.000", "-0.000")
    st.metric(
        label,
        formatting.metric(card.right.value),
        delta="unchanged" if same else change,
        delta_color="normal" if significant else "off",
        delta_arrow="off" if same else "auto",
        help=glossary.metric_help(card.metric) or None,
    )
    intervals = f"right {format_interval(card.right)}  \nleft {format_interval(card.left)}"
    shown = ", ".join(part for part in (f"**{verdict(card.comparison)}**", _number_of_queries(card)) if part)
    st.caption(f"{shown}  \n{intervals}")


def _number_of_queries(card: MetricCard) -> str:
    return "" if card.comparison is None else formatting.plural(card.comparison.queries, "query", "queries")


def verdict(comparison: Comparison | None) -> str:
    """Return whether the right model differs significantly from the left one."""
    if comparison is None:
        return "Not compared: evaluated on other rows"
    if comparison.p is None:
        return "Not tested: one query" if comparison.queries == 1 else "No query differs"
    p_value = format_p(comparison.p).replace(" ", "\u00a0")
    if comparison.significant:
        return f"{'Better' if comparison.difference.value > 0 else 'Worse'} on the right ({p_value})"
    return f"Inconclusive ({p_value})"


RESULTS_KEY = {
    run_data.Model: lambda model: (model.key, str(run_data.evaluation_stamps(model.run, model.part))),
    run_data.EncoderModel: lambda model: model.results_stamp,
}


def model_cards(models: ModelPair, split: str, names: dict[str, str]) -> list[MetricCard]:
    """Return the cards of the metrics among `names` that both models have, cached across sessions.

    There are none before the run of a model has been evaluated.
    """
    if not all(map(_is_evaluated, models)):
        return []
    run_data.encode_texts(models)
    return _model_cards(models, split, names)


def _is_evaluated(model: run_data.AnyModel) -> bool:
    if isinstance(model, run_data.EncoderModel) or model.run.status().is_finished:
        return True
    return bool(model.run.evaluation(model.part))


@turns.cached(max_entries=32, show_spinner="Testing differences …", hash_funcs=RESULTS_KEY)
def _model_cards(models: ModelPair, split: str, names: dict[str, str]) -> list[MetricCard]:
    (left, left_intervals), (right, right_intervals) = (_load(model, split) for model in models)
    cards = []
    for metric in (name for name in names if name in left_intervals and name in right_intervals):
        try:
            comparison = compare_results([left], [right], metric)
        except BscError:  # runs on the same texts may have other rows
            comparison = None
        cards.append(MetricCard(metric, left_intervals[metric], right_intervals[metric], comparison))
    return cards


def _load(model: run_data.AnyModel, split: str) -> tuple[EvalResult, dict[str, Interval]]:
    """Return the evaluation of a model and its metrics, without rankings if no query has a positive."""
    result, intervals = model.evaluation(split)
    if result.queries is not None and not result.queries.positives.any():
        intervals = {name: one for name, one in intervals.items() if name not in result.queries.values}
    return result, intervals


def query_cards(left: QueryValues, right: QueryValues, names: dict[str, str]) -> list[MetricCard]:
    """Return the cards of two models' values of the same queries."""
    intervals = query_intervals(left, seed=0), query_intervals(right, seed=0)
    return [
        MetricCard(name, intervals[0][name], intervals[1][name], compare_queries(left, right, name, seed=0))
        for name in names
        if name in left.values
    ]

"""Calibration of scores by labels, and HasPositive@k by k."""

import streamlit as st

from bsc_core.evaluation import calibration_curve
from bsc_core.evaluation.evaluator import pair_cosines
from bsc_core.figures.evaluation import calibration
from pages.ui.components import display, glossary, run_data
from pages.ui.retrieval import metric_cards
from pages.ui.retrieval.search import CACHE_KEY, Search, model_names


def draw(search: Search, split: str, *, with_cards: bool) -> None:
    """Draw a calibration curve of the labeled pairs and, `with_cards`, their metrics."""
    if not search.dataset.has_negatives:
        st.caption("Every pair of this dataset is positive, so there are no labels to compare scores with.")
        return
    cards = metric_cards.model_cards(search.models, split, metric_cards.SCORED) if with_cards else []
    if cards:
        metric_cards.draw_cards(cards, metric_cards.SCORED, single=search.single)
    _draw_calibration(search)


def draw_hits(search: Search) -> None:
    """Draw the share of queries with a relevant document in the first k results."""
    metrics = {name: result.metrics for name, result in zip(model_names(search), search.results, strict=True)}
    alt = "Share of queries with a relevant document in the first k results"
    figure = calibration.hit_curve(metrics, colors=run_data.model_colors(search.models))
    display.figure(figure, alt=alt, name="hits", data=calibration.hits(metrics))


def _draw_calibration(search: Search) -> None:
    models = dict(zip(model_names(search), search.models, strict=True))
    bins = {name: _bins(search, side) for side, name in enumerate(models)}
    thresholds = {name: model.metrics().get("f1_threshold") for name, model in models.items()}
    display.figure(
        calibration.calibration(bins, thresholds=thresholds, colors=run_data.model_colors(search.models)),
        alt="Share of positive pairs at each cosine",
        name="calibration",
        data=calibration.table(bins),
    )
    st.caption(
        "Pairs in 10 bins of increasing cosine, with 95% intervals. Vertical lines: the F1 threshold that each model "
        "selected on dev.",
        help=glossary.help_text("calibration"),
    )


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=CACHE_KEY)
def _bins(search: Search, side: int) -> list[tuple[float, float, float, float, int]]:
    curve = calibration_curve(pair_cosines(search.vectors[side], search.dataset), search.dataset.positive)
    columns = zip(curve.score, curve.share, curve.low, curve.high, curve.pairs, strict=True)
    return [calibration.Bin(*(float(value) for value in one[:4]), int(one[4])) for one in columns]

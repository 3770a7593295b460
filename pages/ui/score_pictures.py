"""What the scores of two models are worth: cards of the scored pairs, their calibration, and gold by cut-off."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bsc_core.figures import calibration, ranks
from pages.ui import metric_cards, run_data, show, words
from pages.ui.searching import Search, names


def draw(search: Search, split: str, *, with_cards: bool) -> None:
    """How the scores of labelled pairs follow their labels: a calibration curve and, with_cards, metrics."""
    if search.dataset.has_negatives:
        cards = metric_cards.of_models(search.models, split, metric_cards.SCORED) if with_cards else []
        if cards:
            metric_cards.draw(cards, metric_cards.SCORED)
        _calibration(search, split)
    else:
        st.caption("Every pair of these data is positive, so there is no label for a score to follow.")


def hits(search: Search) -> None:
    """Share of queries with gold among the first k of all documents."""
    found = {name: result.metrics for name, result in zip(names(search), search.results, strict=True)}
    alt = "Share of queries with gold among the first k"
    show.figure(ranks.hit_curve(found), alt=alt, name="hits", data=_frame(ranks.hits(found)))


def _calibration(search: Search, split: str) -> None:
    called = names(search)
    bins = {
        name: _bins(model.key, search.data.parts[split].digest, model, search, split)
        for name, model in zip(called, search.models, strict=True)
    }
    cuts = {name: model.metrics().get("f1_threshold") for name, model in zip(called, search.models, strict=True)}
    figure = calibration.calibration(bins, cuts=cuts)
    show.figure(
        figure, alt="Share of positive pairs at each cosine", name="calibration", data=_frame(calibration.table(bins))
    )
    st.caption(
        "Pairs in ten bins of rising cosine, bars are 95% intervals. Upright lines: the threshold of F1 that each "
        "model chose on dev.",
        help=words.help_text("calibration"),
    )


@st.cache_data(max_entries=32, show_spinner=False)
def _bins(
    key: str, part_digest: str, _model: run_data.Model, _search: Search, _split: str
) -> list[tuple[float, float, float, float, int]]:
    from bsc_core.evaluation import calibration_curve
    from bsc_core.evaluation.evaluator import cosines

    pairs = _search.data.parts[_split]
    curve = calibration_curve(cosines(_model.vectors(), pairs), pairs.positive)
    columns = zip(curve.score, curve.share, curve.low, curve.high, curve.pairs, strict=True)
    return [calibration.Bin(*(float(value) for value in one[:4]), int(one[4])) for one in columns]


def _frame(lines: list[dict[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(lines)

"""Further figures of a finding: polarity against semantic similarity, and the ten sentences of each setting."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES
from bsc_core.figures.evaluation import sentence_map as picture
from bsc_core.figures.findings.margins import caption, margins_figure
from bsc_core.reproduction.margin_points import Row, chance_point, margin_points, untrained_point
from pages.ui.components import display, url


def draw(finding: Mapping[str, Any]) -> None:
    """Draw the figures whose data the finding has."""
    _margins(finding)
    _ten_sentences(finding)


def _margins(finding: Mapping[str, Any]) -> None:
    rows, untrained, chance = margin_points(finding), untrained_point(finding), chance_point(finding)
    if not rows or untrained is None or chance is None:
        return
    title = _title(rows, untrained)
    display.figure(
        margins_figure(rows, untrained=untrained, title=title),
        alt=f"{title}. Polarity against semantic similarity of {len(rows)} settings and epochs.",
        name=f"findings.{finding['name']}.margins",
        data=pd.DataFrame(rows),
    )
    st.caption(caption(chance))


def _title(rows: list[Row], untrained: tuple[float, float]) -> str:
    best = max(rows, key=lambda row: float(row["polarity"]))
    changes = formatting.signed(best["polarity"] - untrained[0]), formatting.signed(best["semantic"] - untrained[1])
    return f"Highest polarity: {best['setting']} (P {changes[0]}, S {changes[1]} compared with the untrained encoder)"


def _ten_sentences(finding: Mapping[str, Any]) -> None:
    arms = {arm["title"]: arm["details"] for arm in finding["arms"] if "cosines" in arm.get("details", {})}
    if not arms:
        return
    key = f"findings.ten.{finding['name']}"
    with st.expander("The ten sentences", on_change="rerun", **url.flag(key)) as expander:
        if not expander.open:
            return
        title = st.selectbox("Setting", list(arms), width=360, **url.bound(f"{key}.setting", arms))
        details = arms[title]
        table = picture.cells(np.asarray(details["cosines"]), TEN_SENTENCES, GOLD_PAIRS)
        seeds = f"mean of {len(details['found'])} seeds" if len(details["found"]) > 1 else "one model"
        heading = f"{title}: {_counts(details['found'])} of the 3 paraphrase pairs are among the 3 most similar pairs"
        display.figure(
            picture.sentence_map(table, TEN_SENTENCES, title=heading),
            alt=f"Cosines of ten sentences, {title}, {seeds}",
            name=f"{key}.{title}".replace(" ", "_"),
            data=table,
        )
        st.caption(f"Cosines: {seeds}. Framed: the three pairs of paraphrases.")


def _counts(counts: list[int]) -> str:
    """Return how many paraphrase pairs are among the most similar: one number, or a range over seeds."""
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"

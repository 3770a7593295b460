"""Pictures of a finding beyond its intervals: polarity against meaning, and the ten sentences of each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.ui import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bsc_core.recipes.margin_picture import Row


def draw(finding: Mapping[str, Any]) -> None:
    """What the finding's measure kept of its settings; nothing where that is nothing."""
    _margins(finding)
    _ten_sentences(finding)


def _margins(finding: Mapping[str, Any]) -> None:
    from bsc_core.recipes.margin_picture import chance_point, margin_points, untrained_point

    rows, untrained, chance = margin_points(finding), untrained_point(finding), chance_point(finding)
    if not rows or untrained is None or chance is None:
        return
    import pandas as pd

    from bsc_core.figures.margins import margins_figure, reading

    title = _title(rows, untrained)
    show.figure(
        margins_figure(rows, untrained=untrained, title=title),
        alt=f"{title}. Polarity against semantic similarity of {len(rows)} settings and epochs.",
        name=f"findings.{finding['name']}.margins",
        data=pd.DataFrame(rows),
    )
    st.caption(reading(chance))


def _title(rows: list[Row], untrained: tuple[float, float]) -> str:
    best = max(rows, key=lambda row: float(row["polarity"]))
    gained, cost = best["polarity"] - untrained[0], untrained[1] - best["semantic"]
    return f"{best['setting']} gains most: P {gained:+.3f} for S {-cost:+.3f}"


def _ten_sentences(finding: Mapping[str, Any]) -> None:
    arms = {arm["title"]: arm["details"] for arm in finding["arms"] if "cosines" in arm.get("details", {})}
    if not arms:
        return
    key = f"findings.ten.{finding['name']}"
    with st.expander("The ten sentences", key=key, on_change="rerun") as details:
        if not details.open:
            return
        import numpy as np

        from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES
        from bsc_core.figures import sentence_map as picture

        title = st.selectbox("Setting", list(arms), key=f"{key}.setting", width=360)
        found = arms[title]
        cosines = np.asarray(found["cosines"])
        seeds = f"mean of {len(found['found'])} seeds" if len(found["found"]) > 1 else "one model"
        told = f"{title}: {_found(found['found'])} of the 3 pairs that say the same come first"
        show.figure(
            picture.sentence_map(cosines, TEN_SENTENCES, GOLD_PAIRS, title=told),
            alt=f"Cosines of ten sentences, {title}, {seeds}",
            name=f"{key}.{title}".replace(" ", "_"),
            data=picture.data(cosines, TEN_SENTENCES, GOLD_PAIRS),
        )
        st.caption(f"Cosines: {seeds}. Framed: the three pairs that say the same in other words.")


def _found(counts: list[int]) -> str:
    """How many gold pairs came first: one number where the seeds agree."""
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"

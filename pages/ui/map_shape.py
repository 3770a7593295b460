"""Beside the map: how close positive pairs lie and how evenly texts fill the space, by each model that is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bsc_core.evaluation.geometry import alignment, uniformity
from bsc_core.figures import sphere, theme
from pages.ui import show, words
from pages.ui.map_frames import SEED, Frame, View

LEAST = 220  # pixels of the smaller figure; the map has three times as many, or a line of its own
MOST_TEXTS = 2000
MOST_PAIRS = 5000


def beside() -> tuple[Any, Any]:
    """Two places: a wide one for the map, and a narrow one that goes below it where there is no room."""
    grid = st.grid(4, min_column_width=LEAST, gap="medium")
    return grid.cell(column_span=3), grid.cell()


def draw(view: View, rows: np.ndarray) -> None:
    """Alignment and uniformity of the texts `rows` by each model; a sentence where no positive pair is among them."""
    part, pairs = _pairs(view, rows)
    if not len(pairs):
        st.caption("Alignment is not defined: no positive pair among the texts that are drawn.")
        return
    found = [_measured(one.stamp, rows.tobytes(), pairs.tobytes(), _frame=one, _view=view) for one in view.frames]
    names = [one.name for one in view.frames]
    runs = [view.key if one.own else one.key for one in view.frames]
    table = sphere.sphere_table(names, *zip(*found, strict=True), runs)
    told = sphere.sphere_sentence(table)
    each = zip(names, found, strict=True)
    alt = "; ".join(f"{name}: alignment {one:.3f}, uniformity {two:.3f}" for name, (one, two) in each)
    show.figure(
        sphere.sphere_figure(table),
        alt=f"{told}. {alt}",
        name="alignment",
        data=table,
        key=f"embeddings.sphere.{view.key}",
    )
    st.caption(
        f"{theme.many(len(pairs), 'positive pair')} of {part}; down and left is better in both.",
        help=f"{words.help_text('alignment')}\n\n{words.help_text('uniformity')}",
    )


def _pairs(view: View, rows: np.ndarray) -> tuple[str, np.ndarray]:
    """The part they are of, dev unless it has none, and (P, 2) text ids of positive pairs that are drawn."""
    for name in ("dev", "test", "train"):
        part = view.data.parts.get(name)
        if part is None:
            continue
        pairs = np.stack([part.query[part.positive], part.document[part.positive]], axis=1)
        pairs = np.unique(pairs[np.isin(pairs, rows).all(axis=1)], axis=0)
        if len(pairs):
            return name, pairs[:MOST_PAIRS].astype(np.int32)
    return "dev", np.empty((0, 2), dtype=np.int32)


@st.cache_data(max_entries=64, show_spinner=False)
def _measured(stamp: str, rows: bytes, pairs: bytes, _frame: Frame, _view: View) -> tuple[float, float]:
    ids, both = np.frombuffer(rows, dtype=np.int32), np.frombuffer(pairs, dtype=np.int32).reshape(-1, 2)
    left, right = (_frame.at(np.ascontiguousarray(side)) for side in both.T)
    spread = uniformity(_frame.at(ids), seed=SEED, most=MOST_TEXTS)
    return float(alignment(left, right).mean()), 0.0 if spread is None else spread

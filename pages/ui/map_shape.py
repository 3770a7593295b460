"""Beside the map: how close positive pairs lie and how evenly texts fill the space, by each model that is shown.

Below it, what the cosine of two texts is worth and which neighbours training kept. What changed is said with an
interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import streamlit as st

from bsc_core.figures import sphere, theme
from bsc_core.projection import sample_rows
from pages.ui import metric_cards, show, words
from pages.ui.map_frames import SEED, Frame, View

if TYPE_CHECKING:
    from bsc_core.evaluation import Comparison, Interval
    from bsc_core.evaluation.drawn_values import DrawnValue

LEAST = 220  # pixels of the smaller figure; the map has three times as many, or a line of its own
MOST_TEXTS = 2000  # of which pairs of texts are made
MOST_PAIRS = 5000
MOST_ASKED = 500  # texts whose neighbours are looked for, among all that are drawn
NEIGHBOURS = 10


class Shape(NamedTuple):
    """Of one model: its numbers, with what they are for other pairs and other texts."""

    alignment: DrawnValue
    uniformity: DrawnValue
    anisotropy: DrawnValue


def beside() -> tuple[Any, Any]:
    """Two places: a wide one for the map, and a narrow one that goes below it where there is no room."""
    grid = st.grid(4, min_column_width=LEAST, gap="medium")
    return grid.cell(column_span=3), grid.cell()


def draw(view: View, rows: np.ndarray) -> None:
    """The shape of the texts `rows` by each model; a sentence where no positive pair is among them."""
    part, pairs = _pairs(view, rows)
    if not len(pairs) or len(rows) < 2:
        st.caption("Alignment is not defined: no positive pair among the texts that are drawn.")
        return
    found = [_measured(one.stamp, rows.tobytes(), pairs.tobytes(), _frame=one) for one in view.frames]
    runs = [view.key if one.own else one.key for one in view.frames]
    last = max(place for place, run in enumerate(runs) if run == runs[0])
    changes = [compare(one, two) for one, two in zip(found[0], found[last], strict=True)] if last else None
    _picture(view, found, runs, changes)
    st.caption(
        f"{theme.many(len(pairs), 'positive pair')} of {part}; down and left is better in both.",
        help=f"{words.help_text('alignment')}\n\n{words.help_text('uniformity')}",
    )
    st.caption(anisotropy_line(found[0], found[last], changes), help=words.help_text("anisotropy"))
    if last and len(rows) > NEIGHBOURS:
        ends = view.frames[0], view.frames[last]
        kept = _overlap(" ".join(one.stamp for one in ends), rows.tobytes(), _ends=ends)
        st.caption(overlap_line(kept, len(rows)), help=words.help_text("neighbour_overlap"))


def _picture(view: View, found: list[Shape], runs: list[str], changes: list[Comparison] | None) -> None:
    names = [one.name for one in view.frames]
    numbers = [(one.alignment.value, one.uniformity.value) for one in found]
    table = sphere.sphere_table(names, *zip(*numbers, strict=True), runs)
    told = None if changes is None else (_change(changes[0]), _change(changes[1]))
    each = [
        f"{name}: alignment {metric_cards.span(one.alignment.interval)}, "
        f"uniformity {metric_cards.span(one.uniformity.interval)}"
        for name, one in zip(names, found, strict=True)
    ]
    show.figure(
        sphere.sphere_figure(table, told),
        alt=f"{', '.join(sphere.sphere_clauses(table, told))}. {'; '.join(each)}",
        name="alignment",
        data=table,
        key=f"embeddings.sphere.{view.key}",
    )


def anisotropy_line(first: Shape, last: Shape, changes: list[Comparison] | None) -> str:
    """`Anisotropy 0.120, then 0.098: −0.022 [−0.024, −0.020]`, and whether that is a change; of one model its own."""
    texts = theme.many(first.anisotropy.rows, "text")
    if changes is None:
        return f"Anisotropy {metric_cards.span(first.anisotropy.interval)}, of {texts}."
    change = _change(changes[2])
    verdict = change.words("lower", "higher", "unchanged", "cannot be told from chance")
    before, after = theme.metric(first.anisotropy.value), theme.metric(last.anisotropy.value)
    return f"Anisotropy {before}, then {after}: {verdict}, {change.told()}, of {texts}."


def overlap_line(kept: Interval, texts: int) -> str:
    """`Neighbours kept 0.712 [0.692, 0.732], of 500 of 4,000 texts.`."""
    asked = f"{theme.count(MOST_ASKED)} of " if texts > MOST_ASKED else ""
    return f"Neighbours kept {metric_cards.span(kept)}, of {asked}{theme.many(texts, 'text')}."


def _change(found: Comparison) -> sphere.Change:
    span = found.difference
    return sphere.Change(span.value, span.low, span.high, found.is_difference)


def compare(first: DrawnValue, last: DrawnValue) -> Comparison:
    """What the last model has over the first, the same pairs or texts being drawn for both."""
    from bsc_core.evaluation.drawn_values import compare_drawn

    return compare_drawn(first, last, seed=SEED)


def _pairs(view: View, rows: np.ndarray) -> tuple[str, np.ndarray]:
    """The part they are of, dev unless it has none, and (P, 2) text ids of positive pairs that are drawn."""
    for name in ("dev", "test", "train"):
        part = view.data.parts.get(name)
        if part is None:
            continue
        pairs = np.stack([part.query[part.positive], part.document[part.positive]], axis=1)
        pairs = np.unique(pairs[np.isin(pairs, rows).all(axis=1)], axis=0)
        if len(pairs):
            return name, pairs[sample_rows(len(pairs), MOST_PAIRS, seed=SEED)].astype(np.int32)
    return "dev", np.empty((0, 2), dtype=np.int32)


@st.cache_resource(max_entries=64, show_spinner="Asking how sure the shape is …")
def _measured(stamp: str, rows: bytes, pairs: bytes, _frame: Frame) -> Shape:
    from bsc_core.evaluation.drawn_space import drawn_alignment, drawn_anisotropy, drawn_uniformity

    ids, both = np.frombuffer(rows, dtype=np.int32), np.frombuffer(pairs, dtype=np.int32).reshape(-1, 2)
    left, right = (_frame.at(np.ascontiguousarray(side)) for side in both.T)
    texts = _frame.at(ids[sample_rows(len(ids), MOST_TEXTS, seed=SEED)])
    return Shape(
        drawn_alignment(left, right, both[:, 0], seed=SEED),
        drawn_uniformity(texts, seed=SEED),
        drawn_anisotropy(texts, seed=SEED),
    )


@st.cache_resource(max_entries=32, show_spinner="Comparing the neighbours of the texts …")
def _overlap(stamps: str, rows: bytes, _ends: tuple[Frame, Frame]) -> Interval:
    from bsc_core.evaluation.geometry import overlap_interval

    before, after = (one.at(np.frombuffer(rows, dtype=np.int32)) for one in _ends)
    return overlap_interval(before, after, seed=SEED, k=NEIGHBOURS, most=MOST_ASKED)

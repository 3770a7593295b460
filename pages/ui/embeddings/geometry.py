"""Alignment, uniformity and anisotropy of each shown model, and the shared neighbors, with intervals."""

from typing import NamedTuple

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation import Comparison, Interval
from bsc_core.evaluation.stats.bootstrap_values import (
    BootstrapValue,
    bootstrap_alignment,
    bootstrap_anisotropy,
    bootstrap_uniformity,
    compare_values,
    overlap_interval,
)
from bsc_core.figures import theme
from bsc_core.figures.evaluation import alignment
from bsc_core.projection import sample_rows
from pages.ui.comparison.metrics_table import format_interval
from pages.ui.components import display, glossary, run_data, turns
from pages.ui.embeddings.frames import CACHE_KEY, SEED, Frame, MapData

MAX_TEXTS = 2000  # whose pairs are compared
MAX_PAIRS = 5000
PAIRS_WITH_LINES = 10
NO_PAIRS = np.empty((0, 2), dtype=np.int32)
MAX_NEIGHBOR_TEXTS = 500  # whose neighbors are compared
NEIGHBORS = 10
LIGHT = 0xC8  # gray from which the colors of the epochs start; visible in both themes


class Geometry(NamedTuple):
    """Geometry of one model's embeddings, with bootstrap samples."""

    alignment: BootstrapValue
    uniformity: BootstrapValue
    anisotropy: BootstrapValue


def draw(data: MapData, rows: np.ndarray) -> None:
    """Draw the geometry of the texts `rows` for each model: a figure, and sentences next to it."""
    st.header("Alignment and uniformity", anchor=False)
    split, pairs = _positive_pairs(data, rows)
    if not len(pairs) or len(rows) < 2:
        st.caption("Alignment is not defined: the shown texts contain no positive pair.")
        return
    values = [_geometry(one, rows, pairs) for one in data.frames]
    runs = [data.key if one.of_run else one.key for one in data.frames]
    last = max(position for position, run in enumerate(runs) if run == runs[0])
    ends = zip(values[0], values[last], strict=True)
    changes = [compare_values(before, after, seed=SEED) for before, after in ends] if last else None
    figure_cell, sentences_cell = display.columns(2)
    with figure_cell:
        _draw_figure(data, values, runs, changes)
    with sentences_cell:
        st.caption(
            f"Alignment of {formatting.plural(len(pairs), 'positive pair')} of {split}, and uniformity; "
            "lower is better for both.",
            help=f"{glossary.help_text('alignment')}\n\n{glossary.help_text('uniformity')}",
        )
        st.caption(anisotropy_sentence(values[0], values[last], changes), help=glossary.help_text("anisotropy"))
        if last and len(rows) > NEIGHBORS:
            overlap = shared_sentence(_neighbor_overlap((data.frames[0], data.frames[last]), rows))
            st.caption(f"{overlap} ({sampled_texts(len(rows))}).", help=glossary.help_text("neighbor_overlap"))


def _draw_figure(data: MapData, values: list[Geometry], runs: list[str], changes: list[Comparison] | None) -> None:
    names = [one.name for one in data.frames]
    numbers = [(one.alignment.value, one.uniformity.value) for one in values]
    table = alignment.alignment_table(names, *zip(*numbers, strict=True), runs)
    change = None if changes is None else (_change(changes[0]), _change(changes[1]))
    each = [
        f"{name}: alignment {format_interval(one.alignment.interval)}, "
        f"uniformity {format_interval(one.uniformity.interval)}"
        for name, one in zip(names, values, strict=True)
    ]
    display.figure(
        alignment.alignment_figure(table, change, colors=_colors(data, runs)),
        alt=f"{', '.join(alignment.alignment_summary(table, change))}. {'; '.join(each)}",
        name="alignment",
        data=table,
        key=f"embeddings.sphere.{data.key}",
    )


def _colors(data: MapData, runs: list[str]) -> list[str]:
    """Return the color of each frame: gray before training, a lighter shade of its run per epoch, then that run's."""
    of_runs = dict(zip(dict.fromkeys(runs), run_data.run_colors(list(dict.fromkeys(runs))), strict=True))
    epochs = [one.key for one in data.frames if one.key.startswith("epoch-")]
    shares = {key: 0.4 + 0.6 * number / len(epochs) for number, key in enumerate(epochs)}
    return [
        theme.REFERENCE if one.key == "before" else _shade(of_runs[run], shares.get(one.key, 1.0))
        for one, run in zip(data.frames, runs, strict=True)
    ]


def _shade(color: str, share: float) -> str:
    """Return a color mixed with light gray; share in [0, 1] is the amount of the color."""
    channels = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(share * channel + (1 - share) * LIGHT):02X}" for channel in channels)


def anisotropy_sentence(first: Geometry, last: Geometry, changes: list[Comparison] | None) -> str:
    """Return `Anisotropy 0.120 before, 0.098 after: lower, −0.022 [−0.024, −0.020] (500 texts).`"""
    texts = formatting.plural(first.anisotropy.rows, "text")
    if changes is None:
        return f"Anisotropy {format_interval(first.anisotropy.interval)} ({texts})."
    change = _change(changes[2])
    verdict = change.describe("lower", "higher", "unchanged", "inconclusive")
    before, after = formatting.metric(first.anisotropy.value), formatting.metric(last.anisotropy.value)
    return f"Anisotropy {before} before, {after} after: {verdict}, {change.text()} ({texts})."


def shared_sentence(overlap: Interval) -> str:
    """Return `4.0 [3.8, 4.3] of a text's 10 nearest neighbors are the same before and after`."""
    ends = [NEIGHBORS * end for end in (overlap.low, overlap.high) if end is not None]
    span = f" [{', '.join(f'{end:.1f}' for end in ends)}]" if ends else ""
    value = f"{NEIGHBORS * overlap.value:.1f}{span}"
    return f"{value} of a text's {NEIGHBORS} nearest neighbors are the same before and after"


def sampled_texts(texts: int) -> str:
    """Return which of so many texts have their neighbors compared, such as `a random sample of 500 of 1,078 texts`."""
    sample = f"a random sample of {formatting.count(MAX_NEIGHBOR_TEXTS)} of " if texts > MAX_NEIGHBOR_TEXTS else ""
    return f"{sample}{formatting.plural(texts, 'text')}"


def _change(comparison: Comparison) -> alignment.Change:
    difference = comparison.difference
    return alignment.Change(difference.value, difference.low, difference.high, comparison.significant)


def ten_pairs(data: MapData, rows: np.ndarray) -> np.ndarray:
    """Return (P, 2) text ids of ten positive pairs among `rows`, or of all if there are fewer."""
    pairs = _positive_pairs(data, rows)[1]
    return pairs[sample_rows(len(pairs), PAIRS_WITH_LINES, seed=SEED)]


def median_distance(frame: Frame, pairs: np.ndarray) -> str:
    """Return the median cosine distance of pairs of texts as text."""
    left, right = (frame.vectors(np.ascontiguousarray(side)) for side in pairs.T)
    return formatting.metric(float(np.median(1 - (left * right).sum(axis=1))))


def distance_change(data: MapData, rows: np.ndarray) -> str:
    """Return `median cosine distance of 95 positive pairs of dev: 0.564 → 0.459`; empty for one model or no pair."""
    split, pairs = _positive_pairs(data, rows)
    if len(data.ends) < 2 or not len(pairs):
        return ""
    values = " → ".join(median_distance(one, pairs) for one in data.ends)
    return f"median cosine distance of {formatting.plural(len(pairs), 'positive pair')} of {split}: {values}"


def pairs_sentence(data: MapData, rows: np.ndarray, pairs: np.ndarray) -> str:
    """Return which of the positive pairs among `rows` have lines, and the median cosine distance of only these."""
    distances = [f"{median_distance(one, pairs)} ({one.name.lower()})" for one in data.frames]
    several = " and ".join([", ".join(distances[:-1]), distances[-1]] if len(distances) > 1 else distances)
    total, number = len(_positive_pairs(data, rows)[1]), formatting.plural(len(pairs), "positive pair")
    if len(pairs) < total:
        number = f"{len(pairs)} of the {formatting.count(total)} positive pairs"
    return f"Lines connect the texts of {number}. The median cosine distance of only these pairs is {several}."


def _positive_pairs(data: MapData, rows: np.ndarray) -> tuple[str, np.ndarray]:
    """Return a split, dev if it has any, and (P, 2) text ids of its positive pairs among `rows`."""
    for name in ("dev", "test", "train"):
        part = data.dataset.splits.get(name)
        if part is None:
            continue
        pairs = np.stack([part.query[part.positive], part.document[part.positive]], axis=1)
        pairs = np.unique(pairs[np.isin(pairs, rows).all(axis=1)], axis=0)
        if len(pairs):
            return name, pairs[sample_rows(len(pairs), MAX_PAIRS, seed=SEED)].astype(np.int32)
    return "dev", np.empty((0, 2), dtype=np.int32)


@turns.cached(max_entries=64, show_spinner="Computing intervals …", hash_funcs=CACHE_KEY)
def _geometry(frame: Frame, rows: np.ndarray, pairs: np.ndarray) -> Geometry:
    left, right = (frame.vectors(np.ascontiguousarray(side)) for side in pairs.T)
    texts = frame.vectors(rows[sample_rows(len(rows), MAX_TEXTS, seed=SEED)])
    return Geometry(
        bootstrap_alignment(left, right, pairs[:, 0], seed=SEED),
        bootstrap_uniformity(texts, seed=SEED),
        bootstrap_anisotropy(texts, seed=SEED),
    )


@turns.cached(max_entries=32, show_spinner="Comparing neighbors …", hash_funcs=CACHE_KEY)
def _neighbor_overlap(ends: tuple[Frame, Frame], rows: np.ndarray) -> Interval:
    before, after = (one.vectors(rows) for one in ends)
    return overlap_interval(before, after, seed=SEED, k=NEIGHBORS, max_texts=MAX_NEIGHBOR_TEXTS)

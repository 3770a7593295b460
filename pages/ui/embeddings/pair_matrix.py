"""Similarity matrices of the pairs with selected texts, one per model; a click on a cell marks its texts on the map."""

from functools import partial
from typing import NamedTuple

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import KnownPairs, marked_cells
from bsc_core.data import PairDataset
from bsc_core.figures.batches import similarity
from pages.ui.batches.batch_view import clicked_cell, draw_cells
from pages.ui.components import display, url
from pages.ui.embeddings import selection
from pages.ui.embeddings.frames import Frame, MapData
from pages.ui.embeddings.geometry import NO_PAIRS

MAX_PAIRS = 30
TEXT_LENGTH = 80  # characters of a text in a sentence


class SelectedPairs(NamedTuple):
    """Pairs of one split with a selected text. rows: those that are shown, at most MAX_PAIRS. total: their number."""

    split: str
    dataset: PairDataset
    rows: np.ndarray
    total: int


def selected_pairs(data: MapData, selected: np.ndarray) -> SelectedPairs | None:
    """Return the pairs of the split with the most pairs of these texts; None if no split has one.

    If there are too many, pairs with two selected texts are preferred, then positive pairs.
    """
    known = data.common_texts
    found = []
    for name, part in data.dataset.splits.items():
        sides = np.isin(part.query, selected), np.isin(part.document, selected)
        rows = np.flatnonzero(sides[0] | sides[1])
        if known is not None:
            rows = rows[np.isin(part.query[rows], known) & np.isin(part.document[rows], known)]
        order = np.lexsort((~part.positive[rows], ~(sides[0] & sides[1])[rows]))
        found.append(SelectedPairs(name, part, np.sort(rows[order[:MAX_PAIRS]]), len(rows)))
    most = max(found, key=lambda one: one.total, default=None)
    return most if most is not None and most.total else None


def load_pair(data: MapData, rows: np.ndarray) -> np.ndarray:
    """Return the ids of the query and the document of the clicked cell as (1, 2), from the URL; else no pair.

    Args:
        data: The models.
        rows: Ids of the texts on the map.
    """
    digest, *ids = st.query_params.get(selection.PAIR, "").split("-")
    if not digest:
        return NO_PAIRS
    numbers = [int(one) for one in ids if one.isascii() and one.isdecimal() and len(one) < 10]
    if digest == selection.digest(data) and len(numbers) == len(ids) == 2 and np.isin(numbers, rows).all():
        return np.array([numbers], dtype=np.int32)
    url.report(selection.PAIR, "The texts of the pair are not on this map.")
    return NO_PAIRS


def draw(data: MapData, selected: np.ndarray, pair: np.ndarray) -> None:
    """Draw the matrices of the pairs with these texts for the first and the last model.

    Args:
        data: The models.
        selected: Ids of the selected texts.
        pair: Output of `load_pair`, whose cell is outlined.
    """
    pairs = selected_pairs(data, selected)
    if pairs is None:
        st.caption("No pair of the dataset contains a selected text.")
        return
    of = f" of {formatting.count(pairs.total)}" if pairs.total > MAX_PAIRS else ""
    number = f"{len(pairs.rows)}{of} pair{'' if pairs.total == 1 else 's'}"
    st.header(f"Cosine similarities of {number}", anchor=False)
    cells = [_cells(one, pairs) for one in data.ends]
    for column, one, matrix in zip(display.columns(len(cells)), data.ends, cells, strict=True):
        with column:
            _draw_matrix(data, one, matrix, pairs, pair)
    first = " Those with two selected texts are shown first." if pairs.total > MAX_PAIRS else ""
    st.caption(f"Pairs of {pairs.split} with a selected text.{first} Click a cell to connect its two texts on the map.")


def pair_sentence(data: MapData, pair: np.ndarray) -> str:
    """Return `The line connects “query” and “document”; their cosine is 0.412 (before training) and ...`."""
    cosines = [(one.name, float((left * right).sum())) for one in data.ends for left, right in [one.vectors(pair[0])]]
    values = " and ".join(f"{formatting.metric(cosine)} ({name.lower()})" for name, cosine in cosines)
    texts = " and ".join(f"“{formatting.shorten(data.dataset.texts[int(row)], TEXT_LENGTH)}”" for row in pair[0])
    return f"The line connects {display.escaped(texts)}; their cosine is {values}."


def _cells(frame: Frame, pairs: SelectedPairs) -> similarity.Cells:
    dataset, rows = pairs.dataset, pairs.rows
    known = KnownPairs(dataset)
    return similarity.Cells(
        frame.vectors(dataset.query[rows]) @ frame.vectors(dataset.document[rows]).T,
        rows,
        np.zeros(len(rows), dtype=np.int32),
        dataset.positive[rows],
        known.collisions(rows),
        known.negative(rows),
        marked_cells(dataset, rows),
    )


def _draw_matrix(data: MapData, frame: Frame, cells: similarity.Cells, pairs: SelectedPairs, pair: np.ndarray) -> None:
    queries, documents = pairs.dataset.query[pairs.rows], pairs.dataset.document[pairs.rows]
    marked = np.argwhere((queries[:, None] == pair[0, 0]) & (documents == pair[0, 1])) if len(pair) else NO_PAIRS
    key = f"embeddings.matrix.{data.key}.{frame.key}"
    draw_cells(
        cells,
        pairs.dataset,
        pinned=(int(marked[0, 0]), int(marked[0, 1])) if len(marked) else None,
        name=f"pairs.{frame.key}",
        key=key,
        on_pin=partial(_select, key, data, queries, documents),
        title=f"{frame.name}: ",
    )


def _select(key: str, data: MapData, queries: np.ndarray, documents: np.ndarray) -> None:
    """Store the texts of the clicked cell in the URL."""
    if cell := clicked_cell(key, len(queries)):
        ids = f"{selection.digest(data)}-{queries[cell[0]]}-{documents[cell[1]]}"
        display.write_url({selection.PAIR: ids}, (selection.PAIR,))

"""The texts picked on a map, and their neighbours, which come from the embedding space and never from the map."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.data.experiment import ExperimentData
from bsc_core.projection import same_neighbours, sample_rows
from pages.ui import show, text_facts
from pages.ui.map_frames import SEED, View

MOST_LISTED = 200
MOST_ASKED = 400
NEIGHBOURS = 10


def find(data: ExperimentData, rows: np.ndarray, words: str) -> np.ndarray:
    """The texts among `rows` that hold all the words, in any case."""
    wanted = words.casefold().split()
    held = [row for row in rows.tolist() if all(word in data.texts[row].casefold() for word in wanted)]
    return np.array(held if wanted else [], dtype=np.int32)


def most_changed(view: View, rows: np.ndarray, number: int = 20) -> np.ndarray:
    """The texts whose neighbours changed most from the first model to the last, of at most 400 looked at."""
    files = " ".join(one.stamp for one in view.frames)
    return _most_changed(files, rows.tobytes(), number, _view=view)


@st.cache_resource(max_entries=16, show_spinner="Comparing the neighbours of the texts …")
def _most_changed(files: str, rows: bytes, number: int, _view: View) -> np.ndarray:
    ids = np.frombuffer(rows, dtype=np.int32)
    asked = ids[sample_rows(len(ids), MOST_ASKED, seed=SEED)]
    return asked[np.argsort(kept_counts(_view, asked), kind="stable")[:number]]


def kept_counts(view: View, ids: np.ndarray) -> np.ndarray:
    """(R,) how many of the ten nearest texts are the same for the first model and the last."""
    first, last = (view.nearest(one, ids, NEIGHBOURS)[0] for one in view.ends)
    return same_neighbours(first, last)


def texts_table(view: View, ids: np.ndarray, heading: str) -> int | None:
    """The texts with their nearest neighbours in embedding space; returns the id of the text that is chosen."""
    more = f", the first {MOST_LISTED} are listed" if len(ids) > MOST_LISTED else ""
    ids = ids[:MOST_LISTED]
    sides = text_facts.sides(view.data)
    lines: dict[str, list[Any]] = {
        "Text": [view.data.texts[int(row)] for row in ids],
        "Side": [sides[int(row)] for row in ids],
    }
    if len(view.ends) == 2:
        lines[f"Same of {NEIGHBOURS}"] = kept_counts(view, ids).tolist()
    for one in view.ends:
        closest, _ = view.nearest(one, ids, 1)
        lines[f"Nearest, {one.name.lower()}"] = [view.data.texts[int(row)] for row in closest[:, 0]]
    widths = {name: 250 if name == "Text" or name.startswith("Nearest") else 90 for name in lines}
    st.subheader(heading + more, anchor=False)
    event = st.dataframe(
        lines,
        key=f"embeddings.texts.{view.key}.{hashlib.sha256(ids.tobytes()).hexdigest()[:12]}",
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        alt=heading,
        height=260,
        column_config={name: st.column_config.Column(width=width) for name, width in widths.items()},
    )
    return int(ids[event.selection.rows[0]]) if event.selection.rows else None


def neighbours(view: View, text_id: int) -> None:
    """The ten nearest texts of one text, by the first model and by the last."""
    show.text("Nearest in embedding space to", view.data.texts[text_id])
    for place, one in zip(show.columns(len(view.ends)), view.ends, strict=True):
        ids, cosines = view.nearest(one, np.array([text_id]), NEIGHBOURS)
        lines = {
            "Cosine": [f"{cosine:.3f}" for cosine in cosines[0]],
            one.name: [view.data.texts[int(row)] for row in ids[0]],
        }
        with place:
            key = f"embeddings.nearest.{view.key}.{one.key}.{text_id}"
            st.dataframe(lines, hide_index=True, key=key, alt=f"Nearest, {one.name}")

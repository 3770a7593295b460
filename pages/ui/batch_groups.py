"""The groups of one batch: as small multiples, and where they lie on a map of the dataset."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bsc_core.batching import MeasuredPlan
from bsc_core.config import BatchingConfig
from bsc_core.figures import groups as group_figures
from bsc_core.figures import theme
from bsc_core.projection import lay_out, sample_rows
from pages.ui import plans, show
from pages.ui.batch_view import Batch

SHOWN = 12
ON_MAP = 7  # as many as there are colours
MOST_ON_MAP = 3000
Groups = list[tuple[int, np.ndarray]]


def draw(batch: Batch, look: MeasuredPlan, config: BatchingConfig, vectors_name: str) -> None:
    """The batch's groups of two rows or more, whole even where the batch's edge cuts them."""
    st.subheader("The groups of this batch", anchor=False)
    ids = list(dict.fromkeys(batch.groups.tolist()))
    found = [(group, plans.group_rows(look, group, config)) for group in ids]
    found = [(group, rows) for group, rows in found if len(rows) >= 2]
    if not found:
        st.caption("No groups here: every row stands alone. With examples, near neighbours stand together.")
        return
    left, right = show.columns(2, least=420)
    with left:
        _multiples(batch, found, config)
    with right:
        _map(batch, found, config, vectors_name)


def _side(config: BatchingConfig) -> str:
    """Which text stands for a row: the one it was grouped by; of rows that share their query, the document."""
    return "document" if config.strategy == "premises" else config.by


def _multiples(batch: Batch, found: Groups, config: BatchingConfig) -> None:
    side = getattr(batch.dataset, _side(config))
    shown = [
        (group, rows, batch.vectors[side[rows]], batch.dataset.texts.take(side[rows])) for group, rows in found[:SHOWN]
    ]
    table = group_figures.group_table(shown)
    mean = float(table.loc[table["role"] == group_figures.NEIGHBOUR, "cosine"].mean())
    count = theme.many(len(found), "group")
    more = f", the first {SHOWN} are drawn" if len(found) > SHOWN else ""
    told = f"{count} in this batch{more}; neighbours have a mean cosine of {mean:.3f} to their anchor."
    show.figure(
        group_figures.group_figure(table, columns=4, size=104),
        name="groups",
        alt=told,
        data=table,
        key="batches.groups",
    )
    st.caption(told + " The distance from the middle is 1 minus cosine; the direction means nothing.")


def _map(batch: Batch, found: Groups, config: BatchingConfig, vectors_name: str) -> None:
    side, table = getattr(batch.dataset, _side(config)), batch.dataset.texts
    drawn = [(group, side[rows]) for group, rows in found[:ON_MAP]]
    texts = np.unique(side)
    if len(texts) > MOST_ON_MAP:
        some = texts[sample_rows(len(texts), MOST_ON_MAP)]
        texts = np.unique(np.concatenate([some, *(ids for _, ids in drawn)]))
    points = _layout(f"{table.digest} {vectors_name}", texts.tobytes(), _texts=texts, _vectors=batch.vectors)
    lines = group_figures.map_table(points, texts, drawn, table.take(texts))
    which = "The same groups" if len(found) <= ON_MAP else f"The first {ON_MAP} of them"
    told = f"{which} among the {_side(config)} texts, laid out by PCA; lines lead to the first row of a group."
    show.figure(group_figures.map_figure(lines), name="group-map", alt=told, data=lines, key="batches.map")
    st.caption(told + " What lies together here may lie apart in truth: the cosines of the small pictures are exact.")


@st.cache_resource(max_entries=16, show_spinner="Laying out the texts by PCA …")
def _layout(name: str, ids: bytes, *, _texts: np.ndarray, _vectors: np.ndarray) -> np.ndarray:
    return lay_out([np.asarray(_vectors[_texts], dtype=np.float32)], "pca")[0]

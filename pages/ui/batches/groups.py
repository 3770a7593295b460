"""Groups of one batch, as small figures and on a map of the dataset."""

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import PlanStats
from bsc_core.config import BatchingConfig
from bsc_core.figures.batches import groups as group_figures
from bsc_core.projection import lay_out, sample_rows
from pages.ui.batches import plans
from pages.ui.batches.batch_view import BatchView
from pages.ui.components import display

MAX_FIGURES = 12
MAX_ON_MAP = 7  # the number of colors
MAX_MAP_TEXTS = 3000
Groups = list[tuple[int, np.ndarray]]


def draw(batch: BatchView, stats: PlanStats, config: BatchingConfig, vectors_key: str) -> None:
    """Draw the groups of 2 or more rows in this batch, complete even if the batch splits them."""
    st.header("Groups of this batch", anchor=False)
    ids = list(dict.fromkeys(batch.groups.tolist()))
    groups = [(group, plans.group_rows(stats, group, config)) for group in ids]
    groups = [(group, rows) for group, rows in groups if len(rows) >= 2]
    if not groups:
        st.caption("This batch has no groups. The nearest strategy, for example, groups near neighbors.")
        return
    left, right = display.columns(2, min_width=420)
    with left:
        _draw_group_figures(batch, groups, config)
    with right:
        _draw_map(batch, groups, config, vectors_key)


def _side(config: BatchingConfig) -> str:
    """Return the side that groups are formed by; for rows that share their query, the document."""
    return "document" if config.strategy == "premises" else config.group_by


def _draw_group_figures(batch: BatchView, groups: Groups, config: BatchingConfig) -> None:
    side = getattr(batch.dataset, _side(config))
    shown = [
        (group, rows, batch.vectors[side[rows]], batch.dataset.texts.take(side[rows]))
        for group, rows in groups[:MAX_FIGURES]
    ]
    table = group_figures.group_table(shown)
    mean = float(table.loc[table["role"] == group_figures.NEIGHBOR, "cosine"].mean())
    first = f", the first {MAX_FIGURES} are shown" if len(groups) > MAX_FIGURES else ""
    alt = (
        f"{formatting.plural(len(groups), 'group')} in this batch{first}. "
        f"The mean cosine of neighbors to their anchor is {mean:.3f}."
    )
    figure = group_figures.group_figure(table, columns=4, size=104)
    display.figure(figure, name="groups", alt=alt, data=table, key="batches.groups")
    st.caption(
        "The center is the anchor of a group. The distance of a neighbor from it is 1 minus their cosine; the "
        "direction has no meaning. A neighbor with the text of the anchor is in the center, too."
    )


def _draw_map(batch: BatchView, groups: Groups, config: BatchingConfig, vectors_key: str) -> None:
    side, table = getattr(batch.dataset, _side(config)), batch.dataset.texts
    shown = [(group, side[rows]) for group, rows in groups[:MAX_ON_MAP]]
    texts = np.unique(side)
    if len(texts) > MAX_MAP_TEXTS:
        sample = texts[sample_rows(len(texts), MAX_MAP_TEXTS)]
        texts = np.unique(np.concatenate([sample, *(ids for _, ids in shown)]))
    points = _layout(f"{table.digest} {vectors_key}", texts.tobytes(), _texts=texts, _vectors=batch.vectors)
    lines = group_figures.map_table(points, texts, shown, table.take(texts))
    which = "groups of this batch" if len(groups) <= MAX_ON_MAP else f"first {MAX_ON_MAP} groups"
    alt = f"Map (PCA) of all {_side(config)} texts with the {which}. Lines connect the texts of a group with its first."
    display.figure(group_figures.map_figure(lines), name="group-map", alt=alt, data=lines, key="batches.map")
    st.caption(
        "Lines lead from the first text of a group to others. Texts that are close on the map may have a low cosine."
    )


@st.cache_resource(max_entries=16, show_spinner="Projecting the texts with PCA …")
def _layout(key: str, ids: bytes, *, _texts: np.ndarray, _vectors: np.ndarray) -> np.ndarray:
    return lay_out([np.asarray(_vectors[_texts], dtype=np.float32)], "pca")[0]

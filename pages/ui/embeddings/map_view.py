"""The map of the Embeddings page: its controls, colors, layout, and how many neighbors it preserves."""

import hashlib
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import background_task, formatting
from bsc_core.data.load import DatasetSplits
from bsc_core.figures.evaluation import maps
from bsc_core.projection import density, lay_out, neighborhood_preservation, sample_rows
from pages.ui.components import data_cache, display, glossary, turns, url
from pages.ui.components.browser.mount import map_canvas
from pages.ui.embeddings import map_task, selection, text_attributes
from pages.ui.embeddings.frames import CACHE_KEY, SEED, Frame, MapData, animated_frames, default_frames

TEXT_LIMITS = (4000, 20_000, 100_000)
POLL_INTERVAL = "1s"
SIDE_BY_SIDE, ANIMATED = "beside", "moving"
LAYOUTS = {SIDE_BY_SIDE: "Side by side", ANIMATED: "Animated"}
MAX_TRAILS = 300
MAX_MODELS = 25  # on a map; its time and memory grow with their number, and with the numbers of all vectors
MAX_NUMBERS = 80_000_000  # 200,000 vectors of the default encoder
SEARCH_RESULT = "error"
OVERLAYS = {"pairs": "Ten pairs", "labels": "Labels", "contours": "Density"}
SHOW = "embeddings.show"
PCA_SHOWN = "embeddings.pca_shown"  # session key: the folder of the UMAP map in whose place PCA was shown
FIELD_WIDTH = 200  # pixels
NEIGHBORS = 10
NOTES_STYLE = "<style>.st-key-embeddings-notes { min-height: 3rem; }</style>"  # progress and sentence are as high
PARAMETERS = tuple(f"embeddings.{name}" for name in ("method", "way", "color", "find", "most", "show", "models.*"))


def select_view(data: MapData) -> tuple[MapData, str, bool]:
    """Draw the controls; return the data with the selected frames, the projection method, and whether to animate."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    method = row.segmented_control(
        "Map",
        ["umap", "pca"],
        format_func=str.upper,
        default="umap",
        required=True,
        help=glossary.help_text("umap"),
        **url.bound("embeddings.method", ["UMAP", "PCA"]),
    )
    several = len(data.available) > 1
    layout = SIDE_BY_SIDE
    if several:
        layout = row.segmented_control(
            "Models",
            list(LAYOUTS),
            format_func=LAYOUTS.__getitem__,
            default=SIDE_BY_SIDE,
            required=True,
            **url.bound("embeddings.way", LAYOUTS.values()),
        )
    colors = {name: name.capitalize() for name in _text_colorings(data.dataset, data.may_read_files)}
    colors |= {SEARCH_RESULT: "Search result"} if data.dataset.dev.positive.any() else {}
    row.selectbox(
        "Color by",
        list(colors),
        format_func=lambda name: colors.get(name, name),
        width=FIELD_WIDTH,
        **url.bound("embeddings.color", colors.values()),
    )
    row.text_input(
        "Find texts",
        max_chars=selection.MAX_FIND,
        placeholder="words in the text",
        width=FIELD_WIDTH,
        help="Selects the texts with all of these words. If there are none, parts of longer words match. Case is "
        "ignored.",
        **url.bound("embeddings.find"),
    )
    animated = several and layout == ANIMATED
    with row.popover("More", icon=":material/tune:"):
        keys = _select_models(data, animated) if several else []
        st.pills(
            "Show",
            list(OVERLAYS),
            selection_mode="multi",
            format_func=OVERLAYS.__getitem__,
            default=["pairs", "labels"],
            help="Lines between the texts of ten positive pairs; words that are typical of a region, if there are any; "
            "contours of the densest regions with 90%, 50% and 20% of the texts.",
            **url.bound(SHOW, OVERLAYS.values()),
        )
        st.selectbox(
            "Maximum number of texts",
            TEXT_LIMITS,
            format_func=lambda number: f"{number:,} texts",
            help="With many models, there are fewer texts: the vectors of all models together have at most "
            f"{MAX_NUMBERS // 10**6} million numbers.",
            **url.bound("embeddings.most", [f"{number:,} texts" for number in TEXT_LIMITS]),
        )
    return data.with_frames(keys[:MAX_MODELS] or default_frames(data)), method, animated


def max_texts(data: MapData) -> int:
    """Return how many texts the map of each model may have."""
    limit: int = st.session_state["embeddings.most"]
    return max(1, min(limit, MAX_NUMBERS // sum(one.dimensions for one in data.frames)))


def _select_models(data: MapData, animated: bool) -> list[str]:
    names = {one.key: one.name for one in data.available}
    default = animated_frames(data) if animated else default_frames(data)
    return st.multiselect(
        "Models",
        list(names),
        default=default,
        max_selections=MAX_MODELS,
        format_func=lambda key: names[key],
        help="Epochs of this run, and other runs on the same texts.",
        **url.bound(f"embeddings.models.{ANIMATED if animated else SIDE_BY_SIDE}.{data.key}", names.values()),
    )


def _rows_key(data: DatasetSplits) -> str:
    """Return a key that changes with the rows, their labels, threshold and split, or the corpus."""
    parts = [f"{name} {part.threshold} {part.digest}" for name, part in data.splits.items()]
    return " ".join([*parts, "" if data.corpus is None else data.corpus.digest])


def _files_key(data: DatasetSplits) -> tuple[Any, ...]:
    return _rows_key(data), data_cache.file_stamps(*(report.source for report in data.reports))


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={DatasetSplits: _files_key})
def _text_colorings(data: DatasetSplits, with_columns: bool) -> dict[str, maps.Coloring]:
    """Return the colorings that need no model."""
    return text_attributes.colorings(data, with_columns=with_columns)


def color_texts(data: MapData, name: str, rows: np.ndarray) -> list[maps.Coloring]:
    """Return the colors of the texts `rows`: one coloring for all maps, or one per model if they differ."""
    if name != SEARCH_RESULT:
        colorings = [_text_colorings(data.dataset, data.may_read_files)[name]]
    else:
        colorings = [_search_results(data.dataset, one, data.common_texts) for one in data.frames]
    return [maps.Coloring([one.values[row] for row in rows.tolist()], one.colors) for one in colorings]


@turns.cached(
    max_entries=16, show_spinner="Searching with the dev queries …", hash_funcs=CACHE_KEY | {DatasetSplits: _rows_key}
)
def _search_results(data: DatasetSplits, frame: Frame, texts: np.ndarray | None) -> maps.Coloring:
    return text_attributes.errors(data, frame.vectors(texts), texts)


def load_maps(data: MapData, rows: np.ndarray, method: str, *, in_use: bool) -> tuple[map_task.Maps, Path | None]:
    """Return the maps, and the folder of the task that computes UMAP if the maps are those of PCA instead.

    These are shown until UMAP is ready and, if the map is then in use, until the user asks for UMAP.
    """
    files = [one.file for one in data.frames]
    if method == "umap":
        folder = map_task.map_folder(data.folder, files, rows, method, SEED)
        ready = map_task.load_maps(folder)
        if ready is not None and not (in_use and st.session_state.get(PCA_SHOWN) == folder.name):
            st.session_state.pop(PCA_SHOWN, None)  # a later selection keeps this map
            return ready, None
        st.session_state[PCA_SHOWN] = folder.name
        map_task.start(folder, files, rows, method, SEED)
    pca = _pca_maps(map_task.map_folder(data.folder, files, rows, "pca", SEED).name, files, rows)
    return pca, folder if method == "umap" else None


@turns.cached(max_entries=8, show_spinner="Projecting the texts with PCA …")
def _pca_maps(key: str, _files: list[Any], _rows: np.ndarray) -> map_task.Maps:
    arrays = [file.vectors(_rows) for file in _files]
    points = lay_out(arrays, "pca")
    return map_task.Maps(_rows, points, list(map(neighborhood_preservation, arrays, points)))


def _draw_progress(folder: Path, expected_seconds: float) -> None:
    """Draw the progress of UMAP; rerun the page when the map is ready."""
    if map_task.is_ready(folder):
        st.rerun(scope="app")
    display.task_progress(
        folder,
        "UMAP",
        failed="UMAP failed; the PCA map is shown instead",
        key=f"embeddings.again.{folder.name}",
        expected_seconds=expected_seconds,
        note=". The PCA map is shown until then.",
    )


def draw_notes(data: MapData, layout: map_task.Maps, umap_folder: Path | None) -> None:
    """Draw the progress of UMAP, if it is computed, and then in its place how many neighbors the map preserves."""
    st.html(NOTES_STYLE)
    with st.container(key="embeddings-notes"):
        if umap_folder is None:
            st.caption(preservation_sentence(data, layout))
        elif map_task.is_ready(umap_folder):
            row = st.container(horizontal=True, vertical_alignment="center")
            row.caption("The UMAP map is ready. The selection is kept.", width="content")
            row.button(
                "Show the UMAP map", key="embeddings.show_umap", on_click=st.session_state.pop, args=(PCA_SHOWN, None)
            )
        else:
            seconds = map_task.expected_seconds(len(layout.rows), len(data.frames))
            turns.fragment(_draw_progress, run_every=POLL_INTERVAL)(umap_folder, seconds)


def draw_maps(
    data: MapData,
    layout: map_task.Maps,
    colorings: list[maps.Coloring],
    *,
    selected: np.ndarray,
    trails: np.ndarray,
    pairs: tuple[np.ndarray, str],
    animated: bool,
) -> np.ndarray:
    """Draw the maps; return the ids of the texts that were just selected by lasso or click.

    Args:
        data: The frames.
        layout: Their maps.
        colorings: One coloring for all maps, or one per map.
        selected: Ids of the highlighted texts.
        trails: Ids of the texts whose movement is drawn.
        pairs: (P, 2) ids of the texts that are connected by lines, and their name in the legend.
        animated: Whether the points move through the frames.
    """
    rows = layout.rows
    some = trails[sample_rows(len(trails), MAX_TRAILS, seed=SEED)]
    names = [one.name for one in data.frames]
    overlays = maps.Overlays(pairs[0], *_overlays(data, layout, tuple(st.session_state[SHOW])), pairs[1])
    picture = maps.map_picture(
        layout.points, names, colorings, ids=rows, selected=selected, trails=some, overlays=overlays
    )
    ends = " and ".join(one.name for one in data.ends)
    positions = map_canvas(
        picture,
        _hover_texts(data.dataset, rows),
        key=f"embeddings.map.{data.key}",
        label=f"Map of {len(rows):,} texts, {ends}. A lasso selects texts; arrow keys move, plus and minus zoom.",
        moving=animated and len(data.frames) > 1,
    )
    return rows[positions] if positions is not None else np.empty(0, dtype=np.int32)


def _overlays(data: MapData, layout: map_task.Maps, shown: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the contours and the labels of each map that are selected, computed once for all sessions."""
    key = data.dataset.texts.digest, hashlib.sha256(np.stack(layout.points).tobytes() + layout.rows.tobytes()).digest()

    def contours() -> list[list[np.ndarray]]:
        return [density.contours(points) for points in layout.points]

    def labels() -> list[list[tuple[float, float, str]]]:
        texts = data.dataset.texts.take(layout.rows)
        found = (density.regions(points, texts) for points in layout.points)
        return [[(one.x, one.y, " ".join(one.words)) for one in regions] for regions in found]

    return (
        data_cache.shared_value("map_contours", key, contours) if "contours" in shown else (),
        data_cache.shared_value("map_labels", key, labels) if "labels" in shown else (),
    )


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={DatasetSplits: lambda data: data.texts.digest})
def _hover_texts(data: DatasetSplits, rows: np.ndarray) -> pd.DataFrame:
    """Return the texts for the tooltip: on one line, shortened."""
    return pd.DataFrame({"text": [formatting.shorten(text, maps.TEXT_LENGTH) for text in data.texts.take(rows)]})


def frame(
    data: MapData,
    layout: map_task.Maps,
    method: str,
    umap_folder: Path | None,
    *,
    number_selected: int | None,
    change: str,
) -> AbstractContextManager[None]:
    """Return the block that draws the title and the menu of the maps; the title has the method of what is shown.

    It also says how many texts are selected or, without a selection, `change`: how the models differ.
    """
    names = " and ".join(one.name[0].lower() + one.name[1:] for one in data.ends)
    shown = method.upper()
    if umap_folder is not None:
        failed = background_task.read_progress(umap_folder).error
        soon = "UMAP is ready" if map_task.is_ready(umap_folder) else "UMAP is being computed"
        shown = "PCA" if failed else f"PCA; {soon}"
    title = f"{formatting.plural(len(layout.rows), 'text')}, {names} ({shown})"
    if number_selected is not None:
        title += f"; {formatting.count(number_selected)} selected"
    elif change:
        title += f"; {change}"
    table = partial(map_table, data, layout)
    return display.figure_frame(title, name="map", data=table, key=f"embeddings.frame.{data.key}")


def map_table(data: MapData, layout: map_task.Maps) -> pd.DataFrame:
    """Return the texts with their coordinates on every map."""
    columns: dict[str, Any] = {"text": [data.dataset.texts[int(row)] for row in layout.rows]}
    for one, points in zip(data.frames, layout.points, strict=True):
        columns |= {f"x, {one.name}": points[:, 0], f"y, {one.name}": points[:, 1]}
    return pd.DataFrame(columns)


def preservation_sentence(data: MapData, layout: map_task.Maps) -> str:
    """Describe how many neighbors the map preserves, in one sentence."""
    total, shown = len(data.dataset.texts), len(layout.rows)
    sampled = "" if shown == total else f" {formatting.count(shown)} of {formatting.count(total)} texts are shown."
    several = len(data.frames) > 1
    shares = [
        f"{formatting.percent(share, why='too few texts')} ({one.name.lower()})"
        if several
        else formatting.percent(share)
        for one, share in zip(data.frames, layout.neighbor_preservation, strict=True)
    ]
    if len(shares) > 2:
        shares = [", ".join(shares[:-1]), shares[-1]]
    return (
        f"Of a text's {NEIGHBORS} nearest neighbors in embedding space, on average {' and '.join(shares)} are also "
        f"among its {NEIGHBORS} nearest on the map. Cluster sizes and the gaps between clusters mean little.{sampled}"
    )

"""The Embeddings page's map: what it shows and how, the maps themselves, their colours, and how far to trust them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.figures import maps, theme
from bsc_core.projection import sample_rows
from pages.ui import map_canvas, map_job, show, text_facts, words
from pages.ui.map_frames import SEED, Frame, View, moving, sideways

if TYPE_CHECKING:
    import pandas as pd

    from bsc_core.data.experiment import ExperimentData

AMOUNTS = (4000, 20_000, 100_000)
CHECK = "1s"
BESIDE, MOVING = "beside", "moving"
MOST_TRAILS = 300
ERROR = "error"
NEIGHBOURS = 10


def choose(view: View) -> tuple[View, str, bool]:
    """The models that are shown, the way they are laid out, and whether points move: as the controls say."""
    method_place, way_place, colour_place, find_place, more = show.columns(5, least=150)
    method = method_place.segmented_control(
        "Map",
        ["umap", "pca"],
        format_func=str.upper,
        key="embeddings.method",
        default="umap",
        required=True,
        help=words.help_text("umap"),
        bind="query-params",
    )
    several = len(view.offered) > 1
    way = way_place.segmented_control(
        "Models",
        [BESIDE, MOVING],
        format_func=str.capitalize,
        key="embeddings.way",
        default=BESIDE,
        required=True,
        disabled=not several,
        bind="query-params",
    )
    colour_place.selectbox(
        "Colour by",
        [*colourings(view.data), *([ERROR] if view.data.dev.positive.any() else [])],
        format_func=str.capitalize,
        key="embeddings.colour",
        bind="query-params",
    )
    find_place.text_input("Find texts", key="embeddings.find", placeholder="or draw a lasso")
    moves = several and way == MOVING
    low = more.container(height="stretch", vertical_alignment="bottom")
    with low.popover("More", icon=":material/tune:", width="stretch"):
        chosen = _models(view, moves) if several else []
        st.selectbox(
            "At most",
            AMOUNTS,
            format_func=lambda number: f"{number:,} texts",
            key="embeddings.most",
            bind="query-params",
        )
    return view.showing(chosen or sideways(view)), method, moves


def _models(view: View, moves: bool) -> list[str]:
    names = {one.key: one.name for one in view.offered}
    default = moving(view) if moves else sideways(view)
    key = f"embeddings.models.{MOVING if moves else BESIDE}.{view.key}"
    return st.multiselect(
        "Models",
        list(names),
        default=default,
        format_func=lambda one: names[one],
        key=key,
        help="Epochs of this run, and other runs on the same texts, in one frame.",
    )


def colourings(data: ExperimentData) -> dict[str, maps.Colouring]:
    """Ways to colour the texts that need no model."""
    files = [Path(report.source) for report in data.reports]
    times = tuple(file.stat().st_mtime_ns for file in files if file.exists())
    return _colourings(_rows_key(data), times, _data=data)


def _rows_key(data: ExperimentData) -> str:
    """What changes when the rows, their labels, their threshold, their split or the corpus do."""
    parts = [f"{name} {part.threshold} {part.digest}" for name, part in data.parts.items()]
    return " ".join([*parts, "" if data.corpus is None else data.corpus.digest])


@st.cache_resource(max_entries=8, show_spinner=False)
def _colourings(rows: str, times: tuple[int, ...], _data: Any) -> dict[str, maps.Colouring]:
    return text_facts.colourings(_data)


def colours(view: View, name: str, rows: np.ndarray) -> list[maps.Colouring]:
    """The colours of the texts `rows`: one for all maps or, where models differ in it, one for each."""
    if name != ERROR:
        whole = [colourings(view.data)[name]]
    else:
        held = "" if (among := view.among) is None else hashlib.sha256(among.tobytes()).hexdigest()
        rows_key = _rows_key(view.data)
        whole = [_errors(f"{one.stamp} {held} {rows_key}", _view=view, _frame=one) for one in view.frames]
    return [maps.Colouring([one.values[row] for row in rows.tolist()], one.colours) for one in whole]


@st.cache_resource(max_entries=16, show_spinner="Searching with every query of dev …")
def _errors(key: str, _view: View, _frame: Frame) -> maps.Colouring:
    return text_facts.errors(_view.data, _frame.at(_view.among), _view.among)


def made(view: View, rows: np.ndarray, method: str) -> map_job.Maps:
    """The maps of a view. While UMAP is still being laid out, its progress is shown and the PCA maps stand in."""
    files = [one.file for one in view.frames]
    if method == "umap":
        folder = map_job.folder_for(view.base, files, rows, method, SEED)
        ready = map_job.finished(folder)
        if ready is not None:
            return ready
        map_job.begin(folder, files, rows, method, SEED)
        st.fragment(_wait, run_every=CHECK)(folder, map_job.expected_seconds(len(rows), len(files)))
    return _pca(map_job.folder_for(view.base, files, rows, "pca", SEED).name, files, rows)


@st.cache_resource(max_entries=8, show_spinner="Laying out the texts by PCA …")
def _pca(key: str, _files: list[Any], _rows: np.ndarray) -> map_job.Maps:
    return map_job.at_once(_files, _rows)


def _wait(folder: Path, expected: float) -> None:
    if map_job.finished(folder) is not None:
        st.rerun(scope="app")
    report = map_job.progress(folder)
    if report["error"]:
        with st.container(border=True):
            st.markdown(":material/error: **UMAP could not be laid out; PCA stands in**")
            st.text(report["error"])
            st.button("Try again", key=f"embeddings.again.{folder.name}", on_click=map_job.again, args=(folder,))
        return
    passed = map_job.age(folder)
    share = min(1.0, max(report["done"] / report["of"], min(0.95, passed / expected)))
    told = f"UMAP: {report['doing']}, {theme.duration(passed)} of about {theme.duration(expected)}; PCA stands in below"
    st.progress(share, text=told)


def picture(
    view: View,
    made_maps: map_job.Maps,
    tints: list[maps.Colouring],
    *,
    picked: np.ndarray,
    trails: np.ndarray,
    moves: bool,
) -> np.ndarray:
    """Draw the maps; the ids of the texts picked by lasso or click this time, empty when nothing was."""
    rows, points = made_maps.rows, _points(made_maps)
    some = trails[sample_rows(len(trails), MOST_TRAILS, seed=SEED)]
    drawn = maps.map_picture(points, [one.name for one in view.frames], tints, ids=rows, picked=picked, trails=some)
    names = " and ".join(one.name for one in view.ends)
    places = map_canvas.draw(
        drawn,
        _texts(f"{view.data.texts.digest} {points.count}", rows.tobytes(), view.data),
        key=f"embeddings.map.{view.key}",
        label=f"Map of {points.count:,} texts, {names}. A lasso picks texts; arrow keys move, plus and minus zoom.",
        moving=moves and len(view.frames) > 1,
    )
    return rows[places] if places is not None else np.empty(0, dtype=np.int32)


def _points(made_maps: map_job.Maps) -> maps.MapPoints:
    return maps.map_points(made_maps.points)


@st.cache_resource(max_entries=8, show_spinner=False)
def _texts(digest: str, rows: bytes, _data: Any) -> pd.DataFrame:
    return map_canvas.hover_texts([_data.texts[row] for row in np.frombuffer(rows, dtype=np.int32).tolist()])


def table(view: View, made_maps: map_job.Maps) -> pd.DataFrame:
    """The texts with their places on every map."""
    import pandas as pd

    columns: dict[str, Any] = {"text": [view.data.texts[int(row)] for row in made_maps.rows]}
    for one, points in zip(view.frames, made_maps.points, strict=True):
        columns |= {f"x, {one.name}": points[:, 0], f"y, {one.name}": points[:, 1]}
    return pd.DataFrame(columns)


def trust_line(view: View, made_maps: map_job.Maps) -> str:
    """How far the map can be trusted, in one sentence with its numbers."""
    total = len(view.data.texts)
    some = (
        ""
        if len(made_maps.rows) == total
        else f" {theme.count(len(made_maps.rows))} of {theme.count(total)} texts are drawn."
    )
    several = len(view.frames) > 1
    shares = [
        f"{theme.share(share, why='too few texts')} ({one.name.lower()})" if several else theme.share(share)
        for one, share in zip(view.frames, made_maps.trust, strict=True)
    ]
    if len(shares) > 2:
        shares = [", ".join(shares[:-1]), shares[-1]]
    return (
        f"Of a text's {NEIGHBOURS} nearest neighbours in embedding space, {' and '.join(shares)} are also its "
        f"nearest on the map; gaps between clusters and their sizes mean little.{some}"
    )

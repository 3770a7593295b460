"""The Embeddings page's parts: which models are looked at, their map, the texts picked on it, and their neighbours."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from bsc_core.data.places import cache_folder
from bsc_core.figures import maps, theme
from bsc_core.projection import nearest, sample_rows
from pages.ui import frame, map_job, run_data, show, store, text_facts

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

MOST_TEXTS = 4000
MOST_LISTED = 200
NEIGHBOURS = 10
SEED = 0
CHECK = "1s"


@dataclass(frozen=True)
class View:
    """One model or two over the same texts. files: their saved vectors; base: the folder where maps are kept."""

    key: str
    data: ExperimentData
    names: list[str]
    vectors: list[np.ndarray]
    files: list[Path]
    base: Path


def view_of(context: frame.Context) -> View | None:
    """The run of the bar before and after training, None while it has measured nothing; without a run, its encoder."""
    if context.run_id is not None:
        run = store.run_store().get(context.run_id)
        found = run_data.models(run)
        if not found:
            return None
        arrays = [model.vectors() for model in found]
        names = [run_data.PARTS[model.part].capitalize() for model in found]
        files = [Path(str(array.filename)) for array in arrays]  # type: ignore[attr-defined]
        return View(run.id, run_data.rows_of(run), names, arrays, files, run.folder / "maps")
    data = store.experiment_data(context.dataset_key)
    vectors = store.vectors(context.dataset_key, context.encoder)
    digest = hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()
    base = cache_folder() / "maps" / digest[:24]
    return View(base.name, data, [f"Untrained: {context.encoder}"], [vectors], [_saved(vectors, base)], base)


def _saved(vectors: np.ndarray, base: Path) -> Path:
    path = base / "vectors.npy"
    if not path.is_file():
        base.mkdir(parents=True, exist_ok=True)
        draft = base / f"vectors.{secrets.token_hex(4)}.npy"
        np.save(draft, vectors, allow_pickle=False)
        draft.replace(path)
    return path


def shown_rows(data: ExperimentData) -> np.ndarray:
    """The texts of the map: all, or past 4,000 those of pairs first, then corpus documents by chance. Ascending."""
    sides = [side for part in data.parts.values() for side in (part.query, part.document)]
    paired = np.unique(np.concatenate(sides))
    others = np.setdiff1d(np.arange(len(data.texts), dtype=np.int32), paired)
    kept = paired[sample_rows(len(paired), MOST_TEXTS, seed=SEED)]
    filled = others[sample_rows(len(others), max(0, MOST_TEXTS - len(kept)), seed=SEED)]
    return np.sort(np.concatenate([kept, filled])).astype(np.int32)


def made(view: View, rows: np.ndarray, method: str) -> map_job.Maps:
    """The maps of a view. While UMAP is still being laid out, its progress is shown and the PCA maps stand in."""
    if method == "umap":
        folder = map_job.folder_for(view.base, view.files, rows, method, SEED)
        ready = map_job.finished(folder)
        if ready is not None:
            return ready
        map_job.begin(folder, view.files, rows, method, SEED)
        st.fragment(_wait, run_every=CHECK)(folder, map_job.expected_seconds(len(rows), len(view.files)))
    return _pca(str(view.base), rows.tobytes(), view.vectors, rows)


@st.cache_resource(max_entries=8, show_spinner="Laying out the texts by PCA …")
def _pca(base: str, rows_key: bytes, _vectors: list[np.ndarray], _rows: np.ndarray) -> map_job.Maps:
    return map_job.at_once(_vectors, _rows)


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
    share = max(report["done"] / report["of"], min(0.95, passed / expected))
    words = (
        f"UMAP: {report['doing']}, {theme.duration(passed)} of about {theme.duration(expected)}; PCA stands in below"
    )
    st.progress(share, text=words)


def picture(view: View, made_maps: map_job.Maps, colours: maps.Colouring, picked: np.ndarray) -> np.ndarray:
    """Draw the maps; return the text ids picked by lasso, box or click this time, empty when nothing was."""
    rows = made_maps.rows
    figure = maps.text_map(
        made_maps.points,
        view.names,
        ids=rows,
        texts=[view.data.texts[int(row)] for row in rows],
        colours=maps.Colouring([colours.values[int(row)] for row in rows], colours.colours),
        picked=picked,
    )
    alt = f"Map of {len(rows)} texts, {' and '.join(view.names)}; draw a lasso to pick texts"
    event = show.figure(figure, alt=alt, name="map", select=True, key=f"embeddings.map.{view.key}")
    points = event.selection.points if event else []
    return np.unique(np.array([_id(point) for point in points], dtype=np.int32))


def _id(point: dict[str, Any]) -> int:
    data = point["customdata"]
    return int(data[0] if isinstance(data, list) else data)


def table(view: View, made_maps: map_job.Maps) -> Any:
    import pandas as pd

    columns: dict[str, Any] = {"text": [view.data.texts[int(row)] for row in made_maps.rows]}
    for name, points in zip(view.names, made_maps.points, strict=True):
        columns |= {f"x, {name}": points[:, 0], f"y, {name}": points[:, 1]}
    return pd.DataFrame(columns)


def trust_line(view: View, made_maps: map_job.Maps) -> str:
    """How far the map can be trusted, in one sentence with its numbers."""
    total = len(view.data.texts)
    some = (
        ""
        if len(made_maps.rows) == total
        else f" {theme.count(len(made_maps.rows))} of {theme.count(total)} texts are drawn."
    )
    shares = [
        f"{theme.share(share, why='too few texts')} ({name.lower()})" if len(view.names) > 1 else theme.share(share)
        for name, share in zip(view.names, made_maps.trust, strict=True)
    ]
    return (
        f"Of a text's {NEIGHBOURS} nearest neighbours in embedding space, {' and '.join(shares)} are also its "
        f"nearest on the map; gaps between clusters and their sizes mean little.{some}"
    )


def find(data: ExperimentData, rows: np.ndarray, words: str) -> np.ndarray:
    """The texts among `rows` that hold all the words, in any case."""
    wanted = words.casefold().split()
    held = [row for row in rows.tolist() if all(word in data.texts[row].casefold() for word in wanted)]
    return np.array(held if wanted else [], dtype=np.int32)


def most_changed(view: View, rows: np.ndarray, number: int = 20) -> np.ndarray:
    """The texts whose neighbours changed most between two models, of at most 400 looked at."""
    asked = rows[sample_rows(len(rows), 400, seed=SEED)]
    kept = kept_counts(view, asked)
    return asked[np.argsort(kept, kind="stable")[:number]]


def kept_counts(view: View, ids: np.ndarray) -> np.ndarray:
    """(R,) how many of the ten nearest texts are the same for both models."""
    first, last = (nearest(np.asarray(array), ids, NEIGHBOURS)[0] for array in view.vectors)
    return np.array([len(np.intersect1d(one, two)) for one, two in zip(first, last, strict=True)])


def texts_table(view: View, ids: np.ndarray, heading: str) -> int | None:
    """The texts with their nearest neighbours in embedding space; returns the id of the text that is chosen."""
    ids = ids[:MOST_LISTED]
    sides = text_facts.sides(view.data)
    lines: dict[str, list[Any]] = {
        "Text": [view.data.texts[int(row)] for row in ids],
        "Side": [sides[int(row)] for row in ids],
    }
    if len(view.vectors) == 2:
        lines[f"Same of {NEIGHBOURS}"] = kept_counts(view, ids).tolist()
    for name, array in zip(view.names, view.vectors, strict=True):
        closest, _ = nearest(np.asarray(array), ids, 1)
        lines[f"Nearest, {name.lower()}"] = [view.data.texts[int(row)] for row in closest[:, 0]]
    widths = {name: 250 if name == "Text" or name.startswith("Nearest") else 90 for name in lines}
    st.subheader(heading, anchor=False)
    key = f"embeddings.texts.{view.key}.{hashlib.sha256(ids.tobytes()).hexdigest()[:12]}"
    event = st.dataframe(
        lines,
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        alt=heading,
        height=260,
        column_config={name: st.column_config.Column(width=width) for name, width in widths.items()},
    )
    return int(ids[event.selection.rows[0]]) if event.selection.rows else None


def neighbours(view: View, text_id: int) -> None:
    """The ten nearest texts of one text, by each model."""
    show.text("Nearest in embedding space to", view.data.texts[text_id])
    for place, name, array in zip(show.columns(len(view.names)), view.names, view.vectors, strict=True):
        ids, cosines = nearest(np.asarray(array), np.array([text_id]), NEIGHBOURS)
        lines = {
            "Cosine": [f"{cosine:.3f}" for cosine in cosines[0]],
            name: [view.data.texts[int(row)] for row in ids[0]],
        }
        with place:
            st.dataframe(
                lines, hide_index=True, key=f"embeddings.nearest.{view.key}.{name}.{text_id}", alt=f"Nearest, {name}"
            )

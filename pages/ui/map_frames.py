"""Which models a map shows, each a frame of it: a run before, after each epoch and after, and other runs beside it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from bsc_core.data.places import cache_folder
from bsc_core.projection import VectorFile, drawn_texts, nearest, sample_rows, unit_vectors
from bsc_core.runs import Run
from bsc_core.training.epoch_vectors import TEXTS, kept_epochs, name_of
from pages.ui import frame, run_data, store

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

MOST_FRAMES = 8  # of a moving map, unless more are asked for
SEED = 0


@dataclass(frozen=True)
class Frame:
    """One model over the texts. `file` holds its vectors, of all texts or of those that were kept.

    own: of the run that is looked at, not of another beside it.
    """

    key: str
    name: str
    file: VectorFile
    own: bool = True

    @property
    def stamp(self) -> str:
        """What changes when the file does."""
        return f"{self.file.path} {self.file.path.stat().st_mtime_ns}"

    @property
    def ids(self) -> np.ndarray | None:
        """The texts whose vectors it holds, ascending; None for all."""
        return None if self.file.texts is None else np.load(self.file.texts, allow_pickle=False)

    def units(self) -> np.ndarray:
        """Its vectors at length 1, a row for each of `ids`."""
        return _units(str(self.file.path), self.file.path.stat().st_mtime_ns)

    def at(self, texts: np.ndarray | None) -> np.ndarray:
        """Its vectors of these texts, all of which it holds; None for all."""
        if texts is None:
            return self.units()
        return self.units()[texts if self.ids is None else np.searchsorted(self.ids, texts)]


@st.cache_resource(max_entries=4)
def _units(path: str, time: int) -> np.ndarray:
    return unit_vectors(np.load(path, mmap_mode="r", allow_pickle=False))


@dataclass(frozen=True)
class View:
    """Models over the same texts, in the order they are shown. base: the folder where their maps are kept."""

    key: str
    data: ExperimentData
    offered: tuple[Frame, ...]
    frames: tuple[Frame, ...]
    base: Path

    @property
    def ends(self) -> list[Frame]:
        """The first and the last model, or the only one."""
        return list(dict.fromkeys([self.frames[0], self.frames[-1]]))

    def showing(self, keys: list[str]) -> View:
        """The same with these models, in the order in which they are offered."""
        chosen = tuple(one for one in self.offered if one.key in keys)
        return replace(self, frames=chosen or self.frames)

    @property
    def among(self) -> np.ndarray | None:
        """The texts that every model holds, ascending ids; None where each holds them all."""
        kept = [ids for one in self.frames if (ids := one.ids) is not None]
        return reduce(np.intersect1d, kept).astype(np.int32) if kept else None

    def texts(self, most: int) -> np.ndarray:
        """The ids of the texts that are drawn, ascending, at most so many: those of pairs first."""
        held = self.among
        return drawn_texts(self.data, most) if held is None else held[sample_rows(len(held), most, seed=SEED)]

    def nearest(self, one: Frame, texts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and cosines (R, k) of the k texts nearest to each of `texts`, of those that every model holds."""
        held = self.among
        if held is None:
            return nearest(one.units(), texts, k)
        found, cosines = nearest(one.at(held), np.searchsorted(held, texts), k)
        return held[found], cosines


def view_of(context: frame.Context) -> View | None:
    """The run of the bar, None while it has measured nothing; without a run, the untrained encoder."""
    if context.run_id is not None:
        run = store.run_store().get(context.run_id)
        own = _of_run(run)
        if not own:
            return None
        data = run_data.rows_of(run)
        offered = (*own, *(one for other in run_data.same_texts(run) for one in _after(other)))
        return View(run.id, data, offered, _ends(own), run.folder / "maps")
    data = store.experiment_data(context.dataset_key)
    vectors = store.vectors(context.dataset_key, context.encoder)
    digest = hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()
    base = cache_folder() / "maps" / digest[:24]
    only = Frame("before", f"Untrained: {context.encoder}", VectorFile(_saved(vectors, base)))
    return View(base.name, data, (only,), (only,), base)


def sideways(view: View) -> list[str]:
    """The models that stand side by side unless others are chosen: before and after."""
    return [one.key for one in view.frames]


def moving(view: View) -> list[str]:
    """The models that points move through unless others are chosen: before and every epoch, or before and after."""
    epochs = [one.key for one in view.offered if one.key.startswith("epoch-")]
    if not epochs:
        return sideways(view)
    places = np.unique(np.linspace(0, len(epochs) - 1, min(len(epochs), MOST_FRAMES - 1)).astype(int))
    return ["before", *(epochs[place] for place in places)]


def _of_run(run: Run) -> list[Frame]:
    """Before, after each epoch whose vectors were kept, and after."""
    found = [
        Frame(model.part, run_data.PARTS[model.part].capitalize(), VectorFile(_path(model.vectors())))
        for model in run_data.models(run)
    ]
    best = (run.read_json("result") or {}).get("best_epoch")
    epochs = []
    for epoch in kept_epochs(run):
        file = VectorFile(run.folder / f"{name_of(epoch)}.npy", run.folder / f"{TEXTS}.npy")
        epochs.append(Frame(f"epoch-{epoch}", f"Epoch {epoch}{' (best)' if epoch == best else ''}", file))
    return [*found[:1], *epochs, *found[1:]]


def _after(run: Run) -> list[Frame]:
    """Another run after training, where it has measured that."""
    after = [model for model in run_data.models(run) if model.part == "after"]
    name = f"{frame.run_label(run.id).split(' · ')[0]} · {run.id[-4:]}"
    return [Frame(run.id, name, VectorFile(_path(model.vectors())), own=False) for model in after]


def _ends(frames: list[Frame]) -> tuple[Frame, ...]:
    return tuple(one for one in frames if one.key in run_data.PARTS)


def _path(array: np.ndarray) -> Path:
    return Path(str(array.filename))  # type: ignore[attr-defined]


def _saved(vectors: np.ndarray, base: Path) -> Path:
    path = base / "vectors.npy"
    if not path.is_file():
        base.mkdir(parents=True, exist_ok=True)
        draft = base / f"vectors.{secrets.token_hex(4)}.npy"
        np.save(draft, vectors, allow_pickle=False)
        draft.replace(path)
    return path

"""Models that a map shows, one frame each: a run before training, after each epoch and after training; other runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import streamlit as st

from bsc_core import background_task
from bsc_core.config import DataConfig
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import BscError, InputError
from bsc_core.files import atomic_write, map_array
from bsc_core.neighbors import nearest_others, unit_rows
from bsc_core.paths import cache_folder
from bsc_core.projection import VectorFile, sample_rows, sample_texts
from bsc_core.runs import Run
from bsc_core.runs.documents import RESULT
from bsc_core.runs.store import EPOCH_TEXTS, epoch_array, saved_epochs
from pages.ui.components import data_cache, page_layout, run_data
from pages.ui.data import uploads

MAX_VECTORS = 20  # files of vectors of untrained encoders that maps read
MAX_FRAMES = 8  # of an animated map, unless more are selected
SEED = 0


@dataclass(frozen=True)
class Frame:
    """One model and the vectors of all its texts, or of those that the run saved."""

    key: str  # unique among the frames
    name: str
    file: VectorFile
    of_run: bool = True  # whether it belongs to the selected run

    @property
    def cache_key(self) -> str:
        """Key that changes when the file does."""
        return str(data_cache.file_stamps(self.file.path))

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the vectors."""
        return int(map_array(self.file.path).shape[1])

    @property
    def ids(self) -> np.ndarray | None:
        """Ids of the texts with vectors, ascending; None for all."""
        return None if self.file.texts is None else map_array(self.file.texts)

    def vectors(self, texts: np.ndarray | None) -> np.ndarray:
        """Return the unit vectors of these texts, all of which must have one; None for all texts."""
        units = _unit_vectors(str(self.file.path), self.cache_key)
        if texts is None:
            return units
        return units[texts if self.ids is None else np.searchsorted(self.ids, texts)]


@st.cache_resource(max_entries=4)
def _unit_vectors(path: str, key: str) -> np.ndarray:
    return unit_rows(map_array(Path(path)))


@dataclass(frozen=True)
class MapData:
    """Models over the same texts."""

    key: str  # unique per run or encoder
    dataset: DatasetSplits
    available: tuple[Frame, ...]
    frames: tuple[Frame, ...]  # those that are shown, in order
    folder: Path  # cache folder of the maps
    may_read_files: bool  # whether the user may see all columns of the data files

    @property
    def ends(self) -> list[Frame]:
        """The first and the last frame, or the only one."""
        return list(dict.fromkeys([self.frames[0], self.frames[-1]]))

    def with_frames(self, keys: list[str]) -> MapData:
        """Return the same data with these frames, in the order of `available`."""
        frames = tuple(one for one in self.available if one.key in keys)
        return replace(self, frames=frames or self.frames)

    @property
    def common_texts(self) -> np.ndarray | None:
        """Ids of the texts that every frame has vectors for, ascending; None for all."""
        ids = [ids for one in self.frames if (ids := one.ids) is not None]
        return reduce(np.intersect1d, ids).astype(np.int32) if ids else None

    def sample(self, most: int) -> np.ndarray:
        """Return ids of at most so many texts, ascending, those of pairs first."""
        ids = self.common_texts
        return sample_texts(self.dataset, most) if ids is None else ids[sample_rows(len(ids), most, seed=SEED)]

    def nearest(self, frame: Frame, texts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and cosines (R, k) of the k nearest common texts of each of `texts`."""
        ids = self.common_texts
        if ids is None:
            return nearest_others(frame.vectors(None), texts, k)
        positions, cosines = nearest_others(frame.vectors(ids), np.searchsorted(ids, texts), k)
        return ids[positions], cosines


CACHE_KEY = {Frame: lambda frame: frame.cache_key, MapData: lambda data: [frame.cache_key for frame in data.frames]}
"""Keys of cached functions: they change when the vectors do."""


def load_map_data(context: page_layout.Context) -> MapData | None:
    """Load the run of the context bar, None if it has no embeddings; without a run, the untrained encoder."""
    if context.run_id is not None:
        run = data_cache.run_store().get(context.run_id)
        frames = _run_frames(run)
        if not frames:
            return None
        same = run_data.runs_on_same_texts(run)
        names = data_cache.run_names(one.id for one in same)
        others = [frame for other in same for frame in _frame_of_other_run(other, names[other.id])]
        ends = tuple(one for one in frames if one.key in run_data.PARTS)
        may_read = _may_read_files(run.config().data)
        return MapData(run.id, run_data.load_splits(run), (*frames, *others), ends, maps_folder(run), may_read)
    splits = data_cache.dataset_splits(context.dataset_key)
    vectors = data_cache.vectors(context.dataset_key, context.encoder)
    digest = hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()
    folder = cache_folder() / "maps" / digest[:24]
    path = folder / "vectors.npy"
    if not path.is_file():
        background_task.remove_oldest(folder.parent, "*/vectors.npy", MAX_VECTORS - 1)
        atomic_write(path, lambda file: np.save(file, vectors, allow_pickle=False))
    only = Frame("before", f"Encoder {context.encoder}", VectorFile(path))
    return MapData(folder.name, splits, (only,), (only,), folder, True)


def _may_read_files(data: DataConfig) -> bool:
    """Return whether the user may read the data files of a run, of which they see the pairs."""
    try:
        uploads.check_files(data)
    except InputError:
        return False
    return True


def maps_folder(run: Run) -> Path:
    """Return the folder in the cache with the maps of a run."""
    return cache_folder() / "maps" / hashlib.sha256(str(run.folder.resolve()).encode()).hexdigest()[:24]


def default_frames(data: MapData) -> list[str]:
    """Return the keys of the frames that are shown side by side by default: before and after training."""
    return [one.key for one in data.frames]


def animated_frames(data: MapData) -> list[str]:
    """Return the keys of the frames of an animation by default: before training and the epochs, if they were saved."""
    epochs = [one.key for one in data.available if one.key.startswith("epoch-")]
    if not epochs:
        return default_frames(data)
    positions = np.unique(np.linspace(0, len(epochs) - 1, min(len(epochs), MAX_FRAMES - 1)).astype(int))
    return ["before", *(epochs[position] for position in positions)]


def _run_frames(run: Run) -> list[Frame]:
    """Return the frames of a run: before training, after each epoch with saved vectors, and after training."""
    ends = [
        Frame(model.part, model.when.capitalize(), VectorFile(_path(model.vectors()))) for model in run_data.models(run)
    ]
    best = (run.read_json(RESULT) or {}).get("best_epoch")
    epochs = []
    for epoch in saved_epochs(run):
        file = VectorFile(run.folder / f"{epoch_array(epoch)}.npy", run.folder / f"{EPOCH_TEXTS}.npy")
        epochs.append(Frame(f"epoch-{epoch}", f"Epoch {epoch}{' (best)' if epoch == best else ''}", file))
    return [*ends[:1], *epochs, *ends[1:]]


def _frame_of_other_run(run: Run, name: str) -> list[Frame]:
    """Return another run after training; none without these embeddings, or if they are damaged."""
    try:
        paths = [_path(model.vectors()) for model in run_data.models(run) if model.part == "after"]
    except BscError:
        return []
    return [Frame(run.id, name, VectorFile(path), of_run=False) for path in paths]


def _path(array: np.ndarray) -> Path:
    return Path(str(array.filename))  # type: ignore[attr-defined]

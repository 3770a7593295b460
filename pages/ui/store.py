"""What pages read: the runs folder, the datasets to choose from, their rows and their vectors, each loaded once.

Caches are keyed on names, file times and digests, never on arrays.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from bsc_core.config import DataConfig, EncoderConfig, ExamplesConfig
from bsc_core.errors import InputError
from bsc_core.figures import theme
from bsc_core.recipes.sample import sample_config, sample_nli_config
from bsc_core.runs import RunStore

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data import Table
    from bsc_core.data.experiment import ExperimentData

SAMPLE = "sample"
SAMPLE_NLI = "sample-nli"
SAMPLES = (SAMPLE, SAMPLE_NLI)
SHELF = 8  # sets of vectors kept in memory
TEXTS_A_SECOND = 150  # what two processor cores encode with the bundled encoder


@dataclass(frozen=True)
class DatasetChoice:
    """One dataset of the context bar: its key in the URL, its name, and how to read it."""

    key: str
    label: str
    data: DataConfig


def run_store() -> RunStore:
    """The runs folder of this process (environment BSC_RUNS, else ./runs)."""
    return RunStore()


def short_id(run_id: str) -> str:
    """The id of a run or a group without the date and time that it begins with."""
    return run_id.split("-", 2)[-1]


def datasets() -> dict[str, DatasetChoice]:
    """Key -> dataset: the sample data first, then the uploaded ones, newest first."""
    choices = {
        SAMPLE: DatasetChoice(SAMPLE, "Sample questions and answers", _mended(SAMPLE, sample_config())),
        SAMPLE_NLI: DatasetChoice(SAMPLE_NLI, "Sample NLI", _mended(SAMPLE_NLI, sample_nli_config())),
    }
    described = sorted(uploads_folder().glob("*/dataset.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in described:
        values = json.loads(path.read_text(encoding="utf-8"))
        choices[path.parent.name] = DatasetChoice(
            path.parent.name, values["label"], DataConfig.model_validate(values["data"])
        )
    return choices


def _mended(key: str, data: DataConfig) -> DataConfig:
    """The sample data with the remedies that were switched on for them."""
    path = settings_file(key)
    if not path.is_file():
        return data
    return data.model_copy(update={"remedies": tuple(json.loads(path.read_text(encoding="utf-8"))["remedies"])})


def settings_file(key: str) -> Path:
    """Where the remedies of sample data are kept; those of other datasets stand in their own description."""
    return run_store().root / "settings" / f"{key}.json"


def uploads_folder() -> Path:
    """The folder of uploaded datasets inside the runs folder."""
    return run_store().uploads_folder


def data_config(key: str) -> DataConfig:
    """How the dataset of that key is read. Raises InputError when it is gone."""
    choices = datasets()
    if key not in choices:
        raise InputError(f"dataset {key} is not there any more; choose another in the bar at the top")
    data, marks = choices[key].data, marks_file(key)
    if data.false_negatives is None and marks.is_file():
        return data.model_copy(update={"false_negatives": str(marks)})
    return data


def marks_file(key: str) -> Path:
    """Where the pairs of a dataset that were marked as false negatives are kept; made with the first mark."""
    own = datasets()[key].data.false_negatives if key in datasets() else None
    return Path(own) if own else run_store().root / "marks" / f"{key}.tsv"


def experiment_data(key: str, *, seed: int = 0) -> ExperimentData:
    """The rows of a dataset, read once for all sessions and again when a file of it changes. Treat it as read-only."""
    return prepared(data_config(key), seed=seed)


def prepared(config: DataConfig, *, seed: int = 0) -> ExperimentData:
    """The same for settings that are no dataset yet; texts that are to be encoded on the way show a progress bar."""
    generated = config.negatives is not None or config.examples is not None
    marks = config.false_negatives
    if marks is not None and generated:
        return _load(config, (*times_of(config), *_file_times(marks)), seed)
    plain = config.model_copy(update={"false_negatives": None})  # a new mark does not read the files again
    data, times = _load(plain, times_of(plain), seed), times_of(plain)
    return data if marks is None else _marked(data, (plain.model_dump_json(), times, seed), marks, _file_times(marks))


def source_rows(key: str, *, mended: bool = False) -> ExperimentData:
    """The rows of a dataset as they stand in its files, before anything is made of them; mended: after the remedies."""
    config = data_config(key)
    changed: dict[str, object] = {"false_negatives": None, "negatives": None, "nli": None}
    changed |= {} if mended else {"remedies": ()}
    plain = config.model_copy(update=changed)
    if config.examples is None:
        return prepared(plain)
    named = ExamplesConfig.model_validate(config.examples.model_dump(include={"text", "class_label", "split"}))
    plain = plain.model_copy(update={"examples": named})
    return _sentences(plain.model_dump_json(), times_of(plain))


Times = tuple[tuple[str, int, int], ...]


def times_of(data: DataConfig) -> Times:
    """Name, time and size of each file of a dataset, by which a change of one is seen."""
    return _file_times(data.train, data.dev, data.test, data.corpus, *data.mix)


def _file_times(*names: str | None) -> Times:
    paths = [Path(name) for name in names if name]
    found = [(str(path), path.stat()) for path in paths if path.exists()]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


@st.cache_resource(max_entries=8, show_spinner=False)
def _marked(_data: ExperimentData, read: tuple[str, Times, int], path: str, times: Times) -> ExperimentData:
    from bsc_core.data.marks import read_marks, with_marks

    marks = read_marks(path)
    return replace(_data, **{name: with_marks(part, marks) for name, part in _data.parts.items()})


@st.cache_resource(max_entries=4, show_spinner="Reading the dataset …")
def _sentences(config_json: str, file_times: Times) -> ExperimentData:
    """The rows of classified sentences, each as a pair with itself."""
    from bsc_core.data import load_data

    return load_data(DataConfig.model_validate_json(config_json), seed=0)


def _load(config: DataConfig, file_times: Times, seed: int) -> ExperimentData:
    shelf, name = _read_data(), (config.model_dump_json(), file_times, seed)
    data = shelf.get(name)
    if data is None:
        while len(shelf) >= SHELF:
            shelf.pop(next(iter(shelf)), None)
        data = shelf[name] = _prepare(config, seed)
    return data


def table(path: str) -> Table:
    """The cells of a file, read once and again when it changes."""
    return _table(path, _file_times(path))


@st.cache_resource(max_entries=4, show_spinner="Reading the file …")
def _table(path: str, file_times: Times) -> Table:
    from bsc_core.data import read_table

    return read_table(path)


@st.cache_resource
def _read_data() -> dict[tuple[str, Times, int], ExperimentData]:
    return {}


def _prepare(config: DataConfig, seed: int) -> ExperimentData:
    from bsc_core.preparation.prepare import load_experiment

    bar, began = st.empty(), time.monotonic()

    def encoded(done: int, total: int) -> None:
        left = theme.duration((time.monotonic() - began) * (total - done) / max(done, 1))
        words = f"Encoding with the reference encoder: {done:,} of {total:,} texts, about {left} left"
        bar.progress(done / max(total, 1), text=words if done < total else "Looking for neighbours …")

    try:
        with bar, st.spinner("Reading the dataset …"):
            return load_experiment(config, seed=seed, progress=encoded)
    finally:
        bar.empty()


def vectors(key: str, encoder: str, *, seed: int = 0) -> np.ndarray:
    """(U, D) float32: a vector for every distinct text of a dataset, aligned with `experiment_data(key).texts`.

    encoder: `bundled`, `static`, a folder, a hub id, or `run:<id>` for the model that a run saved.
    Shows a progress bar the first time; afterwards the vectors come from memory or from the disk cache.
    """
    data = experiment_data(key, seed=seed)
    config = encoder_config(encoder)
    name = (data.texts.digest, config.name, config.max_length, folder_time(config.name))
    shelf = _shelf()
    if name not in shelf:
        while len(shelf) >= SHELF:
            shelf.pop(next(iter(shelf)), None)
        shelf[name] = _encode(config, data)
    return shelf[name]


def encoder_config(encoder: str) -> EncoderConfig:
    """How the encoder of that name is loaded; `run:<id>` is the model that the run saved."""
    if not encoder.startswith("run:"):
        return EncoderConfig(name=encoder)
    run = run_store().get(encoder.removeprefix("run:"))
    return EncoderConfig(name=str(run.model_folder), max_length=run.config().encoder.max_length)


def folder_time(name: str) -> int:
    """When a model folder changed last; 0 for a name that is no folder."""
    folder = Path(name)
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


@st.cache_resource
def _shelf() -> dict[tuple[str, str, int, int], np.ndarray]:
    return {}


def _encode(config: EncoderConfig, data: ExperimentData) -> np.ndarray:
    bar = st.progress(0.0, text="Loading the encoder …")
    from bsc_core.encoders import embed

    number = len(data.texts)
    bar.progress(0.0, text=f"Encoding {number:,} texts once; about {max(1, number // TEXTS_A_SECOND)} s")
    try:
        return embed(config, data.texts, progress=lambda done, total: bar.progress(done / max(total, 1)))
    finally:
        bar.empty()


def keep_plan(values: dict[str, dict[str, object]]) -> None:
    """Remember settings (sections of RunConfig, such as batching or loss) for the New run page; {} forgets them."""
    st.session_state["plan"] = values


def kept_plan() -> dict[str, dict[str, object]]:
    """The settings that Batches or the loss lab sent on, else {}."""
    kept: dict[str, dict[str, object]] = st.session_state.get("plan", {})
    return kept
